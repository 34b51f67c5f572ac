# cython: boundscheck=False, wraparound=False, cdivision=True
"""Columns to Protobuf values: runs the tables of `protobuf_rows.py` over the rows of a table, without the GIL.

Arrow's buffers are read in place. Fields are written by their numbers, as the Protobuf runtimes do. The values of all
rows follow each other, each after the same prefix (the id of the schema). A row that does not fit the schema ends the
work and is named.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset

from ottla.records.packed_buffer cimport give_back, hand_over, ottla_growable, reserve

# How a field is encoded; `protobuf_rows.py` has the same numbers, here and below.
cdef enum Kind:
    INT32, INT64, SINT32, SINT64, FIXED32, FIXED64, BOOL, ENUM, TEXT, BYTES, MESSAGE, GROUP, UINT32

cdef enum Flag:
    REPEATED = 1
    MAP = 2
    # Written also if it has its default.
    PRESENCE = 4
    PACKED = 8
    REQUIRED = 16

cdef enum Shape:
    FIELDS, TIMESTAMP, DURATION

cdef enum:
    VARINT_WIRE = 0, FIXED64_WIRE = 1, LENGTH_WIRE = 2, START_WIRE = 3, END_WIRE = 4, FIXED32_WIRE = 5

# Why a row is bad; `PROBLEMS` has the words.
cdef enum Outcome:
    GOOD, IS_NULL, NULL_ELEMENT, TWO_MEMBERS, NO_MEMORY

PROBLEMS = (
    "",
    "is null, which the schema does not permit",
    "has a null element, which Protobuf does not have",
    "is set, and so is another member of its oneof",
)

cdef struct Source:
    const uint8_t* validity
    const uint8_t* data
    const int32_t* ends
    int64_t offset

# `column` has the values; of a repeated field, `list_column` has the lists.
cdef struct Field:
    int32_t number, kind, column, list_column, message, oneof, flags

cdef struct Message:
    # `units` are those of a second in the column of a time.
    int32_t shape, column, first_field, field_count, units

cdef struct Writer:
    const Message* messages
    const Field* fields
    const Source* sources
    ottla_growable out
    # The number of the message in which a member of each oneof was written last.
    int64_t* oneofs
    int64_t message_number
    int32_t failed


cdef inline bint _is_null(const Source* source, int64_t row) noexcept nogil:
    cdef int64_t at = row + source.offset
    return source.validity != NULL and not (source.validity[at >> 3] >> (at & 7)) & 1


cdef inline Outcome _put_varint(Writer* writer, uint64_t value) noexcept nogil:
    if reserve(&writer.out, 10, False):
        return NO_MEMORY
    while value >= 0x80:
        writer.out.data[writer.out.size] = <uint8_t>(value | 0x80)
        writer.out.size += 1
        value >>= 7
    writer.out.data[writer.out.size] = <uint8_t>value
    writer.out.size += 1
    return GOOD


cdef inline Outcome _put(Writer* writer, const void* bytes, int64_t size) noexcept nogil:
    if size == 0:
        return GOOD
    if reserve(&writer.out, size, False):
        return NO_MEMORY
    memcpy(writer.out.data + writer.out.size, bytes, size)
    writer.out.size += size
    return GOOD


cdef inline Outcome _put_tag(Writer* writer, const Field* field, int32_t wire) noexcept nogil:
    return _put_varint(writer, (<uint64_t>field.number << 3) | wire)


cdef Outcome _end_length(Writer* writer, size_t start) noexcept nogil:
    """Writes the length of what follows `start`, where one byte was left for it."""
    cdef size_t size = writer.out.size - start - 1
    cdef size_t left = size >> 7
    cdef int more = 0
    while left:
        more += 1
        left >>= 7
    if more:
        if reserve(&writer.out, more, False):
            return NO_MEMORY
        memmove(writer.out.data + start + 1 + more, writer.out.data + start + 1, size)
    writer.out.size = start
    _put_varint(writer, size)
    writer.out.size += size
    return GOOD


cdef inline int32_t _wire_of(int32_t kind) noexcept nogil:
    if kind == FIXED32:
        return FIXED32_WIRE
    if kind == FIXED64:
        return FIXED64_WIRE
    if kind == TEXT or kind == BYTES or kind == MESSAGE:
        return LENGTH_WIRE
    return START_WIRE if kind == GROUP else VARINT_WIRE


cdef inline uint64_t _number(const Source* source, int32_t kind, int64_t row) noexcept nogil:
    """A number as its varint, or the bits of one of fixed size."""
    cdef int64_t at = row + source.offset, value
    if kind == INT32 or kind == ENUM:
        return <uint64_t><int64_t>(<const int32_t*>source.data)[at]
    if kind == INT64 or kind == FIXED64:
        return (<const uint64_t*>source.data)[at]
    if kind == UINT32 or kind == FIXED32:
        return (<const uint32_t*>source.data)[at]
    if kind == BOOL:
        return (source.data[at >> 3] >> (at & 7)) & 1
    value = (<const int32_t*>source.data)[at] if kind == SINT32 else (<const int64_t*>source.data)[at]
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline Outcome _put_number(Writer* writer, int32_t kind, uint64_t value) noexcept nogil:
    if kind == FIXED32:
        return _put(writer, &value, 4)
    if kind == FIXED64:
        return _put(writer, &value, 8)
    return _put_varint(writer, value)


cdef Outcome _put_value(Writer* writer, const Field* field, int64_t row, bint is_always) noexcept nogil:
    """Tag and value of a row that is not null; nothing for a default, unless it is always written."""
    cdef const Source* source = writer.sources + field.column
    cdef int64_t at = row + source.offset, size
    cdef size_t start
    cdef uint64_t value
    cdef Outcome outcome
    if field.kind < TEXT or field.kind == UINT32:
        value = _number(source, field.kind, row)
        if value == 0 and not is_always:
            return GOOD
        outcome = _put_tag(writer, field, _wire_of(field.kind))
        return _put_number(writer, field.kind, value) if outcome == GOOD else outcome
    if field.kind == TEXT or field.kind == BYTES:
        size = source.ends[at + 1] - source.ends[at]
        if size == 0 and not is_always:
            return GOOD
        if _put_tag(writer, field, LENGTH_WIRE) != GOOD or _put_varint(writer, size) != GOOD:
            return NO_MEMORY
        return _put(writer, source.data + source.ends[at], size)
    if _put_tag(writer, field, _wire_of(field.kind)) != GOOD:
        return NO_MEMORY
    if field.kind == GROUP:
        outcome = _put_message(writer, field.message, row)
        return _put_tag(writer, field, END_WIRE) if outcome == GOOD else outcome
    start = writer.out.size
    if reserve(&writer.out, 1, False):
        return NO_MEMORY
    writer.out.size += 1
    outcome = _put_message(writer, field.message, row)
    return _end_length(writer, start) if outcome == GOOD else outcome


cdef Outcome _put_list(Writer* writer, const Field* field, int64_t row) noexcept nogil:
    cdef const Source* lists = writer.sources + field.list_column
    cdef const Source* source = writer.sources + field.column
    cdef int64_t item, first = lists.ends[row + lists.offset], end = lists.ends[row + lists.offset + 1]
    cdef size_t start
    cdef Outcome outcome
    if first == end:
        return GOOD
    if field.flags & PACKED:
        if _put_tag(writer, field, LENGTH_WIRE) != GOOD or reserve(&writer.out, 1, False):
            return NO_MEMORY
        start = writer.out.size
        writer.out.size += 1
        for item in range(first, end):
            if _is_null(source, item):
                return NULL_ELEMENT
            if _put_number(writer, field.kind, _number(source, field.kind, item)) != GOOD:
                return NO_MEMORY
        return _end_length(writer, start)
    for item in range(first, end):
        # Entries of maps have no column of their own: key and value are checked when they are written.
        if not field.flags & MAP and _is_null(source, item):
            return NULL_ELEMENT
        outcome = _put_value(writer, field, item, True)
        if outcome != GOOD:
            return outcome
    return GOOD


cdef Outcome _put_time(Writer* writer, const Message* message, int64_t row) noexcept nogil:
    cdef const Source* source = writer.sources + message.column
    cdef int64_t moment = (<const int64_t*>source.data)[row + source.offset]
    cdef int64_t seconds = moment // message.units, rest = moment % message.units
    if message.shape == TIMESTAMP and rest < 0:
        # C rounds towards zero, as the seconds of a Duration do; those of a Timestamp are rounded down.
        seconds -= 1
        rest += message.units
    if seconds and (_put_varint(writer, (1 << 3) | VARINT_WIRE) != GOOD or _put_varint(writer, seconds) != GOOD):
        return NO_MEMORY
    rest *= 1000000000 // message.units
    if rest and (_put_varint(writer, (2 << 3) | VARINT_WIRE) != GOOD or _put_varint(writer, rest) != GOOD):
        return NO_MEMORY
    return GOOD


cdef Outcome _put_message(Writer* writer, int32_t index, int64_t row) noexcept nogil:
    """The fields of a message, without its length."""
    cdef const Message* message = writer.messages + index
    cdef const Field* field
    cdef int32_t place
    cdef int64_t number
    cdef Outcome outcome = GOOD
    if message.shape != FIELDS:
        return _put_time(writer, message, row)
    writer.message_number += 1
    number = writer.message_number
    for place in range(message.first_field, message.first_field + message.field_count):
        field = writer.fields + place
        if _is_null(writer.sources + (field.list_column if field.flags & REPEATED else field.column), row):
            outcome = IS_NULL if field.flags & REQUIRED else GOOD
        else:
            if field.oneof >= 0:
                if writer.oneofs[field.oneof] == number:
                    outcome = TWO_MEMBERS
                writer.oneofs[field.oneof] = number
            if outcome == GOOD:
                if field.flags & REPEATED:
                    outcome = _put_list(writer, field, row)
                else:
                    outcome = _put_value(writer, field, row, (field.flags & PRESENCE) != 0)
        if outcome != GOOD:
            if writer.failed < 0:
                writer.failed = place
            return outcome
    return GOOD


def encode(
    bytes messages not None, bytes fields not None, int32_t oneof_count, list columns not None, int64_t rows,
    bytes prefix not None,
):
    cdef Writer writer
    cdef ottla_growable ends
    cdef Source* sources
    cdef int64_t row = 0
    cdef Outcome outcome = GOOD
    cdef const char* start = prefix
    cdef int64_t prefix_size = len(prefix)
    memset(&writer, 0, sizeof(Writer))
    memset(&ends, 0, sizeof(ottla_growable))
    writer.failed = -1
    sources = <Source*>calloc(len(columns) + 1, sizeof(Source))
    writer.oneofs = <int64_t*>calloc(oneof_count + 1, sizeof(int64_t))
    try:
        if sources == NULL or writer.oneofs == NULL:
            raise MemoryError("no room for the columns")
        for index, (validity, data, offsets, offset) in enumerate(columns):
            sources[index].validity = <const uint8_t*><uintptr_t>validity
            sources[index].data = <const uint8_t*><uintptr_t>data
            sources[index].ends = <const int32_t*><uintptr_t>offsets
            sources[index].offset = offset
        writer.messages = <const Message*><const char*>messages
        writer.fields = <const Field*><const char*>fields
        writer.sources = sources
        if reserve(&ends, 4 * (rows + 1), False):
            raise MemoryError("no room for the values")
        with nogil:
            (<int32_t*>ends.data)[0] = 0
            while row < rows:
                outcome = _put(&writer, start, prefix_size)
                if outcome == GOOD:
                    outcome = _put_message(&writer, 0, row)
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
        free(writer.oneofs)
        give_back(&ends)
        give_back(&writer.out)
