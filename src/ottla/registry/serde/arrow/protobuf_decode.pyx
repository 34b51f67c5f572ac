# cython: boundscheck=False, wraparound=False, cdivision=True
"""Protobuf values to columns: runs the tables of `protobuf_plan.py` over a block of values, without the GIL.

Fields may come in any order and more than once. So each message is read in two steps: `_scan` notes where the fields
are, and `_emit` appends them to the columns. Of a singular field the last value counts, and a message that comes more
than once is the concatenation of its parts; of a map's equal keys the last one counts. Unknown fields, and fields whose
wire type is not that of the schema, are skipped.

A bad value becomes a null row, and the others are not disturbed: its columns are cut back. Lengths are checked against
the bytes that are there before memory is taken for them, and the cells that a value may fill are limited per byte: elements of
two bytes could fill thousands of columns otherwise.
"""

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from ottla.model.errors import MisuseError
from ottla.records.packed_buffer cimport reserve
from ottla.registry.serde.arrow.column_out cimport (
    Column, ColumnTree, append_binary, append_bit, append_int32, append_int64, append_null, append_struct, end_row,
    is_utf8, truncate,
)

# How a field is encoded; `protobuf_plan.py` has the same numbers, here and below.
cdef enum Kind:
    INT32, INT64, SINT32, SINT64, FIXED32, FIXED64, BOOL, ENUM, TEXT, BYTES, MESSAGE, GROUP

cdef enum Flag:
    REPEATED = 1
    MAP = 2
    # A field that is not there is null; without this it has its default.
    PRESENCE = 4
    # Numbers that the enum does not have count as unknown fields.
    CLOSED = 8

cdef enum Shape:
    # A struct; the value of a wrapper, whose column is that of its field; a moment; a span of time.
    STRUCT, WRAPPER, TIMESTAMP, DURATION

cdef enum:
    GROUP_DEPTH_MAX = 100
    CELLS_PER_BYTE = 256
    VARINT_WIRE = 0, FIXED64_WIRE = 1, LENGTH_WIRE = 2, START_WIRE = 3, END_WIRE = 4, FIXED32_WIRE = 5

cdef int64_t TIMESTAMP_SECONDS_MIN = -62135596800
cdef int64_t TIMESTAMP_SECONDS_MAX = 253402300799
cdef int64_t DURATION_SECONDS_MAX = 315576000000

# Why a value is bad; `REASONS` has the words.
cdef enum Outcome:
    GOOD, CUT_OFF, BAD_NUMBER, BAD_LENGTH, BAD_TEXT, BAD_TAG, BAD_GROUP, TOO_DEEP, BAD_TIME, TOO_WIDE, NO_MEMORY

REASONS = (
    "",
    "the value ends too early",
    "a number has more than 64 bits",
    "a length is larger than the value",
    "a string is not valid UTF-8",
    "a field has the number 0, or a wire type that does not exist",
    "a group has no end, or an end has no group",
    "the value is nested too deeply",
    "a Timestamp or a Duration is out of range",
    "the value has too many columns for its size",
)

cdef struct Field:
    int32_t number, kind, column, message, oneof, flags, first_symbol, symbol_count, default_number, weight, list_column

cdef struct Message:
    int32_t shape, column, first_field, field_count, first_oneof, oneof_count, first_place, place_count

cdef struct Symbol:
    int32_t number, start, end

# Where a field was found: the first place, or the last value of a singular scalar; `head` is the chain of the others.
cdef struct Slot:
    int32_t count, head, tail
    bint is_refused
    const uint8_t* at
    uint64_t value

cdef struct Place:
    const uint8_t* at
    uint64_t value
    int32_t next

cdef struct MapKey:
    const uint8_t* at
    uint64_t value
    int32_t index

cdef struct Reader:
    const uint8_t* block_end
    const Message* messages
    const Field* fields
    const int32_t* places
    const Symbol* symbols
    const uint8_t* names
    const uint8_t* names_end
    Column* columns
    Slot* slots
    int32_t* oneofs
    Place* found
    int64_t found_count, found_room
    int64_t cells_left


