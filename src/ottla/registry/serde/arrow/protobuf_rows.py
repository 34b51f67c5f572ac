"""Rows of Arrow columns to Protobuf values, by the kernel `protobuf_encode`.

Columns are found by the names of the message's fields and cast to the types of `protobuf_plan.py` first; a cast that
would lose something is refused. A null, or a column that is missing, is a field that is not set. Enums are names or
numbers. Timestamps and durations in nanoseconds keep them. Extra columns are refused: they would be lost; so is a row
that sets two members of a oneof.
"""

from struct import Struct
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from ottla.registry.serde.arrow.avro_plan import place
from ottla.registry.serde.arrow.avro_rows import RowError, addresses, cast_column, cast_list
from ottla.registry.serde.arrow.protobuf_encode import encode
from ottla.registry.serde.arrow.protobuf_plan import GROUP, MESSAGE, SCALARS, TIMES, WRAPPERS, ProtobufColumns
from ottla.registry.serde.protobuf_values import is_map, is_repeated

# As in `protobuf_encode.pyx`.
_UINT32: Final = 12
_REPEATED, _MAP, _PRESENCE, _PACKED, _REQUIRED = 1, 2, 4, 8, 16
_FIELDS, _TIMESTAMP, _DURATION = range(3)

_FIELD: Final = Struct("=7i")
_MESSAGE: Final = Struct("=5i")
_NANOS: Final = 1_000_000_000
_MICROS: Final = 1_000_000


class ProtobufRows:
    """Encodes rows as one message."""

    def __init__(self, message: Descriptor) -> None:
        """`message_of` finds it in a schema. Raises `NoColumnsError` for a message whose values cannot be columns."""
        self._message = message
        self.type: pa.StructType = ProtobufColumns(message).type
        """The struct of the columns."""

    def encode(self, rows: pa.StructArray, prefix: bytes = b"") -> pa.BinaryArray:
        """The value of each row, none of which is null, after the prefix. Raises `RowError`."""
        plan = _Plan()
        plan.message(self._message, rows, "")
        if rows.null_count:
            raise RowError(f"row {pc.index(rows.is_null(), True)} is null")
        found = encode(
            b"".join(_MESSAGE.pack(*each) for each in plan.messages),
            b"".join(_FIELD.pack(*each) for each in plan.fields),
            plan.oneof_count,
            [addresses(each) for each in plan.columns],
            len(rows),
            prefix,
        )
        if len(found) == 3:
            row, step, problem = found
            raise RowError(f"row {row}: {place(plan.paths[step])} {problem}")
        ends, data = found
        return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(ends), pa.py_buffer(data)], 0)


