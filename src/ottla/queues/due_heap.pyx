# cython: boundscheck=False, wraparound=False, cdivision=True
"""The part of a due index that is in memory: a heap of (due, offset) entries, 16 bytes each."""

cimport cython
from cpython cimport array
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from array import array as new_array

from ottla.model.errors import MisuseError

cdef extern from "ottla/queues/due_heap.h" nogil:
    ctypedef struct ottla_entry:
        int64_t due, offset
    bint ottla_entry_before(const ottla_entry* left, const ottla_entry* right)
    void ottla_heap_rise(ottla_entry* entries, size_t at)
    void ottla_heap_drop_first(ottla_entry* entries, size_t size)
    void ottla_sort_entries(ottla_entry* entries, ottla_entry* spare, size_t size)

ENTRY_BYTES = sizeof(ottla_entry)

cdef enum:
    ROOM_MIN = 256

cdef array.array _template = new_array("q")


@cython.final
cdef class DueHeap:
    """Entries of which the first can be taken."""

    cdef ottla_entry* _entries
    cdef Py_ssize_t _size
    cdef Py_ssize_t _room

    def __dealloc__(self):
        free(self._entries)

    def __len__(self):
        return self._size

    @property
    def memory_bytes(self):
        return self._room * <Py_ssize_t>sizeof(ottla_entry)

    def first(self):
        return (self._entries[0].due, self._entries[0].offset) if self._size else None

    def push(self, dues, offsets):
        cdef Py_buffer due_view, offset_view
        PyObject_GetBuffer(dues, &due_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(offsets, &offset_view, PyBUF_SIMPLE)
            try:
                if due_view.len != offset_view.len or due_view.len % sizeof(int64_t):
                    raise MisuseError(f"{due_view.len} bytes of due times for {offset_view.len} bytes of offsets")
                self._push(
                    <const int64_t*>due_view.buf, <const int64_t*>offset_view.buf, due_view.len // sizeof(int64_t)
                )
            finally:
                PyBuffer_Release(&offset_view)
        finally:
            PyBuffer_Release(&due_view)

    cdef int _push(self, const int64_t* dues, const int64_t* offsets, Py_ssize_t count) except -1:
        cdef Py_ssize_t index
        self._reserve(self._size + count)
        for index in range(count):
            self._entries[self._size].due = dues[index]
            self._entries[self._size].offset = offsets[index]
            ottla_heap_rise(self._entries, self._size)
            self._size += 1
        return 0

    def push_entries(self, entries):
        cdef Py_buffer view
        cdef Py_ssize_t index, count
        PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
        try:
            if view.len % sizeof(ottla_entry):
                raise MisuseError(f"{view.len} bytes are not whole entries")
            count = view.len // sizeof(ottla_entry)
            self._reserve(self._size + count)
            for index in range(count):
                self._entries[self._size] = (<const ottla_entry*>view.buf)[index]
                ottla_heap_rise(self._entries, self._size)
                self._size += 1
        finally:
            PyBuffer_Release(&view)

    def pop(self, int64_t due_max, int64_t bound_due, int64_t bound_offset, Py_ssize_t limit):
        cdef Py_ssize_t room = min(limit, self._size), count = 0
        cdef array.array dues = array.clone(_template, max(room, 0), False)
        cdef array.array offsets = array.clone(_template, max(room, 0), False)
        cdef int64_t* to_dues = <int64_t*>dues.data.as_voidptr
        cdef int64_t* to_offsets = <int64_t*>offsets.data.as_voidptr
        cdef ottla_entry bound
        bound.due = bound_due
        bound.offset = bound_offset
        while count < room and self._entries[0].due <= due_max and not ottla_entry_before(&bound, self._entries):
            to_dues[count] = self._entries[0].due
            to_offsets[count] = self._entries[0].offset
            count += 1
            ottla_heap_drop_first(self._entries, self._size)
            self._size -= 1
        array.resize(dues, count)
        array.resize(offsets, count)
        return dues, offsets

    def split(self, Py_ssize_t keep):
        cdef ottla_entry* spare
        cdef bytes later
        if keep < 0 or keep > self._size:
            raise MisuseError(f"{keep} of {self._size} entries cannot be kept")
        spare = <ottla_entry*>malloc(max(self._size, 1) * sizeof(ottla_entry))
        if spare == NULL:
            raise MemoryError(f"no memory to sort {self._size} entries")
        with nogil:
            ottla_sort_entries(self._entries, spare, self._size)
        free(spare)
        later = PyBytes_FromStringAndSize(
            <const char*>(self._entries + keep), (self._size - keep) * <Py_ssize_t>sizeof(ottla_entry)
        )
        # What is sorted is a heap as well.
        self._size = keep
        return later

    def count_before(self, int64_t due):
        cdef Py_ssize_t index, count = 0
        for index in range(self._size):
            count += self._entries[index].due < due
        return count

    def shrink(self):
        """Gives back memory that is not used."""
        cdef Py_ssize_t room = max(self._size, ROOM_MIN)
        cdef ottla_entry* smaller
        if self._room > 4 * room:
            smaller = <ottla_entry*>realloc(self._entries, 2 * room * sizeof(ottla_entry))
            if smaller != NULL:
                self._entries = smaller
                self._room = 2 * room

    cdef int _reserve(self, Py_ssize_t size) except -1:
        cdef ottla_entry* larger
        cdef Py_ssize_t room
        if size <= self._room:
            return 0
        room = max(size, self._room + self._room // 2, <Py_ssize_t>ROOM_MIN)
        larger = <ottla_entry*>realloc(self._entries, room * sizeof(ottla_entry))
        if larger == NULL:
            raise MemoryError(f"no memory for {size} entries")
        self._entries = larger
        self._room = room
        return 0


def count_entries_before(entries, int64_t due):
    cdef Py_buffer view
    cdef Py_ssize_t low = 0, high, middle
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        high = view.len // sizeof(ottla_entry)
        while low < high:
            middle = (low + high) // 2
            if (<const ottla_entry*>view.buf)[middle].due < due:
                low = middle + 1
            else:
                high = middle
    finally:
        PyBuffer_Release(&view)
    return low


def block_firsts(entries, Py_ssize_t block_entries):
    cdef Py_buffer view
    cdef Py_ssize_t count, index
    cdef array.array dues, offsets
    PyObject_GetBuffer(entries, &view, PyBUF_SIMPLE)
    try:
        count = (view.len // <Py_ssize_t>sizeof(ottla_entry) + block_entries - 1) // block_entries
        dues = array.clone(_template, count, False)
        offsets = array.clone(_template, count, False)
        for index in range(count):
            dues.data.as_longlongs[index] = (<const ottla_entry*>view.buf)[index * block_entries].due
            offsets.data.as_longlongs[index] = (<const ottla_entry*>view.buf)[index * block_entries].offset
    finally:
        PyBuffer_Release(&view)
    return dues, offsets
