# cython: boundscheck=False, wraparound=False, cdivision=True
"""Murmur2 of a key, as Java's producer computes it, and the partition that follows from it.

Compiled, for it runs once for each record that has a key.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t SEED = 0x9747B28C
cdef uint32_t MULTIPLIER = 0x5BD1E995


cdef uint32_t _hash(const uint8_t* at, size_t size) noexcept nogil:
    cdef uint32_t value = SEED ^ <uint32_t>size
    cdef uint32_t word
    cdef const uint8_t* end = at + (size & ~<size_t>3)
    while at < end:
        word = <uint32_t>at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        word *= MULTIPLIER
        word ^= word >> 24
        word *= MULTIPLIER
        value = value * MULTIPLIER ^ word
        at += 4
    size &= 3
    if size > 0:
        if size == 3:
            value ^= <uint32_t>at[2] << 16
        if size >= 2:
            value ^= <uint32_t>at[1] << 8
        value = (value ^ at[0]) * MULTIPLIER
    value = (value ^ value >> 13) * MULTIPLIER
    return value ^ value >> 15


def murmur2(key):
    cdef Py_buffer view
    if PyBytes_CheckExact(key):
        return _hash(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    try:
        return _hash(<const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


def partition_for_key(key, uint32_t partitions):
    if partitions == 0:
        raise ValueError("a topic has one partition at least")
    if PyBytes_CheckExact(key):
        return (_hash(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF) % partitions
    return (<uint32_t>murmur2(key) & 0x7FFFFFFF) % partitions
