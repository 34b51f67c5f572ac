"""Memory that kernels fill: owned here, read through the buffer protocol.

The kernels grow it without the GIL (`packed_buffer.pxd`); blocks that are given back are reused (`kept_blocks.h`).
"""

cimport cython
from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from libc.string cimport memset

from ottla.model.errors import MisuseError

cdef extern from "ottla/records/kept_blocks.h" nogil:
    int ottla_grow(ottla_growable* buffer, size_t need, int zeroed)
    void ottla_shrink(ottla_growable* buffer)
    void ottla_give_back(ottla_growable* buffer)


@cython.final
cdef class PackedBuffer:
    """Memory that a kernel filled, reached through the buffer protocol and given back with the last view of it."""

    def __dealloc__(self):
        ottla_give_back(&self._buffer)

    def __len__(self):
        return self._buffer.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        # Readers of an empty buffer may still insist on an address.
        cdef void* start = self._buffer.data if self._buffer.data != NULL else <void*>&self._buffer
        PyBuffer_FillInfo(view, self, start, self._buffer.size, 0, flags)


def uninitialized(Py_ssize_t size):
    cdef PackedBuffer packed = PackedBuffer()
    if size < 0:
        raise MisuseError(f"{size} bytes make no sense")
    if reserve(&packed._buffer, size, False):
        raise MemoryError(f"no room for {size} bytes")
    packed._buffer.size = size
    return packed


cdef int grow(ottla_growable* buffer, size_t need, bint zeroed) noexcept nogil:
    return ottla_grow(buffer, need, zeroed)


cdef void give_back(ottla_growable* buffer) noexcept nogil:
    ottla_give_back(buffer)


cdef PackedBuffer hand_over(ottla_growable* buffer):
    """The bytes in use as an object; the growable buffer is empty after it."""
    cdef PackedBuffer packed = PackedBuffer()
    ottla_shrink(buffer)
    packed._buffer = buffer[0]
    memset(buffer, 0, sizeof(ottla_growable))
    return packed
