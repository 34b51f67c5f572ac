"""Rows of Arrow columns to Avro values, by the kernel `avro_encode`.

Columns are found by the names of the schema's fields and cast to the types of the schema first; a cast that would lose
something is refused. A field whose column is missing gets its default. Extra columns are refused: they would be lost.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.model.errors import InvalidRequestError
from ottla.registry.schemas.avro.avro_types import Array, AvroType, Enumeration, Fixed, Map, Record, Union
from ottla.registry.serde.arrow.avro_encode import encode
from ottla.registry.serde.arrow.avro_plan import AvroColumns, default_scalar, only_branch, place

# As in `avro_encode.pyx`.
_NULL, _BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _FIXED, _ENUM, _ARRAY, _MAP, _RECORD, _NULLABLE = range(13)
_DECIMAL_BYTES, _DECIMAL_FIXED = 13, 14
_CODES: Final = {
    "null": _NULL,
    "boolean": _BOOLEAN,
    "int": _INT,
    "long": _LONG,
    "float": _FLOAT,
    "double": _DOUBLE,
    "bytes": _BYTES,
    "string": _BYTES,
}
_INSTRUCTION: Final = Struct("=6i")


class RowError(InvalidRequestError):
    """A table does not fit the schema. The message names the column, and the row if it is a value."""


class AvroRows:
    """Encodes rows by one schema."""

    def __init__(self, schema: AvroType) -> None:
        """Raises `NoColumnsError` for a schema whose values cannot be columns."""
        self._schema = schema
        self.type: pa.StructType = AvroColumns(schema).type
        """The struct of the columns."""

    def encode(self, rows: pa.StructArray, prefix: bytes = b"") -> pa.BinaryArray:
        """The value of each row, after the prefix. Raises `RowError`."""
        plan = _Plan()
        plan.add(self._schema, rows, self.type, "")
        found = encode(
            b"".join(_INSTRUCTION.pack(*each) for each in plan.program),
            b"".join(each.to_bytes(4, "little") for each in plan.branches),
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
    """The instructions for one table; they differ only in which columns have nulls, but are quickly made."""

    def __init__(self) -> None:
        self.program: list[tuple[int, int, int, int, int, int]] = []
        self.paths: list[str] = []
        self.branches: list[int] = []
        self.columns: list[pa.Array] = []

    def add(self, schema: AvroType, values: pa.Array, kind: pa.DataType, path: str) -> int:
        """The instruction that writes a column's values; returns its index."""
        index = len(self.program)
        if pa.types.is_null(values.type) and not pa.types.is_null(kind):
            # Arrow keeps no validity bits for columns of this type.
            values = pa.nulls(len(values), kind)
        self.program.append((_NULL, 0, 0, 0, 0, 0))
        self.paths.append(path)
        kinds = [each.kind for each in schema.branches] if isinstance(schema, Union) else []
        if isinstance(schema, Union) and len(kinds) > 1 and "null" in kinds:
            column = self._column(values)
            null = kinds.index("null")
            chosen = only_branch(schema, path)
            other = schema.branches.index(chosen)
            self.program[index] = (_NULLABLE, column, null, other, self.add(chosen, values, kind, path), 0)
            return index
        schema = only_branch(schema, path)
        match schema:
            case Record():
                self._record(index, schema, values, kind, path)
            case Array():
                values = cast_list(values, path)
                column = self._column(values)
                child = self.add(schema.items, values.values, kind.value_type, f"{path}[]")
                self.program[index] = (_ARRAY, column, 0, 0, child, 0)
            case Map():
                self._map(index, schema, values, kind, path)
            case Enumeration():
                numbers = pc.index_in(
                    cast_column(values, pa.string(), path), value_set=pa.array(schema.symbols, pa.string())
                )
                has_unknown = numbers.null_count > values.null_count
                self.program[index] = (_ENUM, self._column(numbers.cast(pa.int32())), int(has_unknown), 0, 0, 0)
            case Fixed():
                column = self._column(cast_column(values, kind, path))
                code = _DECIMAL_FIXED if pa.types.is_decimal(kind) else _FIXED
                self.program[index] = (code, column, schema.size, 0, 0, 0)
            case _:
                column = self._column(cast_column(values, kind, path))
                code = _DECIMAL_BYTES if pa.types.is_decimal(kind) else _CODES[schema.kind]
                self.program[index] = (code, column, 0, 0, 0, 0)
        return index

    def _record(self, index: int, schema: Record, values: pa.Array, kind: pa.DataType, path: str) -> None:
        if not pa.types.is_struct(values.type):
            raise RowError(f"{place(path)} is of type {values.type}; the schema has a record")
        present = [each.name for each in values.type]
        extra = sorted(set(present) - set(schema.by_name))
        if extra:
            name = f"{path}.{extra[0]}"[1:]
            raise RowError(f"the schema has no field for column {name}; drop it, or evolve the schema")
        column = self._column(values)
        steps = []
        for each in schema.fields:
            inner, where = kind.field(each.name).type, f"{path}.{each.name}"
            if each.name in present:
                found = values.field(each.name)
            elif each.has_default:
                found = pa.repeat(default_scalar(each, inner), len(values))
            else:
                raise RowError(f"{place(where)} has no column, and no default in the schema")
            steps.append(self.add(each.type, found, inner, where))
        self.program[index] = (_RECORD, column, 0, 0, len(self.branches), len(steps))
        self.branches += steps

    def _map(self, index: int, schema: Map, values: pa.Array, kind: pa.DataType, path: str) -> None:
        if not pa.types.is_map(values.type):
            raise RowError(f"{place(path)} is of type {values.type}; the schema has a map")
        column = self._column(values)
        keys = len(self.program)
        self.program.append((_BYTES, self._column(cast_column(values.keys, pa.string(), path)), 0, 0, 0, 0))
        self.paths.append(path)
        child = self.add(schema.values, values.items, kind.item_type, f"{path}{{}}")
        self.program[index] = (_MAP, column, keys, 0, child, 0)

    def _column(self, values: pa.Array) -> int:
        self.columns.append(values)
        return len(self.columns) - 1


def cast_column(values: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    """The values as a type that is written. Raises `RowError` if something would be lost."""
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except pa.ArrowException as error:
        raise RowError(f"{place(path)} of type {values.type} cannot be written as {kind}: {error}") from error


def cast_list(values: pa.Array, path: str, what: str = "an array") -> pa.Array:
    """The values as lists with offsets of 32 bits; `what` the schema has. Raises `RowError`."""
    if pa.types.is_list(values.type):
        return values
    try:
        return values.cast(pa.list_(values.type.value_type))
    except (pa.ArrowException, AttributeError) as error:
        raise RowError(f"{place(path)} is of type {values.type}; the schema has {what}") from error


def addresses(values: pa.Array) -> tuple[int, int, int, int]:
    """The addresses of validity, data and offsets, and the array's own offset."""
    buffers: Sequence[pa.Buffer | None] = values.buffers()
    validity = _address(buffers[0]) if values.null_count else 0
    if pa.types.is_list(values.type) or pa.types.is_map(values.type):
        return validity, 0, _address(buffers[1]), values.offset
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type):
        return validity, _address(buffers[2]), _address(buffers[1]), values.offset
    if pa.types.is_struct(values.type) or pa.types.is_null(values.type):
        return validity, 0, 0, values.offset
    return validity, _address(buffers[1]), 0, values.offset


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else buffer.address
