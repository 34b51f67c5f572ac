# cython: boundscheck=False, wraparound=False, cdivision=True
"""Avro values to columns: runs the instructions of `avro_plan.py` over a block of values, without the GIL.

Each value is read once, in the order of the writer's schema; what the reader does not want is skipped. A value must
end with its last byte. A bad value becomes a null row, and the others are not disturbed: its columns are cut back.
Counts and lengths are checked against the bytes that are there before any memory is taken for them.
"""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from ottla.model.errors import MisuseError
from ottla.registry.serde.arrow.column_out cimport (
    Column, ColumnTree, append_binary, append_bit, append_double, append_fixed, append_float, append_int32,
    append_int64, append_null, append_struct, end_row, is_utf8, truncate,
)

# The kinds of instructions; `avro_plan.py` has the same numbers.
cdef enum Code:
    NULL_VALUE, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, TEXT, FIXED_BYTES, ENUM, ARRAY, MAP, RECORD, UNION
    DECIMAL_BYTES, DECIMAL_FIXED, REFUSE

# The types that a number may be promoted to.
cdef enum Number:
    AS_INT32, AS_INT64, AS_FLOAT, AS_DOUBLE

cdef enum:
    # Deeper than any schema: only a recursive type that is skipped can be nested like that.
    DEPTH_MAX = 1000

# Why a value is bad; `REASONS` has the words.
cdef enum Outcome:
    GOOD, CUT_OFF, TRAILING, BAD_NUMBER, BAD_LENGTH, BAD_TEXT, BAD_BRANCH, BAD_SYMBOL, BAD_BOOLEAN, BAD_DECIMAL
    REFUSED, TOO_DEEP, NO_MEMORY

REASONS = (
    "",
    "the value ends too early",
    "bytes are left over after the value",
    "a number has more bits than its type",
    "a length or a count is negative, or larger than the value",
    "a string is not valid UTF-8",
    "a union has no branch of that number",
    "an enum has no symbol of that number, or the reader's schema does not have it",
    "a boolean is neither 0 nor 1",
    "a decimal is too large for its column",
    "the reader's schema has no type for this branch of a union",
    "the value is nested too deeply",
)

cdef struct Instruction:
    int32_t code, column, a, b, first, count

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    const uint8_t* block_end
    const Instruction* program
    const int32_t* branches
    Column* columns
    int depth


cdef inline Outcome _varint(Reader* reader, int64_t* value) noexcept nogil:
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef uint8_t byte
    while reader.at < reader.end:
        byte = reader.at[0]
        reader.at += 1
        if shift == 63 and byte > 1:
            return BAD_NUMBER
        found |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>(found >> 1) ^ -<int64_t>(found & 1)
            return GOOD
        shift += 7
        if shift > 63:
            return BAD_NUMBER
    return CUT_OFF


cdef inline Outcome _length(Reader* reader, int64_t* size) noexcept nogil:
    """The length of bytes, all of which are there."""
    cdef Outcome outcome = _varint(reader, size)
    if outcome == GOOD and (size[0] < 0 or size[0] > reader.end - reader.at):
        return BAD_LENGTH
    return outcome


cdef inline Outcome _number(Reader* reader, Column* column, int32_t target, int64_t value) noexcept nogil:
    cdef int bad
    if target == AS_INT32:
        bad = append_int32(column, <int32_t>value)
    elif target == AS_INT64:
        bad = append_int64(column, value)
    elif target == AS_FLOAT:
        bad = append_float(column, <float>value)
    else:
        bad = append_double(column, <double>value)
    return NO_MEMORY if bad else GOOD


cdef Outcome _decimal(Column* column, const uint8_t* at, int64_t size) noexcept nogil:
    """A big-endian number in two's complement of at most 16 significant bytes, as Arrow's little-endian one."""
    cdef uint8_t value[16]
    cdef uint8_t sign = 0xFF if size > 0 and at[0] & 0x80 else 0
    cdef int64_t index
    while size > 16 and at[0] == sign and (at[1] & 0x80) == (sign & 0x80):
        at += 1
        size -= 1
    if size > 16:
        return BAD_DECIMAL
    memset(value, sign, 16)
    for index in range(size):
        value[index] = at[size - 1 - index]
    return NO_MEMORY if append_fixed(column, value) else GOOD


