# cython: boundscheck=False, wraparound=False, cdivision=True
"""Columns that kernels fill without the GIL, and the Arrow arrays made of them.

A tree of columns is an array: the children of a column follow each other. `column_out.pxd` has the functions that
append; a row that turns out to be bad is taken back with `truncate`, which finds the length of each child from the
offsets of its parent. The memory is handed to Arrow without a copy.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

import pyarrow as pa

from ottla.records.packed_buffer cimport give_back, hand_over, ottla_growable, reserve


cdef int make_validity(Column* column) noexcept nogil:
    """Validity bits for a column that had none: all rows so far are valid."""
    cdef int64_t whole = column.rows >> 3
    column.validity.size = whole + 1
    if reserve(&column.validity, 0, True):
        return -1
    memset(column.validity.data, 0xFF, whole)
    column.validity.data[whole] = <uint8_t>((1 << (column.rows & 7)) - 1)
    return 0


cdef int append_null(Column* columns, int32_t index) noexcept nogil:
    """A null, and one for each column below a struct; their values are zero."""
    cdef Column* column = columns + index
    cdef int32_t child
    if column.layout == NULLS or column.layout == CONSTANT:
        column.rows += 1
        return 0
    if column.nulls == 0:
        if make_validity(column):
            return -1
    else:
        column.validity.size = (column.rows >> 3) + 1
        if reserve(&column.validity, 0, True):
            return -1
    column.nulls += 1
    if column.layout == BITS:
        column.data.size = (column.rows >> 3) + 1
        if reserve(&column.data, 0, True):
            return -1
    elif column.layout == FIXED:
        if reserve(&column.data, column.width, False):
            return -1
        memset(column.data.data + column.data.size, 0, column.width)
        column.data.size += column.width
    elif column.layout == STRUCT:
        for child in range(column.first_child, column.first_child + column.child_count):
            if append_null(columns, child):
                return -1
    else:
        if reserve(&column.offsets, 8, False):
            return -1
        if column.rows == 0:
            (<int32_t*>column.offsets.data)[0] = 0
            column.offsets.size = 4
        (<int32_t*>column.offsets.data)[column.rows + 1] = (<int32_t*>column.offsets.data)[column.rows]
        column.offsets.size += 4
    column.rows += 1
    return 0


cdef void _truncate_bits(ottla_growable* bits, int64_t rows) noexcept nogil:
    """Clears the bits from `rows` on: bits are set with `or`."""
    cdef size_t whole = rows >> 3
    if bits.data == NULL or bits.size <= whole:
        return
    bits.data[whole] &= <uint8_t>((1 << (rows & 7)) - 1)
    memset(bits.data + whole + 1, 0, bits.size - whole - 1)
    bits.size = whole + 1


cdef void truncate(Column* columns, int32_t index, int64_t rows) noexcept nogil:
    """Back to that many rows, below it too: columns below a row that is not complete may have more than their parent."""
    cdef Column* column = columns + index
    cdef int64_t row, end = 0
    cdef int32_t child
    if column.rows > rows:
        if column.nulls:
            for row in range(rows, column.rows):
                column.nulls -= not (column.validity.data[row >> 3] >> (row & 7)) & 1
            _truncate_bits(&column.validity, rows)
        if column.layout == BITS:
            _truncate_bits(&column.data, rows)
        elif column.layout == FIXED:
            column.data.size = rows * column.width
        elif column.layout == BINARY or column.layout == LIST:
            column.offsets.size = 4 * (rows + 1)
        column.rows = rows
    if column.layout == STRUCT:
        for child in range(column.first_child, column.first_child + column.child_count):
            truncate(columns, child, rows)
    elif column.layout == BINARY or column.layout == LIST:
        if column.offsets.data != NULL:
            end = (<int32_t*>column.offsets.data)[rows]
        if column.layout == LIST:
            truncate(columns, column.first_child, end)
        else:
            column.data.size = end


@cython.final
cdef class ColumnTree:
    def __cinit__(self, object kinds):
        cdef int32_t index
        self._kinds = kinds
        self.count = len(kinds)
        self.columns = <Column*>calloc(max(self.count, 1), sizeof(Column))
        if self.columns == NULL:
            raise MemoryError(f"no room for {self.count} columns")
        for index, (_, layout, width, first_child, child_count, _) in enumerate(kinds):
            self.columns[index].layout = layout
            self.columns[index].width = width
            self.columns[index].first_child = first_child
            self.columns[index].child_count = child_count

    def __dealloc__(self):
        cdef int32_t index
        if self.columns == NULL:
            return
        for index in range(self.count):
            give_back(&self.columns[index].validity)
            give_back(&self.columns[index].offsets)
            give_back(&self.columns[index].data)
        free(self.columns)

    def take(self, int32_t index = 0):
        return self._take(index, self.columns[index].rows)

    cdef object _take(self, int32_t index, int64_t rows):
        """`rows` is what the parent has: a constant does not count its own."""
        cdef Column* column = self.columns + index
        cdef int32_t child
        kind = self._kinds[index][0]
        nulls = column.nulls
        if column.layout == NULLS:
            return pa.nulls(rows, kind)
        if column.layout == CONSTANT:
            return pa.repeat(self._kinds[index][5], rows)
        validity = pa.py_buffer(hand_over(&column.validity)) if nulls else None
        children = [
            self._take(child, rows if column.layout == STRUCT else self.columns[child].rows)
            for child in range(column.first_child, column.first_child + column.child_count)
        ]
        if column.layout == STRUCT:
            return pa.Array.from_buffers(kind, rows, [validity], nulls, children=children)
        symbols = self._kinds[index][5]
        if column.layout == FIXED and symbols is not None:
            numbers = [validity, pa.py_buffer(hand_over(&column.data))]
            return symbols.take(pa.Array.from_buffers(pa.int32(), rows, numbers, nulls))
        if column.layout in (BITS, FIXED):
            return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(hand_over(&column.data))], nulls)
        if rows == 0:
            if reserve(&column.offsets, 4, True):
                raise MemoryError("no room for an empty column")
            column.offsets.size = 4
        offsets = pa.py_buffer(hand_over(&column.offsets))
        if column.layout == LIST:
            return pa.Array.from_buffers(kind, rows, [validity, offsets], nulls, children=children)
        return pa.Array.from_buffers(kind, rows, [validity, offsets, pa.py_buffer(hand_over(&column.data))], nulls)