class _Plan:
    """The tables for one table of rows. The fields of a message follow each other, sorted by number."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, ...]] = []
        self.fields: list[tuple[int, ...]] = []
        self.paths: list[str] = []
        self.columns: list[pa.Array] = []
        self.oneof_count = 0

    def message(self, message: Descriptor, values: pa.Array, path: str) -> int:
        """Adds a message with the columns of its fields; returns its index."""
        if not pa.types.is_struct(values.type):
            raise RowError(f"{place(path)} is of type {values.type}; the schema has the message {message.full_name}")
        present = [each.name for each in values.type]
        extra = sorted(set(present) - set(message.fields_by_name))
        if extra:
            name = f"{path}.{extra[0]}"[1:]
            raise RowError(f"the schema has no field for column {name}; drop it, or evolve the schema")
        found = []
        for each in sorted(message.fields, key=lambda field: field.number):
            where = f"{path}.{each.name}"
            if each.name in present and (is_required(each) or not _is_empty(values.field(each.name))):
                found.append((each, values.field(each.name), where))
            elif is_required(each):
                raise RowError(f"{place(where)} has no column, and the schema requires it")
        return self._fields(message, found, is_entry=False)

    def _fields(
        self, message: Descriptor, members: list[tuple[FieldDescriptor, pa.Array, str]], *, is_entry: bool
    ) -> int:
        index, first, first_oneof = len(self.messages), len(self.fields), self.oneof_count
        self.messages.append((_FIELDS, 0, first, len(members), 0))
        self.fields += [()] * len(members)
        self.paths += [where for _, _, where in members]
        self.oneof_count += len(message.oneofs)
        for at, (member, values, where) in enumerate(members):
            oneof = -1 if member.containing_oneof is None else first_oneof + member.containing_oneof.index
            self.fields[first + at] = self._field(member, values, oneof, where, is_entry=is_entry)
        return index

    def _field(
        self, member: FieldDescriptor, values: pa.Array, oneof: int, path: str, *, is_entry: bool
    ) -> tuple[int, ...]:
        flags, list_column = 0, -1
        if is_map(member):
            return self._map(member, values, path)
        if is_repeated(member):
            values = cast_list(values, path, "a repeated field")
            list_column, values, path = self._column(values), values.values, f"{path}[]"
            flags = _REPEATED | (_PACKED if member.is_packed else 0)
        elif is_entry or is_required(member):
            flags = _PRESENCE | _REQUIRED
        elif member.has_presence:
            flags = _PRESENCE
        if member.message_type is not None:
            kind = GROUP if member.type == FieldDescriptor.TYPE_GROUP else MESSAGE
            column, message = self._value(member.message_type, values, path)
            return member.number, kind, column, list_column, message, oneof, flags
        column = self._column(self._scalar(member, values, path))
        kind = _UINT32 if member.type == FieldDescriptor.TYPE_UINT32 else SCALARS[member.type][0]
        return member.number, kind, column, list_column, -1, oneof, flags

    def _scalar(self, member: FieldDescriptor, values: pa.Array, path: str) -> pa.Array:
        if member.enum_type is not None:
            return _numbers(member.enum_type, values, path)
        return cast_column(values, SCALARS[member.type][1], path)

    def _value(self, message: Descriptor, values: pa.Array, path: str) -> tuple[int, int]:
        """The column of a message and its index: a struct, or what a well-known type stands for."""
        name = message.full_name
        if name in TIMES:
            kind = TIMES[name]
            has_nanos = values.type == pa.duration("ns") or (
                pa.types.is_timestamp(values.type) and values.type.unit == "ns"
            )
            if has_nanos and pa.types.is_timestamp(values.type) == pa.types.is_timestamp(kind):
                converted = values
            else:
                converted = cast_column(values, kind, path)
            column = self._column(converted)
            shape = _TIMESTAMP if pa.types.is_timestamp(kind) else _DURATION
            self.messages.append((shape, column, 0, 0, _NANOS if has_nanos else _MICROS))
            return column, len(self.messages) - 1
        if name in WRAPPERS:
            index = self._fields(message, [(message.fields[0], values, path)], is_entry=False)
            return self.fields[self.messages[index][2]][2], index
        index = self.message(message, values, path)
        return self._column(values), index

    def _map(self, member: FieldDescriptor, values: pa.Array, path: str) -> tuple[int, ...]:
        if not pa.types.is_map(values.type):
            raise RowError(f"{place(path)} is of type {values.type}; the schema has a map")
        list_column = self._column(values)
        inner = f"{path}{{}}"
        entry = member.message_type
        members = [
            (entry.fields_by_name["key"], values.keys, inner),
            (entry.fields_by_name["value"], values.items, inner),
        ]
        index = self._fields(entry, members, is_entry=True)
        return member.number, MESSAGE, list_column, list_column, index, -1, _REPEATED | _MAP

    def _column(self, values: pa.Array) -> int:
        self.columns.append(values)
        return len(self.columns) - 1


def is_required(member: FieldDescriptor) -> bool:
    """Whether a field of proto2 must be set."""
    # `label` is deprecated in favour of `is_required`, which versions before 6 do not have.
    return bool(
        member.is_required if hasattr(member, "is_required") else member.label == FieldDescriptor.LABEL_REQUIRED
    )


def _is_empty(values: pa.Array) -> bool:
    """Whether there are only nulls or empty lists, whose type Arrow does not know."""
    kind = values.type
    return pa.types.is_null(kind) or (
        pa.types.is_list(kind) and pa.types.is_null(kind.value_type) and len(values.values) == 0
    )


def _numbers(enum: EnumDescriptor, values: pa.Array, path: str) -> pa.Array:
    """The numbers of an enum's names; numbers, also as text, are kept."""
    if pa.types.is_integer(values.type):
        numbers = cast_column(values, pa.int32(), path)
    else:
        text = cast_column(values, pa.string(), path)
        known = pa.array([each.name for each in enum.values], pa.string())
        found = pc.index_in(text, value_set=known)
        numbers = pa.array([each.number for each in enum.values], pa.int32()).take(found)
        if numbers.null_count > text.null_count:
            unknown = pc.and_(pc.is_valid(text), pc.is_null(numbers))
            digits: Any = pc.if_else(pc.match_substring_regex(text, r"^-?[0-9]{1,10}$"), text, None)
            try:
                numbers = pc.if_else(unknown, digits.cast(pa.int32()), numbers)
            except pa.ArrowInvalid as error:
                raise RowError(f"{place(path)}: {error}") from error
            _refuse(enum, text.filter(pc.and_(unknown, pc.is_null(numbers))), path)
    if enum.is_closed:
        is_known = pc.is_in(numbers, value_set=pa.array([each.number for each in enum.values], pa.int32()))
        _refuse(enum, numbers.filter(pc.and_(pc.is_valid(numbers), pc.invert(is_known))), path)
    return numbers


def _refuse(enum: EnumDescriptor, unknown: pa.Array, path: str) -> None:
    if len(unknown):
        raise RowError(f"{place(path)}: enum {enum.full_name} has no value {unknown[0].as_py()}")
