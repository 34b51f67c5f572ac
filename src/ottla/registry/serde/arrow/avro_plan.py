"""An Avro writer's schema, resolved against a reader's, as instructions for the kernel `avro_decode`.

Avro's rules decide: fields by name or alias, promotions, defaults, the reader's enum default. The reader's schema has
the columns. Logical types become Arrow's: dates, times, timestamps, decimals. Schemas whose values cannot be columns
are refused: recursive types, unions of several types, and arrays whose items take no bytes, because a few bytes could
then claim any number of items.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from struct import Struct
from typing import Any, Final

import pyarrow as pa

from ottla.model.errors import InvalidRequestError
from ottla.registry.schemas.avro.avro_types import Array, AvroType, Enumeration, Field, Fixed, Map, Record, Union
from ottla.registry.schemas.avro.logical_types import logical_type
from ottla.registry.serde.arrow.avro_decode import decode
from ottla.registry.serde.arrow.column_out import ColumnTree

COLUMNS_MAX: Final = 20_000
DECIMAL_DIGITS_MAX: Final = 38

# As in `avro_decode.pyx`.
_NULL, _BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _TEXT, _FIXED, _ENUM, _ARRAY, _MAP, _RECORD, _UNION = range(14)
_DECIMAL_BYTES, _DECIMAL_FIXED, _REFUSE = range(14, 17)
_AS_INT32, _AS_INT64, _AS_FLOAT, _AS_DOUBLE = range(4)
# As in `column_out.pxd`.
_NULLS, _BITS, _FIXED_WIDTH, _BINARY, _LIST, _STRUCT, _CONSTANT = range(7)

_INSTRUCTION: Final = Struct("=6i")
_SKIPPED: Final = -1

_PRIMITIVES: Final[Mapping[str, tuple[pa.DataType, int, int]]] = {
    "null": (pa.null(), _NULLS, 0),
    "boolean": (pa.bool_(), _BITS, 0),
    "int": (pa.int32(), _FIXED_WIDTH, 4),
    "long": (pa.int64(), _FIXED_WIDTH, 8),
    "float": (pa.float32(), _FIXED_WIDTH, 4),
    "double": (pa.float64(), _FIXED_WIDTH, 8),
    "bytes": (pa.binary(), _BINARY, 0),
    "string": (pa.string(), _BINARY, 0),
}
_LOGICAL: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "time-millis": pa.time32("ms"),
    "time-micros": pa.time64("us"),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_TARGETS: Final = {"int": _AS_INT32, "long": _AS_INT64, "float": _AS_FLOAT, "double": _AS_DOUBLE}
_NUMBER_CODES: Final = {"int": _INT, "long": _LONG, "float": _FLOAT, "double": _DOUBLE}
_PROMOTIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"int", "long", "float", "double"}),
    "long": frozenset({"long", "float", "double"}),
    "float": frozenset({"float", "double"}),
    "double": frozenset({"double"}),
}
_PLAIN_CODES: Final = {"boolean": _BOOLEAN, "bytes": _BYTES, "string": _TEXT}


class NoColumnsError(InvalidRequestError):
    """Values of the schema cannot become columns. The message says which part, and why."""


class AvroColumns:
    """Decodes values of one writer's schema to the columns of a reader's."""

    def __init__(self, writer: AvroType, reader: AvroType | None = None) -> None:
        """Raises `NoColumnsError` for a schema that has no columns, or that cannot read what the writer wrote."""
        reader = writer if reader is None else reader
        if not isinstance(reader, Record):
            raise NoColumnsError(f"the schema is not a record but a value of type {reader.kind}: it has no columns")
        plan = _Plan()
        root = plan.column(reader, "", ())
        plan.resolve(writer, reader, root, "")
        self._kinds = [
            (each.type, each.layout, each.width, each.first_child, each.child_count, each.constant)
            for each in plan.columns
        ]
        self._program = b"".join(_INSTRUCTION.pack(*each) for each in plan.program)
        self._branches = b"".join(each.to_bytes(4, "little", signed=True) for each in plan.branches)
        self.type: pa.StructType = plan.columns[root].type
        """The struct of the columns."""

    def decode(self, values: pa.Array, skip: int = 0) -> tuple[pa.StructArray, list[tuple[int, str]]]:
        """The rows of the values, none of which is null; and row and reason of each bad value, whose row is null.

        Each value begins after `skip` bytes, such as the prefix with the schema's id.
        """
        tree = ColumnTree(self._kinds)
        bad = decode(self._program, self._branches, tree, values.cast(pa.binary()), skip)
        return tree.take(), bad


@dataclass(slots=True, kw_only=True)
class _Column:
    type: pa.DataType
    layout: int
    width: int = 0
    first_child: int = 0
    child_count: int = 0
    constant: pa.Scalar | pa.Array | None = None
    """The default of a field that the writer does not have; the symbols of an enum, whose column has their numbers."""


class _Plan:
    """What is built: the columns of the reader, and the writer's instructions that fill them."""

    def __init__(self) -> None:
        self.columns: list[_Column] = []
        self.program: list[tuple[int, int, int, int, int, int]] = []
        self.branches: list[int] = []
        self._skips: dict[int, int] = {}

    # Columns

    def column(self, node: AvroType, path: str, around: tuple[AvroType, ...]) -> int:
        """Makes the column of a reader's type, with those below it."""
        return self._columns_of([(node, path)], around)

    def _columns_of(self, nodes: Sequence[tuple[AvroType, str]], around: tuple[AvroType, ...]) -> int:
        """Makes columns that follow each other, then those below them; returns the first."""
        first = len(self.columns)
        if first + len(nodes) > COLUMNS_MAX:
            raise NoColumnsError(f"the schema has more than {COLUMNS_MAX} columns")
        self.columns += [_Column(type=pa.null(), layout=_NULLS) for _ in nodes]
        for index, (node, path) in enumerate(nodes):
            self.columns[first + index] = self._column(only_branch(node, path), path, around)
        return first

    def _column(self, node: AvroType, path: str, around: tuple[AvroType, ...]) -> _Column:
        if node in around:
            raise NoColumnsError(f"{place(path)} contains itself: recursive types have no columns")
        match node:
            case Record():
                fields = [(each.type, f"{path}.{each.name}") for each in node.fields]
                first = self._columns_of(fields, (*around, node))
                kinds = [pa.field(each.name, self.columns[first + at].type) for at, each in enumerate(node.fields)]
                return _Column(type=pa.struct(kinds), layout=_STRUCT, first_child=first, child_count=len(kinds))
            case Array():
                child = self.column(node.items, f"{path}[]", around)
                kind = pa.list_(pa.field("element", self.columns[child].type))
                return _Column(type=kind, layout=_LIST, first_child=child, child_count=1)
            case Map():
                return self._map_column(node, path, around)
            case Enumeration():
                symbols = pa.array(node.symbols, pa.string())
                return _Column(type=pa.string(), layout=_FIXED_WIDTH, width=4, constant=symbols)
            case Fixed():
                return _decimal_column(node, path) or _Column(type=pa.binary(), layout=_BINARY)
        kind, layout, width = _PRIMITIVES[node.kind]
        logical = _LOGICAL.get(logical_type(node) or "")
        return _decimal_column(node, path) or _Column(type=logical or kind, layout=layout, width=width)

    def _map_column(self, node: Map, path: str, around: tuple[AvroType, ...]) -> _Column:
        entries = len(self.columns)
        self.columns.append(_Column(type=pa.null(), layout=_NULLS))
        keys = len(self.columns)
        self.columns += [_Column(type=pa.string(), layout=_BINARY), _Column(type=pa.null(), layout=_NULLS)]
        place = f"{path}{{}}"
        self.columns[keys + 1] = self._column(only_branch(node.values, place), place, around)
        kind = pa.map_(pa.string(), self.columns[keys + 1].type)
        pair = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", kind.item_type)])
        self.columns[entries] = _Column(type=pair, layout=_STRUCT, first_child=keys, child_count=2)
        return _Column(type=kind, layout=_LIST, first_child=entries, child_count=1)

    # Instructions

    def resolve(self, writer: AvroType, reader: AvroType, column: int, path: str) -> int:
        """Adds the instruction that reads a writer's value into a column. Raises `NoColumnsError`."""
        found = self._resolved(writer, reader, column, path)
        if found is None:
            raise NoColumnsError(
                f"{place(path)} is of type {writer.kind} in the writer's schema, which cannot be read as"
                f" {only_branch(reader, path).kind}"
            )
        return found

    def _resolved(self, writer: AvroType, reader: AvroType, column: int, path: str) -> int | None:
        """None if the reader's type cannot read the writer's."""
        if isinstance(writer, Union):
            return self._union(writer, reader, column, path)
        if writer.kind == "null":
            is_nullable = reader.kind == "null" or (isinstance(reader, Union) and _is_nullable(reader))
            return self._add(_NULL, column) if is_nullable else None
        reader = only_branch(reader, path)
        match writer, reader:
            case (Record(), Record()):
                return self._record(writer, reader, column, path)
            case (Array(), Array()):
                _check_items(writer.items, path)
                return self._parent(
                    _ARRAY,
                    column,
                    lambda: self.resolve(writer.items, reader.items, self.columns[column].first_child, f"{path}[]"),
                )
            case (Map(), Map()):
                return self._map(writer, reader, column, path)
            case (Enumeration(), Enumeration()):
                return self._enum(writer, reader, column)
            case (Fixed(), Fixed()) if writer.size == reader.size:
                is_decimal = pa.types.is_decimal(self.columns[column].type)
                return self._add(_DECIMAL_FIXED if is_decimal else _FIXED, column, writer.size)
        if reader.kind in _PROMOTIONS.get(writer.kind, ()):
            return self._add(_NUMBER_CODES[writer.kind], column, _TARGETS[reader.kind])
        if {writer.kind, reader.kind} <= {"bytes", "string"}:
            is_decimal = pa.types.is_decimal(self.columns[column].type)
            return self._add(_DECIMAL_BYTES if is_decimal else _PLAIN_CODES[reader.kind], column)
        return self._add(_BOOLEAN, column) if writer.kind == reader.kind == "boolean" else None

    def _union(self, writer: Union, reader: AvroType, column: int, path: str) -> int | None:
        index = self._add(_UNION, column)
        found = [self._resolved(each, reader, column, path) for each in writer.branches]
        if all(each is None for each in found):
            return None
        # A branch that the reader does not have makes a value bad, not the schema.
        refused = self._add(_REFUSE, _SKIPPED)
        return self._set(index, _UNION, column, branches=[refused if each is None else each for each in found])

    def _record(self, writer: Record, reader: Record, column: int, path: str) -> int:
        index = self._add(_RECORD, column)
        first = self.columns[column].first_child
        sources: dict[str, tuple[int, Field]] = {}
        for at, each in enumerate(reader.fields):
            source = next((name for name in (each.name, *each.aliases) if name in writer.by_name), None)
            if source is not None:
                sources[source] = (first + at, each)
                continue
            if not each.has_default:
                raise NoColumnsError(
                    f"{place(f'{path}.{each.name}')} is not in the writer's schema and has no default in the reader's"
                )
            kind = self.columns[first + at].type
            self.columns[first + at] = _Column(type=kind, layout=_CONSTANT, constant=default_scalar(each, kind))
        steps = []
        for written in writer.fields:
            wanted = sources.get(written.name)
            if wanted is None:
                steps.append(self._skip(written.type, f"{path}.{written.name}"))
            else:
                steps.append(self.resolve(written.type, wanted[1].type, wanted[0], f"{path}.{written.name}"))
        return self._set(index, _RECORD, column, branches=steps)

    def _map(self, writer: Map, reader: Map, column: int, path: str) -> int:
        entries = self.columns[column].first_child
        keys = self.columns[entries].first_child
        return self._parent(
            _MAP,
            column,
            lambda: self.resolve(writer.values, reader.values, keys + 1, f"{path}{{}}"),
            entries,
            keys,
        )

    def _enum(self, writer: Enumeration, reader: Enumeration, column: int) -> int:
        places = {symbol: at for at, symbol in enumerate(reader.symbols)}
        default = _SKIPPED if reader.default is None else places[reader.default]
        index = self._add(_ENUM, column)
        return self._set(index, _ENUM, column, branches=[places.get(symbol, default) for symbol in writer.symbols])

    def _skip(self, writer: AvroType, path: str) -> int:
        """The instruction that reads a value and drops it. The type may be recursive."""
        known = self._skips.get(id(writer))
        if known is not None:
            return known
        index = self._skips[id(writer)] = self._add(_REFUSE, _SKIPPED)
        match writer:
            case Union():
                return self._set(index, _UNION, _SKIPPED, branches=[self._skip(each, path) for each in writer.branches])
            case Record():
                steps = [self._skip(each.type, f"{path}.{each.name}") for each in writer.fields]
                return self._set(index, _RECORD, _SKIPPED, branches=steps)
            case Array():
                _check_items(writer.items, path)
                self.program[index] = (_ARRAY, _SKIPPED, 0, 0, self._skip(writer.items, path), 0)
            case Map():
                self.program[index] = (_MAP, _SKIPPED, 0, 0, self._skip(writer.values, path), 0)
            case Enumeration():
                return self._set(index, _ENUM, _SKIPPED, branches=[0] * len(writer.symbols))
            case Fixed():
                self.program[index] = (_FIXED, _SKIPPED, writer.size, 0, 0, 0)
            case _:
                codes = {"null": _NULL, **_NUMBER_CODES, **_PLAIN_CODES}
                self.program[index] = (codes[writer.kind], _SKIPPED, 0, 0, 0, 0)
        return index

    def _parent(self, code: int, column: int, make_child: Callable[[], int], a: int = 0, b: int = 0) -> int:
        index = self._add(code, column)
        self.program[index] = (code, column, a, b, make_child(), 0)
        return index

    def _add(self, code: int, column: int, a: int = 0) -> int:
        self.program.append((code, column, a, 0, 0, 0))
        return len(self.program) - 1

    def _set(self, index: int, code: int, column: int, *, branches: Sequence[int]) -> int:
        self.program[index] = (code, column, 0, 0, len(self.branches), len(branches))
        self.branches += branches
        return index


