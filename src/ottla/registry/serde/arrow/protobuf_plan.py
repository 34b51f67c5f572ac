"""The columns of a Protobuf message, and the tables for the kernel `protobuf_decode` that fill them.

Columns have the names of the fields. A field is null if it is not set and the schema can tell that: messages, members
of oneofs, `optional` fields and all singular ones of proto2; other fields have their defaults then. Enums are text, as
in Spark and Parquet: the name of the value, or its number if the schema does not have it. Timestamp and Duration are
Arrow's in microseconds, wrappers are their values. Repeated fields are lists, maps are maps; both are never null.

The writer's schema is not needed: fields are found by their numbers. Messages that contain themselves are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.serde.arrow.avro_plan import COLUMNS_MAX, NoColumnsError, place
from ottla.registry.serde.arrow.column_out import ColumnTree
from ottla.registry.serde.arrow.protobuf_decode import decode
from ottla.registry.serde.protobuf_values import MessageClasses, is_map, is_repeated

# As in `protobuf_decode.pyx`.
INT32, INT64, SINT32, SINT64, FIXED32, FIXED64, BOOL, ENUM, TEXT, BYTES, MESSAGE, GROUP = range(12)
_REPEATED, _MAP, _PRESENCE, _CLOSED = 1, 2, 4, 8
_STRUCT, _WRAPPER, _TIMESTAMP, _DURATION = range(4)
# As in `column_out.pxd`.
_NULLS, _BITS, _FIXED_WIDTH, _BINARY, _LIST, _STRUCT_COLUMN = range(6)

_FIELD: Final = Struct("=11i")
_MESSAGE: Final = Struct("=8i")
_SYMBOL: Final = Struct("=3i")
_INT: Final = Struct("=i")
_PLACES_MAX: Final = 256
"""Fields with smaller numbers are found by a table, others by a search."""

SCALARS: Final[Mapping[int, tuple[int, pa.DataType]]] = {
    FieldDescriptor.TYPE_DOUBLE: (FIXED64, pa.float64()),
    FieldDescriptor.TYPE_FLOAT: (FIXED32, pa.float32()),
    FieldDescriptor.TYPE_INT64: (INT64, pa.int64()),
    FieldDescriptor.TYPE_UINT64: (INT64, pa.uint64()),
    FieldDescriptor.TYPE_INT32: (INT32, pa.int32()),
    FieldDescriptor.TYPE_FIXED64: (FIXED64, pa.uint64()),
    FieldDescriptor.TYPE_FIXED32: (FIXED32, pa.uint32()),
    FieldDescriptor.TYPE_BOOL: (BOOL, pa.bool_()),
    FieldDescriptor.TYPE_STRING: (TEXT, pa.string()),
    FieldDescriptor.TYPE_BYTES: (BYTES, pa.binary()),
    FieldDescriptor.TYPE_UINT32: (INT32, pa.uint32()),
    FieldDescriptor.TYPE_ENUM: (ENUM, pa.string()),
    FieldDescriptor.TYPE_SFIXED32: (FIXED32, pa.int32()),
    FieldDescriptor.TYPE_SFIXED64: (FIXED64, pa.int64()),
    FieldDescriptor.TYPE_SINT32: (SINT32, pa.int32()),
    FieldDescriptor.TYPE_SINT64: (SINT64, pa.int64()),
}
"""The encoding and the Arrow type of each Protobuf type that is not a message."""
TIMES: Final[Mapping[str, pa.DataType]] = {
    "google.protobuf.Timestamp": pa.timestamp("us", "UTC"),
    "google.protobuf.Duration": pa.duration("us"),
}
WRAPPERS: Final = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


def message_of(schema: ProtobufSchema, full_name: str) -> Descriptor:
    """The descriptor of a message of a schema. Raises `ValueNotReadableError`."""
    return MessageClasses(schema).find(full_name).DESCRIPTOR


class ProtobufColumns:
    """Decodes values to the columns of one message, whichever schema they were written with."""

    def __init__(self, message: Descriptor) -> None:
        """`message_of` finds it in a schema. Raises `NoColumnsError` for a message that has no columns."""
        plan = _Plan()
        plan.root(message)
        self._kinds = [
            (each.type, each.layout, each.width, each.first_child, each.child_count, None) for each in plan.columns
        ]
        self._tables = (
            b"".join(_MESSAGE.pack(*each) for each in plan.messages),
            b"".join(_FIELD.pack(*each) for each in plan.fields),
            b"".join(_INT.pack(each) for each in plan.places),
            b"".join(_SYMBOL.pack(*each) for each in plan.symbols),
            bytes(plan.names),
            plan.oneof_count,
        )
        self.type: pa.StructType = plan.columns[0].type
        """The struct of the columns."""

    def decode(self, values: pa.Array, skip: int = 0) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """The rows of the values, none of which is null; and row and reason of each bad value, whose row is null.

        Each value begins after `skip` bytes, such as the prefix with the schema's id and the message's indexes.
        """
        tree = ColumnTree(self._kinds)
        bad = decode(*self._tables, tree, values.cast(pa.binary()), skip)
        return tree.take(), bad


@dataclass(slots=True, kw_only=True)
class _Column:
    type: pa.DataType
    layout: int
    width: int = 0
    first_child: int = 0
    child_count: int = 0
    weight: int = 1
    """How many columns a null fills: this one, and those below a struct."""


_UNFILLED: Final = (0,) * 11


@dataclass(slots=True)
class _Plan:
    """What is built. The fields of a message follow each other, sorted by number; so do its oneofs."""

    columns: list[_Column] = field(default_factory=list)
    messages: list[tuple[int, ...]] = field(default_factory=list)
    fields: list[tuple[int, ...]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    symbols: list[tuple[int, int, int]] = field(default_factory=list)
    names: bytearray = field(default_factory=bytearray)
    oneof_count: int = 0
    _enums: dict[str, int] = field(default_factory=dict)

    def root(self, message: Descriptor) -> None:
        self._new_columns(1, "")
        self._struct(message, 0, "", ())

    def _new_columns(self, count: int, path: str) -> int:
        first = len(self.columns)
        if first + count > COLUMNS_MAX:
            raise NoColumnsError(f"{place(path)}: the schema has more than {COLUMNS_MAX} columns")
        self.columns += [_Column(type=pa.null(), layout=_NULLS) for _ in range(count)]
        return first

    def _struct(self, message: Descriptor, column: int, path: str, around: tuple[str, ...]) -> int:
        """Fills the column of a message, with those below it; returns the index of the message."""
        if message.full_name in around:
            raise NoColumnsError(
                f"{place(path)} is a {message.full_name} that contains itself: recursive messages have no columns"
            )
        members = list(message.fields)
        first = self._new_columns(len(members), path)
        columns = {each.number: first + at for at, each in enumerate(members)}
        index = self._message(message, _STRUCT, column, columns, path, (*around, message.full_name))
        kinds = [pa.field(each.name, self.columns[columns[each.number]].type) for each in members]
        self.columns[column] = _Column(
            type=pa.struct(kinds),
            layout=_STRUCT_COLUMN,
            first_child=first,
            child_count=len(members),
            weight=1 + sum(self.columns[each].weight for each in columns.values()),
        )
        return index

    def _message(
        self,
        message: Descriptor,
        shape: int,
        column: int,
        columns: Mapping[int, int],
        path: str,
        around: tuple[str, ...],
        *,
        is_entry: bool = False,
    ) -> int:
        members = sorted(message.fields, key=lambda each: each.number)
        index, first_field, first_oneof = len(self.messages), len(self.fields), self.oneof_count
        self.messages.append(())
        self.fields += [_UNFILLED] * len(members)
        first_place, places = len(self.places), [-1] * min(members[-1].number + 1 if members else 0, _PLACES_MAX)
        for at, each in enumerate(members):
            if each.number < len(places):
                places[each.number] = first_field + at
        self.places += places
        self.oneof_count += len(message.oneofs)
        self.messages[index] = (
            shape,
            column,
            first_field,
            len(members),
            first_oneof,
            len(message.oneofs),
            first_place,
            len(places),
        )
        for at, each in enumerate(members):
            where = path if shape == _WRAPPER else f"{path}.{each.name}"
            oneof = -1 if each.containing_oneof is None else first_oneof + each.containing_oneof.index
            self.fields[first_field + at] = self._field(
                each, columns[each.number], oneof, where, around, is_entry=is_entry
            )
        return index

    def _field(
        self, member: FieldDescriptor, column: int, oneof: int, path: str, around: tuple[str, ...], *, is_entry: bool
    ) -> tuple[int, ...]:
        flags, list_column, value_column = 0, -1, column
        if is_repeated(member):
            flags, list_column = _REPEATED, column
            value_column = self._new_columns(1, path)
        elif member.has_presence and not is_entry:
            flags = _PRESENCE
        message, first_symbol, symbol_count, default = -1, 0, 0, 0
        if member.message_type is not None:
            kind = GROUP if member.type == FieldDescriptor.TYPE_GROUP else MESSAGE
            inner = f"{path}[]" if list_column >= 0 else path
            if is_map(member):
                flags |= _MAP
                message = self._entry(member.message_type, value_column, path, around)
            else:
                message = self._value(member.message_type, value_column, inner, around)
        elif value_column >= 0:
            kind, arrow = SCALARS[member.type]
            self.columns[value_column] = _scalar_column(kind, arrow)
            if member.enum_type is not None:
                first_symbol = self._symbols(member.enum_type)
                symbol_count = len({each.number for each in member.enum_type.values})
                default = member.enum_type.values[0].number
                flags |= _CLOSED if member.enum_type.is_closed else 0
        else:
            kind = SCALARS[member.type][0]
        if list_column >= 0:
            self.columns[list_column] = self._list_column(member, value_column)
        weight = self.columns[column].weight if column >= 0 else 0
        return (
            member.number,
            kind,
            value_column,
            message,
            oneof,
            flags,
            first_symbol,
            symbol_count,
            default,
            weight,
            list_column,
        )

    def _value(self, message: Descriptor, column: int, path: str, around: tuple[str, ...]) -> int:
        """The column of a message: a struct, or what a well-known type stands for."""
        name = message.full_name
        if name in TIMES:
            shape = _TIMESTAMP if name.endswith("Timestamp") else _DURATION
            self.columns[column] = _Column(type=TIMES[name], layout=_FIXED_WIDTH, width=8)
            return self._message(message, shape, column, {1: -1, 2: -1}, path, around)
        if name in WRAPPERS:
            return self._message(message, _WRAPPER, column, {1: column}, path, around)
        return self._struct(message, column, path, around)

    def _entry(self, message: Descriptor, column: int, path: str, around: tuple[str, ...]) -> int:
        """The entries of a map: key and value are never missing."""
        first = self._new_columns(2, path)
        columns = {1: first, 2: first + 1}
        index = self._message(message, _STRUCT, column, columns, f"{path}{{}}", around, is_entry=True)
        key, value = self.columns[first].type, self.columns[first + 1].type
        pair = pa.struct([pa.field("key", key, nullable=False), pa.field("value", value)])
        self.columns[column] = _Column(type=pair, layout=_STRUCT_COLUMN, first_child=first, child_count=2)
        return index

    def _list_column(self, member: FieldDescriptor, child: int) -> _Column:
        inner = self.columns[child].type
        kind: Any = pa.list_(pa.field("element", inner))
        if is_map(member):
            kind = pa.map_(inner.field("key").type, inner.field("value").type)
        return _Column(type=kind, layout=_LIST, first_child=child, child_count=1)

    def _symbols(self, enum: EnumDescriptor) -> int:
        """Where the numbers and names of an enum begin, sorted by number; of equal numbers the first name counts."""
        known = self._enums.get(enum.full_name)
        if known is not None:
            return known
        first = self._enums[enum.full_name] = len(self.symbols)
        for number, name in sorted(symbol_names(enum).items()):
            start = len(self.names)
            self.names += name.encode()
            self.symbols.append((number, start, len(self.names)))
        return first


def symbol_names(enum: EnumDescriptor) -> dict[int, str]:
    """The names of an enum's numbers; of aliases the first one."""
    return {each.number: each.name for each in reversed(enum.values)}


def _scalar_column(kind: int, arrow: pa.DataType) -> _Column:
    if kind in (TEXT, BYTES, ENUM):
        return _Column(type=arrow, layout=_BINARY)
    if kind == BOOL:
        return _Column(type=arrow, layout=_BITS)
    return _Column(type=arrow, layout=_FIXED_WIDTH, width=arrow.bit_width // 8)
