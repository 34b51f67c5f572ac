"""The C interface to the memory that kernels fill."""

from libc.stdint cimport uint8_t

cdef extern from "ottla/records/growable.h" nogil:
    enum:
        OTTLA_SLACK_BYTES
    ctypedef struct ottla_growable:
        uint8_t* data
        size_t size, room
    void ottla_copy(uint8_t* to, const uint8_t* source, size_t size, const uint8_t* source_end)


cdef class PackedBuffer:
    cdef ottla_growable _buffer


cdef int grow(ottla_growable* buffer, size_t need, bint zeroed) noexcept nogil
cdef void give_back(ottla_growable* buffer) noexcept nogil
cdef PackedBuffer hand_over(ottla_growable* buffer)


cdef inline int reserve(ottla_growable* buffer, size_t more, bint zeroed) noexcept nogil:
    """Makes room for more bytes after those in use, and slack behind them. 0, or -1 without memory."""
    cdef size_t need = buffer.size + more + OTTLA_SLACK_BYTES
    return 0 if need <= buffer.room else grow(buffer, need, zeroed)