def place(path: str) -> str:
    """The part of a value that a path means, in words."""
    return f"field {path[1:]}" if path else "the value"


def _is_nullable(union: Union) -> bool:
    return any(each.kind == "null" for each in union.branches)


def only_branch(node: AvroType, path: str) -> AvroType:
    """The type of a column's values: of a union, the one that is not null, or the wider of two numbers."""
    if not isinstance(node, Union):
        return node
    others = [each for each in node.branches if each.kind != "null"]
    if not node.branches:
        raise NoColumnsError(f"{place(path)} is a union without types, which has no values")
    if len(others) <= 1:
        return others[0] if others else node.branches[0]
    kinds = [each.kind for each in others]
    if sorted(kinds) in (["int", "long"], ["double", "float"]):
        wider = max(kinds, key=lambda kind: _TARGETS[kind])
        return next(each for each in others if each.kind == wider)
    raise NoColumnsError(
        f"{place(path)} is a union of several types ({', '.join(kinds)}), which one column cannot hold"
    )


def _check_items(items: AvroType, path: str) -> None:
    if _size_min(items, ()) == 0:
        raise NoColumnsError(f"{place(path)} is an array whose items take no bytes, so its size cannot be limited")


def _size_min(node: AvroType, around: tuple[AvroType, ...]) -> int:
    """The fewest bytes of a value."""
    match node:
        case Fixed():
            return node.size
        case Record():
            # A record that contains itself does so in a union, an array or a map, which takes a byte.
            return 0 if node in around else sum(_size_min(each.type, (*around, node)) for each in node.fields)
    return 0 if node.kind == "null" else 1