cdef inline Outcome _varint(const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    cdef uint64_t found = 0
    cdef int shift = 0
    cdef const uint8_t* here = at[0]
    cdef uint8_t byte
    if here < end and here[0] < 0x80:
        value[0] = here[0]
        at[0] = here + 1
        return GOOD
    while here < end:
        byte = here[0]
        here += 1
        found |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = found
            at[0] = here
            return GOOD
        shift += 7
        if shift > 63:
            return BAD_NUMBER
    return CUT_OFF


cdef inline Outcome _tag(const uint8_t** at, const uint8_t* end, int32_t* number, int32_t* wire) noexcept nogil:
    cdef uint64_t tag
    cdef Outcome outcome = _varint(at, end, &tag)
    if outcome != GOOD:
        return outcome
    if tag > UINT32_MAX or tag < 8:
        return BAD_TAG
    number[0] = <int32_t>(tag >> 3)
    wire[0] = <int32_t>(tag & 7)
    return GOOD


cdef inline Outcome _length(const uint8_t** at, const uint8_t* end, uint64_t* size) noexcept nogil:
    cdef Outcome outcome = _varint(at, end, size)
    if outcome == GOOD and size[0] > <uint64_t>(end - at[0]):
        return BAD_LENGTH
    return outcome


cdef Outcome _skip(const uint8_t** at, const uint8_t* end, int32_t number, int32_t wire) noexcept nogil:
    """The value of a field that is not wanted."""
    cdef const uint8_t* content_end
    cdef uint64_t value
    cdef int64_t size
    cdef Outcome outcome
    if wire == VARINT_WIRE:
        return _varint(at, end, &value)
    if wire == LENGTH_WIRE:
        outcome = _length(at, end, &value)
        if outcome == GOOD:
            at[0] += value
        return outcome
    if wire == FIXED32_WIRE or wire == FIXED64_WIRE:
        size = 4 if wire == FIXED32_WIRE else 8
        if end - at[0] < size:
            return CUT_OFF
        at[0] += size
        return GOOD
    if wire == START_WIRE:
        return _skip_group(at, end, number, &content_end)
    return BAD_GROUP if wire == END_WIRE else BAD_TAG


cdef Outcome _skip_group(
    const uint8_t** at, const uint8_t* end, int32_t number, const uint8_t** content_end
) noexcept nogil:
    """The fields of a group and its end tag; `content_end` is where that tag begins."""
    cdef int32_t open_groups[GROUP_DEPTH_MAX]
    cdef int32_t depth = 1, inner, wire
    cdef Outcome outcome
    open_groups[0] = number
    while depth:
        if at[0] == end:
            return BAD_GROUP
        content_end[0] = at[0]
        outcome = _tag(at, end, &inner, &wire)
        if outcome != GOOD:
            return outcome
        if wire == START_WIRE:
            if depth == GROUP_DEPTH_MAX:
                return TOO_DEEP
            open_groups[depth] = inner
            depth += 1
        elif wire == END_WIRE:
            depth -= 1
            if open_groups[depth] != inner:
                return BAD_GROUP
        else:
            outcome = _skip(at, end, inner, wire)
            if outcome != GOOD:
                return outcome
    return GOOD


cdef inline int32_t _find(Reader* reader, const Message* message, int32_t number) noexcept nogil:
    """The index of the field with a number, or -1. Small numbers have a table; the others are searched."""
    cdef int32_t low, high, middle
    if number < message.place_count:
        return reader.places[message.first_place + number]
    low, high = message.first_field, message.first_field + message.field_count
    while low < high:
        middle = (low + high) >> 1
        if reader.fields[middle].number < number:
            low = middle + 1
        else:
            high = middle
    if low < message.first_field + message.field_count and reader.fields[low].number == number:
        return low
    return -1


cdef inline uint64_t _cooked(int32_t kind, uint64_t value) noexcept nogil:
    """The number that a varint means."""
    if kind == SINT32:
        value = <uint32_t>value
        return <uint32_t>((value >> 1) ^ (0 - (value & 1)))
    if kind == SINT64:
        return (value >> 1) ^ (0 - (value & 1))
    if kind == BOOL:
        return value != 0
    return value


cdef const Symbol* _symbol(Reader* reader, const Field* field, int32_t number) noexcept nogil:
    """The symbol of an enum's number, or NULL."""
    cdef const Symbol* symbols = reader.symbols + field.first_symbol
    cdef int32_t low = 0, high = field.symbol_count, middle
    if 0 <= number < high and symbols[number].number == number:
        return symbols + number
    while low < high:
        middle = (low + high) >> 1
        if symbols[middle].number < number:
            low = middle + 1
        else:
            high = middle
    return symbols + low if low < field.symbol_count and symbols[low].number == number else NULL


cdef inline int32_t _wire_of(int32_t kind) noexcept nogil:
    if kind == FIXED32:
        return FIXED32_WIRE
    if kind == FIXED64:
        return FIXED64_WIRE
    if kind == TEXT or kind == BYTES or kind == MESSAGE:
        return LENGTH_WIRE
    return START_WIRE if kind == GROUP else VARINT_WIRE


cdef Outcome _note_more(Reader* reader, Slot* slot, const uint8_t* at, uint64_t value) noexcept nogil:
    """One more place of a field that may have several."""
    cdef Place* grown
    cdef int32_t index
    if reader.found_count == reader.found_room:
        if reader.found_room > INT32_MAX // 2:
            return NO_MEMORY
        grown = <Place*>realloc(reader.found, 2 * (reader.found_room + 32) * sizeof(Place))
        if grown == NULL:
            return NO_MEMORY
        reader.found = grown
        reader.found_room = 2 * (reader.found_room + 32)
    index = <int32_t>reader.found_count
    reader.found[index].at = at
    reader.found[index].value = value
    reader.found[index].next = -1
    reader.found_count += 1
    if slot.head < 0:
        slot.head = index
    else:
        reader.found[slot.tail].next = index
    slot.tail = index
    slot.count += 1
    return GOOD


cdef void _begin(Reader* reader, int32_t index) noexcept nogil:
    """Forgets the fields of the last message of this kind."""
    cdef const Message* message = reader.messages + index
    cdef int32_t each
    for each in range(message.first_field, message.first_field + message.field_count):
        reader.slots[each].count = 0
        reader.slots[each].head = -1
        reader.slots[each].is_refused = False
    for each in range(message.first_oneof, message.first_oneof + message.oneof_count):
        reader.oneofs[each] = -1


cdef Outcome _scan(Reader* reader, int32_t index, const uint8_t* at, const uint8_t* end) noexcept nogil:
    """Notes where the fields of a message are."""
    cdef const Message* message = reader.messages + index
    cdef const Field* field
    cdef Slot* slot
    cdef const uint8_t* start
    cdef const uint8_t* content_end
    cdef uint64_t value
    cdef int32_t number, wire, place, expected = message.first_field
    cdef int32_t fields_end = message.first_field + message.field_count
    cdef Outcome outcome
    while at < end:
        outcome = _tag(&at, end, &number, &wire)
        if outcome != GOOD:
            return outcome
        if expected < fields_end and reader.fields[expected].number == number:
            place = expected
        else:
            place = _find(reader, message, number)
        if place < 0:
            outcome = _skip(&at, end, number, wire)
            if outcome != GOOD:
                return outcome
            continue
        field = reader.fields + place
        slot = reader.slots + place
        expected = place if field.flags & REPEATED else place + 1
        if wire != _wire_of(field.kind):
            if wire != LENGTH_WIRE or not field.flags & REPEATED or field.kind >= TEXT:
                outcome = _skip(&at, end, number, wire)
                if outcome != GOOD:
                    return outcome
                continue
        start = NULL
        if wire == VARINT_WIRE:
            outcome = _varint(&at, end, &value)
            if outcome != GOOD:
                return outcome
            value = _cooked(field.kind, value)
        elif wire == LENGTH_WIRE:
            outcome = _length(&at, end, &value)
            if outcome != GOOD:
                return outcome
            start = at
            at += value
        elif wire == FIXED64_WIRE:
            if end - at < 8:
                return CUT_OFF
            memcpy(&value, at, 8)
            at += 8
        elif wire == FIXED32_WIRE:
            if end - at < 4:
                return CUT_OFF
            value = 0
            memcpy(&value, at, 4)
            at += 4
        else:
            start = at
            outcome = _skip_group(&at, end, number, &content_end)
            if outcome != GOOD:
                return outcome
            value = content_end - start
        if field.flags & CLOSED and start == NULL and _symbol(reader, field, <int32_t>value) == NULL:
            slot.is_refused = True
            continue
        if field.oneof >= 0:
            if reader.oneofs[field.oneof] != place:
                if reader.oneofs[field.oneof] >= 0:
                    reader.slots[reader.oneofs[field.oneof]].count = 0
                    reader.slots[reader.oneofs[field.oneof]].head = -1
                reader.oneofs[field.oneof] = place
        if slot.count and (field.flags & REPEATED or field.kind >= MESSAGE):
            outcome = _note_more(reader, slot, start, value)
            if outcome != GOOD:
                return outcome
        else:
            slot.count = 1
            slot.at = start
            slot.value = value
    return GOOD


cdef Outcome _emit_message(Reader* reader, const Field* field, const Slot* slot) noexcept nogil:
    """A singular message of one part or several, or an empty one of none."""
    cdef int64_t mark = reader.found_count
    cdef int32_t next_ = slot.head
    cdef Outcome outcome = GOOD
    cdef Place part
    _begin(reader, field.message)
    if slot.count:
        outcome = _scan(reader, field.message, slot.at, slot.at + slot.value)
        while outcome == GOOD and next_ >= 0:
            part = reader.found[next_]
            outcome = _scan(reader, field.message, part.at, part.at + part.value)
            next_ = part.next
    if outcome == GOOD:
        outcome = _emit(reader, field.message)
    reader.found_count = mark
    return outcome


cdef Outcome _emit_part(Reader* reader, const Field* field, const uint8_t* at, uint64_t size) noexcept nogil:
    """A message that is an element of a list or of a map."""
    cdef int64_t mark = reader.found_count
    cdef Outcome outcome
    _begin(reader, field.message)
    outcome = _scan(reader, field.message, at, at + size)
    if outcome == GOOD:
        outcome = _emit(reader, field.message)
    reader.found_count = mark
    return outcome


cdef Outcome _emit_symbol(Reader* reader, const Field* field, int32_t number) noexcept nogil:
    """The name of an enum's number; digits, if the enum does not have it."""
    cdef Column* column = reader.columns + field.column
    cdef const Symbol* symbol = _symbol(reader, field, number)
    cdef uint8_t digits[64]
    cdef int32_t at = 12
    cdef int64_t left = number, size
    cdef int bad
    if symbol != NULL:
        size = symbol.end - symbol.start
        reader.cells_left -= size >> 3
        if <int64_t>column.data.size + size > INT32_MAX:
            return NO_MEMORY
        bad = append_binary(column, reader.names + symbol.start, size, reader.names_end)
        return NO_MEMORY if bad else GOOD
    left = -left if left < 0 else left
    while left or at == 12:
        at -= 1
        digits[at] = <uint8_t>(48 + left % 10)
        left //= 10
    if number < 0:
        at -= 1
        digits[at] = 45
    if <int64_t>column.data.size + 12 - at > INT32_MAX:
        return NO_MEMORY
    return NO_MEMORY if append_binary(column, digits + at, 12 - at, digits + 12) else GOOD


cdef inline Outcome _emit_scalar(Reader* reader, const Field* field, const uint8_t* at, uint64_t value) noexcept nogil:
    cdef Column* column = reader.columns + field.column
    cdef int32_t kind = field.kind
    cdef int bad
    if kind == INT32 or kind == SINT32 or kind == FIXED32:
        bad = append_int32(column, <int32_t>value)
    elif kind == INT64 or kind == SINT64 or kind == FIXED64:
        bad = append_int64(column, <int64_t>value)
    elif kind == TEXT or kind == BYTES:
        if kind == TEXT and not is_utf8(at, value):
            return BAD_TEXT
        bad = append_binary(column, at, value, reader.block_end)
    elif kind == BOOL:
        bad = append_bit(column, value != 0)
    else:
        return _emit_symbol(reader, field, <int32_t>value)
    return NO_MEMORY if bad else GOOD


cdef Outcome _emit_default(Reader* reader, const Field* field) noexcept nogil:
    if field.kind == TEXT or field.kind == BYTES:
        return NO_MEMORY if append_binary(reader.columns + field.column, reader.names, 0, reader.names_end) else GOOD
    return _emit_scalar(reader, field, NULL, <uint64_t><int64_t>field.default_number)


cdef Outcome _emit_packed(Reader* reader, const Field* field, const uint8_t* at, uint64_t size) noexcept nogil:
    """Numbers behind each other."""
    cdef Column* column = reader.columns + field.column
    cdef const uint8_t* end = at + size
    cdef int32_t width = 4 if field.kind == FIXED32 else 8
    cdef uint64_t value
    cdef Outcome outcome
    if field.kind == FIXED32 or field.kind == FIXED64:
        if size % width:
            return CUT_OFF
        # Elements of lists are never null, so there are no validity bits to fill.
        if reserve(&column.data, size, False):
            return NO_MEMORY
        memcpy(column.data.data + column.data.size, at, size)
        column.data.size += size
        column.rows += size // width
        return GOOD
    while at < end:
        outcome = _varint(&at, end, &value)
        if outcome != GOOD:
            return outcome
        value = _cooked(field.kind, value)
        if field.flags & CLOSED and _symbol(reader, field, <int32_t>value) == NULL:
            continue
        outcome = _emit_scalar(reader, field, NULL, value)
        if outcome != GOOD:
            return outcome
    return GOOD


cdef inline Outcome _emit_element(Reader* reader, const Field* field, const uint8_t* at, uint64_t value) noexcept nogil:
    if field.kind >= MESSAGE:
        return _emit_part(reader, field, at, value)
    if field.kind < TEXT and at != NULL:
        return _emit_packed(reader, field, at, value)
    return _emit_scalar(reader, field, at, value)


cdef int _compare_keys(const void* one, const void* other) noexcept nogil:
    cdef const MapKey* left = <const MapKey*>one
    cdef const MapKey* right = <const MapKey*>other
    cdef int order
    if left.value != right.value:
        return -1 if left.value < right.value else 1
    if left.at != NULL and right.at != NULL:
        order = memcmp(left.at, right.at, left.value)
        if order:
            return order
    return -1 if left.index < right.index else 1


cdef bint _is_same_key(const MapKey* left, const MapKey* right) noexcept nogil:
    if left.value != right.value:
        return False
    return left.at == NULL or right.at == NULL or memcmp(left.at, right.at, left.value) == 0


cdef Outcome _drop_entries(Reader* reader, const Field* field, const Slot* slot, uint8_t* is_dropped) noexcept nogil:
    """Marks entries of a map whose key comes again, or whose value is an unknown number of a closed enum."""
    cdef int32_t index = 0, count = 0, entries = slot.count, next_ = slot.head, first
    cdef const uint8_t* at = slot.at
    cdef uint64_t size = slot.value
    cdef int64_t mark = reader.found_count
    cdef Outcome outcome = GOOD
    cdef Slot* key
    cdef Slot* value
    cdef MapKey* keys = <MapKey*>malloc(entries * sizeof(MapKey))
    if keys == NULL:
        return NO_MEMORY
    first = reader.messages[field.message].first_field
    key = reader.slots + first
    value = reader.slots + first + 1
    while index < entries:
        _begin(reader, field.message)
        outcome = _scan(reader, field.message, at, at + size)
        reader.found_count = mark
        if outcome != GOOD:
            break
        if value.is_refused and value.count == 0:
            is_dropped[index] = 1
        else:
            keys[count].at = key.at if key.count else NULL
            keys[count].value = key.value if key.count else 0
            keys[count].index = index
            count += 1
        index += 1
        if next_ >= 0:
            at, size = reader.found[next_].at, reader.found[next_].value
            next_ = reader.found[next_].next
    if outcome == GOOD and count > 1:
        qsort(keys, count, sizeof(MapKey), _compare_keys)
        for index in range(count - 1):
            if _is_same_key(keys + index, keys + index + 1):
                is_dropped[keys[index].index] = 1
    free(keys)
    return outcome


cdef Outcome _emit_map(Reader* reader, const Field* field, const Slot* slot) noexcept nogil:
    cdef int32_t index = 0, next_ = slot.head
    cdef const uint8_t* at = slot.at
    cdef uint64_t size = slot.value
    cdef uint8_t* is_dropped = NULL
    cdef const Message* entry = reader.messages + field.message
    cdef bint may_drop = slot.count > 1 or (slot.count and reader.fields[entry.first_field + 1].flags & CLOSED)
    cdef Outcome outcome = GOOD
    if may_drop:
        is_dropped = <uint8_t*>calloc(slot.count, 1)
        if is_dropped == NULL:
            return NO_MEMORY
        outcome = _drop_entries(reader, field, slot, is_dropped)
    while outcome == GOOD and index < slot.count:
        if is_dropped == NULL or not is_dropped[index]:
            outcome = _emit_part(reader, field, at, size)
        index += 1
        if next_ >= 0:
            at, size = reader.found[next_].at, reader.found[next_].value
            next_ = reader.found[next_].next
    free(is_dropped)
    return outcome


cdef Outcome _emit_list(Reader* reader, const Field* field, const Slot* slot) noexcept nogil:
    cdef Column* column = reader.columns + field.list_column
    cdef int32_t next_ = slot.head
    cdef int64_t rows
    cdef Outcome outcome = GOOD
    if field.flags & MAP:
        outcome = _emit_map(reader, field, slot)
    elif slot.count:
        outcome = _emit_element(reader, field, slot.at, slot.value)
        while outcome == GOOD and next_ >= 0:
            outcome = _emit_element(reader, field, reader.found[next_].at, reader.found[next_].value)
            next_ = reader.found[next_].next
    if outcome != GOOD:
        return outcome
    rows = reader.columns[column.first_child].rows
    return NO_MEMORY if rows > INT32_MAX or end_row(column, rows) else GOOD


cdef Outcome _emit_time(Reader* reader, const Message* message) noexcept nogil:
    """Microseconds: of a moment rounded down, of a span of time to the nearest even one."""
    cdef Slot* seconds_slot = reader.slots + message.first_field
    cdef Slot* nanos_slot = seconds_slot + 1
    cdef int64_t seconds = <int64_t>seconds_slot.value if seconds_slot.count else 0
    cdef int64_t nanos = <int32_t>nanos_slot.value if nanos_slot.count else 0
    cdef int64_t micros = nanos // 1000, rest = nanos % 1000
    # C rounds towards zero.
    if rest < 0:
        micros -= 1
        rest += 1000
    if message.shape == TIMESTAMP:
        if seconds < TIMESTAMP_SECONDS_MIN or seconds > TIMESTAMP_SECONDS_MAX:
            return BAD_TIME
    else:
        if seconds < -DURATION_SECONDS_MAX or seconds > DURATION_SECONDS_MAX:
            return BAD_TIME
        if rest > 500 or (rest == 500 and micros & 1):
            micros += 1
    return NO_MEMORY if append_int64(reader.columns + message.column, seconds * 1000000 + micros) else GOOD


cdef Outcome _emit(Reader* reader, int32_t index) noexcept nogil:
    """Appends a message whose fields were noted."""
    cdef const Message* message = reader.messages + index
    cdef const Field* field
    cdef Slot* slot
    cdef int32_t place
    cdef Outcome outcome
    reader.cells_left -= message.field_count + 1
    if reader.cells_left < 0:
        return TOO_WIDE
    if message.shape == TIMESTAMP or message.shape == DURATION:
        return _emit_time(reader, message)
    for place in range(message.first_field, message.first_field + message.field_count):
        field = reader.fields + place
        slot = reader.slots + place
        if field.flags & REPEATED:
            outcome = _emit_list(reader, field, slot)
        elif slot.count == 0 and field.flags & PRESENCE:
            reader.cells_left -= field.weight
            outcome = NO_MEMORY if append_null(reader.columns, field.column) else GOOD
        elif field.kind >= MESSAGE:
            outcome = _emit_message(reader, field, slot)
        elif slot.count == 0:
            outcome = _emit_default(reader, field)
        else:
            outcome = _emit_scalar(reader, field, slot.at, slot.value)
        if outcome != GOOD:
            return outcome
    if message.shape == STRUCT and append_struct(reader.columns + message.column):
        return NO_MEMORY
    return GOOD


def decode(
    bytes messages not None, bytes fields not None, bytes places not None, bytes symbols not None,
    bytes names not None, int32_t oneof_count, ColumnTree tree not None, values not None, int32_t skip=0,
):
    cdef Py_buffer data, offsets
    cdef Reader reader
    cdef int64_t first = values.offset, rows = len(values), row = 0
    cdef const int32_t* ends
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef Outcome outcome = GOOD
    bad = []
    if values.null_count:
        raise MisuseError("null values are not decoded")
    if rows == 0:
        return bad
    memset(&reader, 0, sizeof(Reader))
    reader.messages = <const Message*><const char*>messages
    reader.fields = <const Field*><const char*>fields
    reader.places = <const int32_t*><const char*>places
    reader.symbols = <const Symbol*><const char*>symbols
    reader.names = <const uint8_t*><const char*>names
    reader.names_end = reader.names + len(names)
    reader.columns = tree.columns
    _, offsets_buffer, data_buffer = values.buffers()
    PyObject_GetBuffer(offsets_buffer, &offsets, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(data_buffer if data_buffer is not None else b"", &data, PyBUF_SIMPLE)
        try:
            reader.slots = <Slot*>calloc(len(fields) // sizeof(Field) + 1, sizeof(Slot))
            reader.oneofs = <int32_t*>calloc(oneof_count + 1, sizeof(int32_t))
            if reader.slots == NULL or reader.oneofs == NULL:
                raise MemoryError("no room for the fields of a message")
            ends = <const int32_t*>offsets.buf + first
            reader.block_end = <const uint8_t*>data.buf + ends[rows]
            while row < rows:
                with nogil:
                    while row < rows:
                        at = <const uint8_t*>data.buf + ends[row]
                        end = <const uint8_t*>data.buf + ends[row + 1]
                        if end - at < skip:
                            outcome = CUT_OFF
                            break
                        reader.found_count = 0
                        reader.cells_left = tree.count + CELLS_PER_BYTE * (end - at)
                        _begin(&reader, 0)
                        outcome = _scan(&reader, 0, at + skip, end)
                        if outcome == GOOD:
                            outcome = _emit(&reader, 0)
                        if outcome != GOOD:
                            break
                        row += 1
                if row == rows:
                    break
                if outcome == NO_MEMORY:
                    raise MemoryError("no room for the columns of decoded values; decode fewer values at a time")
                truncate(tree.columns, 0, row)
                if append_null(tree.columns, 0):
                    raise MemoryError("no room for the columns of decoded values")
                bad.append((row, REASONS[outcome]))
                row += 1
        finally:
            free(reader.slots)
            free(reader.oneofs)
            free(reader.found)
            PyBuffer_Release(&data)
    finally:
        PyBuffer_Release(&offsets)
    return bad