cdef Outcome _items(Reader* reader, const Instruction* step) noexcept nogil:
    """The blocks of an array or a map."""
    cdef int64_t count, size, rows
    cdef Outcome outcome
    cdef Column* column = reader.columns + step.column
    cdef bint is_kept = step.column >= 0
    while True:
        outcome = _varint(reader, &count)
        if outcome != GOOD:
            return outcome
        if count == 0:
            break
        if count < 0:
            if count == INT64_MIN:
                return BAD_LENGTH
            count = -count
            outcome = _length(reader, &size)
            if outcome != GOOD:
                return outcome
            if not is_kept:
                reader.at += size
                continue
        # Every item takes at least one byte: `avro_plan.py` sees to it.
        if count > reader.end - reader.at:
            return BAD_LENGTH
        while count:
            if step.code == MAP:
                outcome = _key(reader, step)
                if outcome != GOOD:
                    return outcome
            outcome = _read(reader, step.first)
            if outcome != GOOD:
                return outcome
            count -= 1
    if is_kept:
        rows = reader.columns[column.first_child].rows
        if rows > INT32_MAX or end_row(column, rows):
            return NO_MEMORY
    return GOOD


cdef Outcome _key(Reader* reader, const Instruction* step) noexcept nogil:
    """The key of a map's entry, and the entry itself."""
    cdef int64_t size
    cdef Outcome outcome = _length(reader, &size)
    if outcome != GOOD:
        return outcome
    if step.column >= 0:
        if not is_utf8(reader.at, size):
            return BAD_TEXT
        if append_struct(reader.columns + step.a):
            return NO_MEMORY
        if append_binary(reader.columns + step.b, reader.at, size, reader.block_end):
            return NO_MEMORY
    reader.at += size
    return GOOD


cdef Outcome _read(Reader* reader, int32_t index) noexcept nogil:
    """One value by the instruction of that index."""
    cdef Outcome outcome
    if reader.depth == DEPTH_MAX:
        return TOO_DEEP
    reader.depth += 1
    outcome = _read_one(reader, index)
    reader.depth -= 1
    return outcome


