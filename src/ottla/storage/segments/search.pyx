# cython: boundscheck=False, wraparound=False
"""Searches in index entries and batch headers at C speed.

The index functions bisect big-endian entries of a mapped index file. `find_batch_header` walks from header to header in
a piece of a segment and needs only the headers, so that a large batch need not be read to be skipped.
Every access is bounded by the length of the buffer that was given.
"""

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef Py_ssize_t HEADER_BYTES = 61
cdef Py_ssize_t LENGTH_PREFIX_BYTES = 12


cdef inline int32_t read_int32(const uint8_t* at) noexcept nogil:
    return <int32_t>((<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3])


cdef inline int64_t read_int64(const uint8_t* at) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>read_int32(at) << 32) | <uint64_t><uint32_t>read_int32(at + 4))


cdef inline int64_t key_at(const uint8_t* entries, Py_ssize_t slot, Py_ssize_t entry_bytes, bint wide) noexcept nogil:
    return read_int64(entries + slot * entry_bytes) if wide else read_int32(entries + slot * entry_bytes)


def last_slot_at_most(const uint8_t[:] entries, Py_ssize_t count, Py_ssize_t entry_bytes, bint wide, int64_t key):
    """The last of `count` entries whose key is at most `key`, or -1; the key is the entry's first 8 (wide) or 4 bytes."""
    cdef Py_ssize_t low = 0, high = min(count, entries.shape[0] // entry_bytes), middle
    if high <= 0:
        return -1
    with nogil:
        while low < high:
            middle = (low + high) // 2
            if key_at(&entries[0], middle, entry_bytes, wide) <= key:
                low = middle + 1
            else:
                high = middle
    return low - 1


def first_disorder(const uint8_t[:] entries, Py_ssize_t count, Py_ssize_t entry_bytes, bint wide):
    """The first slot whose key is not larger than the one before (or is negative), or -1 if all are in order."""
    cdef Py_ssize_t slot, found = -1, total = min(count, entries.shape[0] // entry_bytes)
    cdef int64_t before = -1, key
    if total <= 0:
        return -1
    with nogil:
        for slot in range(total):
            key = key_at(&entries[0], slot, entry_bytes, wide)
            if key <= before:
                found = slot
                break
            before = key
    return found


def find_batch_header(const uint8_t[:] piece, int64_t offset, int64_t timestamp, int64_t floor = 0):
    """Walks the batches of a piece of a segment to the first that reaches at least `offset`, and whose largest
    timestamp is at least `timestamp`.

    Returns (position in the piece, size, base offset, last offset, largest timestamp). Size 0: the walk left the piece,
    and the position is that of the next header. Size -1: the bytes there are not a batch, or its offset is out of
    order: the first must not be below `floor`, and each of the others must be behind the one before it.
    """
    cdef Py_ssize_t position = 0, total = piece.shape[0]
    cdef int64_t base_offset = -1, last_offset = -1, largest = -1
    cdef int32_t length, delta
    cdef Py_ssize_t size = 0
    cdef const uint8_t* at
    if total < HEADER_BYTES:
        return 0, 0, -1, -1, -1
    with nogil:
        while position + HEADER_BYTES <= total:
            at = &piece[position]
            length = read_int32(at + 8)
            delta = read_int32(at + 23)
            if at[16] != 2 or length < HEADER_BYTES - LENGTH_PREFIX_BYTES or delta < 0:
                size = -1
                break
            base_offset = read_int64(at)
            if base_offset < floor or base_offset > INT64_MAX - delta - 1:
                size = -1
                break
            last_offset = base_offset + delta
            floor = last_offset + 1
            largest = read_int64(at + 35)
            if last_offset >= offset and largest >= timestamp:
                size = length + LENGTH_PREFIX_BYTES
                break
            position += length + LENGTH_PREFIX_BYTES
    return position, size, base_offset, last_offset, largest
