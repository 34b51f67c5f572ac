# cython: boundscheck=False, wraparound=False, cdivision=True
"""Columns to Avro values: runs the instructions of `avro_rows.py` over the rows of a table, without the GIL.

Each instruction has a column; Arrow's buffers are read in place. The values of all rows are written behind each other,
each after the same prefix (the id of the schema). A row that does not fit the schema ends the work and is named.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from ottla.records.packed_buffer cimport give_back, hand_over, ottla_growable, reserve

# The kinds of instructions; `avro_rows.py` has the same numbers.
cdef enum Code:
    NULL_VALUE, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, FIXED_BYTES, ENUM, ARRAY, MAP, RECORD, NULLABLE
    DECIMAL_BYTES, DECIMAL_FIXED

# Why a row is bad; `PROBLEMS` has the words.
cdef enum Outcome:
    GOOD, IS_NULL, BAD_SYMBOL, BAD_SIZE, NO_MEMORY

PROBLEMS = (
    "",
    "is null, which the schema does not permit",
    "is not a symbol of the enum",
    "does not have the size of the fixed type",
)

cdef struct Source:
    const uint8_t* validity
    const uint8_t* data
    const int32_t* ends
    int64_t offset

cdef struct Instruction:
    int32_t code, column, a, b, first, count

cdef struct Writer:
    const Instruction* program
    const int32_t* branches
    const Source* sources
    ottla_growable out
    int32_t failed


cdef inline bint _is_null(const Source* source, int64_t row) noexcept nogil:
    cdef int64_t at = row + source.offset
    return source.validity != NULL and not (source.validity[at >> 3] >> (at & 7)) & 1


cdef inline Outcome _put_varint(Writer* writer, int64_t value) noexcept nogil:
    cdef uint64_t left = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    if reserve(&writer.out, 10, False):
        return NO_MEMORY
    while left >= 0x80:
        writer.out.data[writer.out.size] = <uint8_t>(left | 0x80)
        writer.out.size += 1
        left >>= 7
    writer.out.data[writer.out.size] = <uint8_t>left
    writer.out.size += 1
    return GOOD


cdef inline Outcome _put(Writer* writer, const void* bytes, int64_t size) noexcept nogil:
    if reserve(&writer.out, size, False):
        return NO_MEMORY
    memcpy(writer.out.data + writer.out.size, bytes, size)
    writer.out.size += size
    return GOOD


cdef Outcome _put_decimal(Writer* writer, const uint8_t* value, int32_t size) noexcept nogil:
    """Arrow's little-endian number of 16 bytes as a big-endian one: of that size, or the shortest with its length."""
    cdef uint8_t reversed_[16]
    cdef uint8_t sign = 0xFF if value[15] & 0x80 else 0
    cdef int32_t index, start = 0
    for index in range(16):
        reversed_[index] = value[15 - index]
    while start < 15 and reversed_[start] == sign and (reversed_[start + 1] & 0x80) == (sign & 0x80):
        start += 1
    if size == 0:
        if _put_varint(writer, 16 - start) != GOOD:
            return NO_MEMORY
        return _put(writer, reversed_ + start, 16 - start)
    if 16 - start > size:
        return BAD_SIZE
    for index in range(size - 16):
        if _put(writer, &sign, 1) != GOOD:
            return NO_MEMORY
    index = 16 - size if size < 16 else 0
    return _put(writer, reversed_ + index, 16 - index)


cdef Outcome _put_items(Writer* writer, const Instruction* step, int64_t row) noexcept nogil:
    """An array or a map as one block."""
    cdef const Source* source = writer.sources + step.column
    cdef int64_t item, start = source.ends[row + source.offset], end = source.ends[row + source.offset + 1]
    cdef Outcome outcome
    if end > start:
        outcome = _put_varint(writer, end - start)
        if outcome != GOOD:
            return outcome
        for item in range(start, end):
            if step.code == MAP:
                outcome = _write(writer, step.a, item)
                if outcome != GOOD:
                    return outcome
            outcome = _write(writer, step.first, item)
            if outcome != GOOD:
                return outcome
    return _put_varint(writer, 0)