def _decimal_column(node: AvroType, path: str) -> _Column | None:
    if logical_type(node) != "decimal":
        return None
    precision, scale = node.properties["precision"], node.properties.get("scale", 0)
    if precision > DECIMAL_DIGITS_MAX:
        raise NoColumnsError(
            f"{place(path)} is a decimal of {precision} digits; a column holds at most {DECIMAL_DIGITS_MAX}"
        )
    return _Column(type=pa.decimal128(precision, scale), layout=_FIXED_WIDTH, width=16)


def default_scalar(field: Field, kind: pa.DataType) -> pa.Scalar:
    """The default of a field as a value of its column."""
    return pa.array([_default(field.default, field.type, kind)], kind)[0]


def _default(value: Any, node: AvroType, kind: pa.DataType) -> Any:
    """The default of the schema's text as a value for Arrow."""
    if value is None:
        return None
    node = only_branch(node, "")
    match node:
        case Record():
            return {
                each.name: _default(value.get(each.name, each.default), each.type, kind.field(each.name).type)
                for each in node.fields
            }
        case Array():
            return [_default(each, node.items, kind.value_type) for each in value]
        case Map():
            return [(key, _default(each, node.values, kind.item_type)) for key, each in value.items()]
    if isinstance(node, Fixed) or node.kind == "bytes":
        raw = value.encode("latin-1")
        if pa.types.is_decimal(kind):
            return Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-kind.scale)
        return raw
    return value