cdef Outcome _read_one(Reader* reader, int32_t index) noexcept nogil:
    cdef const Instruction* step = reader.program + index
    cdef Column* column = reader.columns + step.column
    cdef bint is_kept = step.column >= 0
    cdef int64_t value = 0
    cdef Outcome outcome
    cdef float single
    cdef double double_
    cdef int32_t branch
    cdef int bad = 0
    if step.code == RECORD:
        for branch in range(step.first, step.first + step.count):
            outcome = _read(reader, reader.branches[branch])
            if outcome != GOOD:
                return outcome
        bad = is_kept and append_struct(column)
    elif step.code == INT or step.code == LONG:
        outcome = _varint(reader, &value)
        if outcome != GOOD:
            return outcome
        if step.code == INT and (value < INT32_MIN or value > INT32_MAX):
            return BAD_NUMBER
        return _number(reader, column, step.a, value) if is_kept else GOOD
    elif step.code == BYTES or step.code == TEXT:
        outcome = _length(reader, &value)
        if outcome != GOOD:
            return outcome
        if is_kept:
            if step.code == TEXT and not is_utf8(reader.at, value):
                return BAD_TEXT
            bad = append_binary(column, reader.at, value, reader.block_end)
        reader.at += value
    elif step.code == UNION:
        outcome = _varint(reader, &value)
        if outcome != GOOD:
            return outcome
        if value < 0 or value >= step.count:
            return BAD_BRANCH
        return _read(reader, reader.branches[step.first + value])
    elif step.code == NULL_VALUE:
        bad = is_kept and append_null(reader.columns, step.column)
    elif step.code == BOOLEAN:
        if reader.at == reader.end:
            return CUT_OFF
        if reader.at[0] > 1:
            return BAD_BOOLEAN
        bad = is_kept and append_bit(column, reader.at[0])
        reader.at += 1
    elif step.code == FLOAT:
        if reader.end - reader.at < 4:
            return CUT_OFF
        memcpy(&single, reader.at, 4)
        reader.at += 4
        if is_kept:
            bad = append_float(column, single) if step.a == AS_FLOAT else append_double(column, single)
    elif step.code == DOUBLE:
        if reader.end - reader.at < 8:
            return CUT_OFF
        memcpy(&double_, reader.at, 8)
        reader.at += 8
        bad = is_kept and append_double(column, double_)
    elif step.code == ENUM:
        outcome = _varint(reader, &value)
        if outcome != GOOD:
            return outcome
        if value < 0 or value >= step.count:
            return BAD_SYMBOL
        if is_kept:
            branch = reader.branches[step.first + value]
            if branch < 0:
                return BAD_SYMBOL
            bad = append_int32(column, branch)
    elif step.code == ARRAY or step.code == MAP:
        return _items(reader, step)
    elif step.code == FIXED_BYTES or step.code == DECIMAL_FIXED:
        if reader.end - reader.at < step.a:
            return CUT_OFF
        if is_kept:
            if step.code == DECIMAL_FIXED:
                outcome = _decimal(column, reader.at, step.a)
                if outcome != GOOD:
                    return outcome
            else:
                bad = append_binary(column, reader.at, step.a, reader.block_end)
        reader.at += step.a
    elif step.code == DECIMAL_BYTES:
        outcome = _length(reader, &value)
        if outcome == GOOD and is_kept:
            outcome = _decimal(column, reader.at, value)
        if outcome != GOOD:
            return outcome
        reader.at += value
    else:
        return REFUSED
    return NO_MEMORY if bad else GOOD


def decode(bytes program not None, bytes branches not None, ColumnTree tree not None, values not None, int32_t skip=0):
    cdef Py_buffer data, offsets
    cdef Reader reader
    cdef int64_t first = values.offset, rows = len(values), row
    cdef const int32_t* ends
    cdef Outcome outcome
    bad = []
    if values.null_count:
        raise MisuseError("null values are not decoded")
    if rows == 0:
        return bad
    _, offsets_buffer, data_buffer = values.buffers()
    PyObject_GetBuffer(offsets_buffer, &offsets, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data_buffer if data_buffer is not None else b"", &data, PyBUF_SIMPLE)
        try:
            ends = <const int32_t*>offsets.buf + first
            reader.program = <const Instruction*><const char*>program
            reader.branches = <const int32_t*><const char*>branches
            reader.columns = tree.columns
            reader.block_end = <const uint8_t*>data.buf + ends[rows]
            row = 0
            while row < rows:
                with nogil:
                    while row < rows:
                        reader.at = <const uint8_t*>data.buf + ends[row]
                        reader.end = <const uint8_t*>data.buf + ends[row + 1]
                        reader.depth = 0
                        if reader.end - reader.at < skip:
                            outcome = CUT_OFF
                            break
                        reader.at += skip
                        outcome = _read(&reader, 0)
                        if outcome == GOOD and reader.at != reader.end:
                            outcome = TRAILING
                        if outcome != GOOD:
                            break
                        row += 1
                if row == rows:
                    break
                if outcome == NO_MEMORY:
                    raise MemoryError("no room for the columns of decoded values")
                truncate(tree.columns, 0, row)
                if append_null(tree.columns, 0):
                    raise MemoryError("no room for the columns of decoded values")
                bad.append((row, REASONS[outcome]))
                row += 1
        finally:
            PyBuffer_Release(&data)
    finally:
        PyBuffer_Release(&offsets)
    return bad