cdef Outcome _write(Writer* writer, int32_t index, int64_t row) noexcept nogil:
    """The value of a row by the instruction of that index."""
    cdef const Instruction* step = writer.program + index
    cdef const Source* source = writer.sources + step.column
    cdef int64_t at = row + source.offset, size
    cdef int32_t branch
    cdef uint8_t bit
    cdef Outcome outcome = GOOD
    if step.code == NULLABLE:
        if _is_null(source, row):
            return _put_varint(writer, step.a)
        outcome = _put_varint(writer, step.b)
        return _write(writer, step.first, row) if outcome == GOOD else outcome
    if step.code == NULL_VALUE:
        return GOOD
    if _is_null(source, row):
        outcome = BAD_SYMBOL if step.code == ENUM and step.a else IS_NULL
    elif step.code == RECORD:
        for branch in range(step.first, step.first + step.count):
            outcome = _write(writer, writer.branches[branch], row)
            if outcome != GOOD:
                return outcome
        return GOOD
    elif step.code == INT or step.code == ENUM:
        return _put_varint(writer, (<const int32_t*>source.data)[at])
    elif step.code == LONG:
        return _put_varint(writer, (<const int64_t*>source.data)[at])
    elif step.code == BYTES:
        size = source.ends[at + 1] - source.ends[at]
        outcome = _put_varint(writer, size)
        return _put(writer, source.data + source.ends[at], size) if outcome == GOOD else outcome
    elif step.code == FLOAT:
        return _put(writer, source.data + 4 * at, 4)
    elif step.code == DOUBLE:
        return _put(writer, source.data + 8 * at, 8)
    elif step.code == BOOLEAN:
        bit = (source.data[at >> 3] >> (at & 7)) & 1
        return _put(writer, &bit, 1)
    elif step.code == ARRAY or step.code == MAP:
        return _put_items(writer, step, row)
    elif step.code == DECIMAL_BYTES or step.code == DECIMAL_FIXED:
        outcome = _put_decimal(writer, source.data + 16 * at, step.a)
    else:
        size = source.ends[at + 1] - source.ends[at]
        if size == step.a:
            return _put(writer, source.data + source.ends[at], size)
        outcome = BAD_SIZE
    if outcome != GOOD and outcome != NO_MEMORY:
        writer.failed = index
    return outcome


def encode(bytes program not None, bytes branches not None, list columns not None, int64_t rows, bytes prefix not None):
    cdef Writer writer
    cdef ottla_growable ends
    cdef Source* sources
    cdef int64_t row = 0
    cdef Outcome outcome = GOOD
    cdef const char* start = prefix
    cdef int64_t prefix_size = len(prefix)
    writer.out.data = ends.data = NULL
    writer.out.size = writer.out.room = ends.size = ends.room = 0
    writer.failed = 0
    sources = <Source*>calloc(max(len(columns), 1), sizeof(Source))
    if sources == NULL:
        raise MemoryError("no room for the columns")
    try:
        for index, (validity, data, offsets, offset) in enumerate(columns):
            sources[index].validity = <const uint8_t*><uintptr_t>validity
            sources[index].data = <const uint8_t*><uintptr_t>data
            sources[index].ends = <const int32_t*><uintptr_t>offsets
            sources[index].offset = offset
        writer.program = <const Instruction*><const char*>program
        writer.branches = <const int32_t*><const char*>branches
        writer.sources = sources
        if reserve(&ends, 4 * (rows + 1), False):
            raise MemoryError("no room for the values")
        with nogil:
            (<int32_t*>ends.data)[0] = 0
            while row < rows:
                if prefix_size and _put(&writer, start, prefix_size) != GOOD:
                    outcome = NO_MEMORY
                    break
                outcome = _write(&writer, 0, row)
                if outcome == GOOD and writer.out.size > INT32_MAX:
                    outcome = NO_MEMORY
                if outcome != GOOD:
                    break
                row += 1
                (<int32_t*>ends.data)[row] = <int32_t>writer.out.size
            ends.size = 4 * (rows + 1)
        if outcome == NO_MEMORY:
            raise MemoryError(f"no room for the values of {rows} rows; use smaller tables")
        if outcome != GOOD:
            return row, writer.failed, PROBLEMS[outcome]
        return hand_over(&ends), hand_over(&writer.out)
    finally:
        free(sources)
        give_back(&ends)
        give_back(&writer.out)
