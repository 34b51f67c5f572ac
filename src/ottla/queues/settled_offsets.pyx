# cython: boundscheck=False, wraparound=False, cdivision=True
"""Which offsets of a companion partition are settled: one bit each, from the first offset that is not.

Pure. The bits of 64 offsets are a word of a C array that begins at a multiple of 64; words below the first offset that
is not settled are dropped now and then.
"""

from cpython.array cimport array, clone
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from ottla.model.errors import MisuseError

cdef extern from *:
    int __builtin_ctzll(unsigned long long) nogil

cdef Py_ssize_t DEF_WORDS = 1024

cdef class SettledOffsets:
    """Offsets of a log; those below the first unsettled one need no bit."""

    cdef uint64_t* _words
    cdef Py_ssize_t _capacity
    cdef int64_t _base
    cdef int64_t _first
    cdef array _template

    def __cinit__(self, int64_t start):
        if start < 0:
            raise MisuseError(f"offset {start} is negative")
        self._base = start & ~<int64_t>63
        self._first = start
        self._capacity = DEF_WORDS
        self._words = <uint64_t*>calloc(self._capacity, sizeof(uint64_t))
        if self._words == NULL:
            raise MemoryError()
        self._template = array("q")

    def __dealloc__(self):
        free(self._words)

    @property
    def first_unsettled(self):
        return self._first

    @property
    def size_bytes(self):
        return self._capacity * sizeof(uint64_t)

    def __contains__(self, int64_t offset):
        return self._has(offset)

    cdef inline bint _has(self, int64_t offset) noexcept nogil:
        cdef Py_ssize_t at
        if offset < self._first:
            return True
        at = (offset - self._base) >> 6
        return at < self._capacity and (self._words[at] >> (offset & 63)) & 1

    def settle(self, int64_t first, int64_t count=1):
        cdef int64_t end = first + count
        cdef int64_t word_end
        cdef uint64_t bits
        if count < 0 or first < 0:
            raise MisuseError(f"offsets {first} to {end} are not a range")
        if first < self._first:
            first = self._first
        if first >= end:
            return
        self._reserve(end)
        while first < end:
            if (first & 63) == 0 and end - first >= 64:
                self._words[(first - self._base) >> 6] = ~<uint64_t>0
                first += 64
                continue
            word_end = (first | 63) + 1
            if word_end > end:
                word_end = end
            bits = (~<uint64_t>0) if word_end - first == 64 else ((<uint64_t>1 << (word_end - first)) - 1)
            self._words[(first - self._base) >> 6] |= bits << (first & 63)
            first = word_end
        self._advance()

    def unsettled(self, offsets not None):
        cdef const int64_t[::1] given = offsets
        cdef array kept = clone(self._template, given.shape[0], False)
        cdef int64_t[::1] into
        cdef Py_ssize_t at, count = 0
        if given.shape[0] == 0:
            return kept
        into = kept
        for at in range(given.shape[0]):
            if not self._has(given[at]):
                into[count] = at
                count += 1
        del into
        return kept[:count]

    cdef int _reserve(self, int64_t end) except -1:
        """Makes room for the bits below `end`."""
        cdef Py_ssize_t needed = ((end - self._base) + 63) >> 6
        cdef Py_ssize_t unused, used, capacity
        cdef uint64_t* words
        if needed <= self._capacity:
            return 0
        unused = (self._first - self._base) >> 6
        if unused > self._capacity:
            unused = self._capacity
        used = self._capacity - unused
        self._base += <int64_t>unused << 6
        # The first unsettled offset may lie behind everything that has bits.
        if used == 0:
            self._base = self._first & ~<int64_t>63
        needed = ((end - self._base) + 63) >> 6
        capacity = DEF_WORDS
        while capacity < needed:
            capacity *= 2
        words = <uint64_t*>calloc(capacity, sizeof(uint64_t))
        if words == NULL:
            raise MemoryError()
        memcpy(words, self._words + unused, used * sizeof(uint64_t))
        free(self._words)
        self._words = words
        self._capacity = capacity
        return 0

    cdef void _advance(self) noexcept nogil:
        """Moves the first unsettled offset over what is settled."""
        cdef Py_ssize_t at = (self._first - self._base) >> 6
        cdef uint64_t missing
        if at >= self._capacity:
            return
        missing = ~(self._words[at] | ((<uint64_t>1 << (self._first & 63)) - 1))
        while missing == 0:
            at += 1
            if at == self._capacity:
                self._first = self._base + (<int64_t>at << 6)
                return
            missing = ~self._words[at]
        self._first = self._base + (<int64_t>at << 6) + __builtin_ctzll(missing)
