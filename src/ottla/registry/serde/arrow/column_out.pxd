"""The C interface to columns that kernels fill: a tree in an array, each with Arrow's buffers.

A column without nulls has no validity bits: they are made with its first null. Appending functions return 0, or -1
without memory. A column index below zero means that a value is read and dropped; callers check that.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from ottla.records.packed_buffer cimport ottla_copy, ottla_growable, reserve
from ottla.records.record_wire cimport ottla_utf8_step

cdef enum Layout:
    NULLS, BITS, FIXED, BINARY, LIST, STRUCT, CONSTANT

ctypedef struct Column:
    Layout layout
    # FIXED: the size of a value in bytes.
    int32_t width
    # Children follow each other in the array of columns.
    int32_t first_child, child_count
    int64_t rows, nulls
    ottla_growable validity, offsets, data


cdef int append_null(Column* columns, int32_t index) noexcept nogil
cdef int make_validity(Column* column) noexcept nogil
cdef void truncate(Column* columns, int32_t index, int64_t rows) noexcept nogil


cdef inline bint is_utf8(const uint8_t* at, int64_t size) noexcept nogil:
    """Whether bytes may be the value of a text column."""
    cdef const uint8_t* end = at + size
    cdef uint64_t word
    cdef int step
    while end - at >= 8:
        memcpy(&word, at, 8)
        if word & <uint64_t>0x8080808080808080:
            break
        at += 8
    while at < end:
        if at[0] < 0x80:
            at += 1
            continue
        step = ottla_utf8_step(at, end)
        if step < 0:
            return False
        at += step
    return True


cdef inline int set_valid(Column* column) noexcept nogil:
    """Notes that the row about to be added is not null."""
    if column.nulls == 0:
        return 0
    column.validity.size = (column.rows >> 3) + 1
    if reserve(&column.validity, 0, True):
        return -1
    column.validity.data[column.rows >> 3] |= <uint8_t>(1 << (column.rows & 7))
    return 0


cdef inline int append_fixed(Column* column, const void* value) noexcept nogil:
    if set_valid(column) or reserve(&column.data, column.width, False):
        return -1
    memcpy(column.data.data + column.data.size, value, column.width)
    column.data.size += column.width
    column.rows += 1
    return 0


cdef inline int append_int32(Column* column, int32_t value) noexcept nogil:
    if set_valid(column) or reserve(&column.data, 4, False):
        return -1
    (<int32_t*>(column.data.data + column.data.size))[0] = value
    column.data.size += 4
    column.rows += 1
    return 0


cdef inline int append_int64(Column* column, int64_t value) noexcept nogil:
    if set_valid(column) or reserve(&column.data, 8, False):
        return -1
    (<int64_t*>(column.data.data + column.data.size))[0] = value
    column.data.size += 8
    column.rows += 1
    return 0


cdef inline int append_float(Column* column, float value) noexcept nogil:
    if set_valid(column) or reserve(&column.data, 4, False):
        return -1
    (<float*>(column.data.data + column.data.size))[0] = value
    column.data.size += 4
    column.rows += 1
    return 0


cdef inline int append_double(Column* column, double value) noexcept nogil:
    if set_valid(column) or reserve(&column.data, 8, False):
        return -1
    (<double*>(column.data.data + column.data.size))[0] = value
    column.data.size += 8
    column.rows += 1
    return 0


cdef inline int append_bit(Column* column, bint value) noexcept nogil:
    if set_valid(column):
        return -1
    column.data.size = (column.rows >> 3) + 1
    if reserve(&column.data, 0, True):
        return -1
    column.data.data[column.rows >> 3] |= <uint8_t>(value << (column.rows & 7))
    column.rows += 1
    return 0


cdef inline int end_row(Column* column, int64_t end) noexcept nogil:
    """Adds the end of a BINARY or LIST row."""
    if set_valid(column) or reserve(&column.offsets, 8, False):
        return -1
    if column.rows == 0:
        (<int32_t*>column.offsets.data)[0] = 0
        column.offsets.size = 4
    (<int32_t*>(column.offsets.data + column.offsets.size))[0] = <int32_t>end
    column.offsets.size += 4
    column.rows += 1
    return 0


cdef inline int append_binary(Column* column, const uint8_t* value, int64_t size, const uint8_t* end) noexcept nogil:
    """`end` is as far as the source may be read."""
    if reserve(&column.data, size, False):
        return -1
    ottla_copy(column.data.data + column.data.size, value, size, end)
    column.data.size += size
    return end_row(column, <int64_t>column.data.size)


cdef inline int append_struct(Column* column) noexcept nogil:
    """One row more; its children get theirs by themselves."""
    if set_valid(column):
        return -1
    column.rows += 1
    return 0


cdef class ColumnTree:
    cdef Column* columns
    cdef readonly int32_t count
    cdef object _kinds

    cdef object _take(self, int32_t index, int64_t rows)
