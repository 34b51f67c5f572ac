"""Decoders of columns by schemas of each language, for `column_readers.py`.

The column of a record, message or object is a struct; other Avro values, such as keys of type string, have a column of
their own type. JSON values are read one by one, and dates in them stay text, as JSON has them; a schema that does not
give one clear type for each property has a column with the text of the values.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor

from ottla.registry.schemas.avro.avro_schema import AvroSchema
from ottla.registry.schemas.avro.avro_types import AvroType, Field, Name, Record
from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.serde.arrow.avro_plan import AvroColumns
from ottla.registry.serde.arrow.framed_columns import Bad, Decode
from ottla.registry.serde.arrow.json_fields import JsonSchemaError, json_schema_fields
from ottla.registry.serde.arrow.protobuf_plan import ProtobufColumns
from ottla.registry.serde.errors import ValueNotReadableError

_ONLY_FIELD = "value"


def as_record(root: AvroType) -> Record:
    """A record with the value as its only field, which is encoded in the same way."""
    if isinstance(root, Record):
        return root
    only = Field(name=_ONLY_FIELD, type=root)
    return Record(kind="record", name=Name("Value", None), fields=[only], by_name={_ONLY_FIELD: only})


def avro_decoder(writer: AvroSchema, reader: AvroSchema) -> tuple[Decode, pa.DataType]:
    """Raises `NoColumnsError` if the reader cannot read what the writer wrote, or has no columns."""
    if writer.root.kind == reader.root.kind == "bytes":
        # As in Java, bytes that are not part of a record are written without their length.
        return _after_prefix, pa.binary()
    columns = AvroColumns(as_record(writer.root), as_record(reader.root))
    if isinstance(reader.root, Record):
        return columns.decode, columns.type

    def decode_only(values: pa.Array, skip: int) -> tuple[pa.Array, Bad]:
        rows, bad = columns.decode(values, skip)
        # `flatten` carries the nulls of bad rows over to the field.
        return rows.flatten()[0], bad

    return decode_only, columns.type.field(0).type


def _after_prefix(values: pa.Array, skip: int) -> tuple[pa.Array, Bad]:
    return pc.binary_replace_slice(values, start=0, stop=skip, replacement=b""), []


class WrittenMessage(NamedTuple):
    """A message of a schema, or of a generated class."""

    schema: ProtobufSchema | None
    descriptor: Descriptor


def protobuf_decoder(writer: WrittenMessage, reader: WrittenMessage) -> tuple[Decode, pa.DataType]:
    """Raises `ValueNotReadableError` if the schemas are not compatible, `NoColumnsError` for recursive messages."""
    if writer is not reader:
        names = writer.descriptor.full_name, reader.descriptor.full_name
        is_other = (
            names[0] != names[1] if reader.schema is not None else writer.descriptor.name != reader.descriptor.name
        )
        if is_other:
            raise ValueNotReadableError(f"the value is a {names[0]}, not a {names[1]}")
        if reader.schema is not None and writer.schema is not None:
            reasons = reader.schema.incompatibilities(writer.schema)
            if reasons:
                raise ValueNotReadableError(
                    f"the reader's schema cannot read it: {reasons[0].path}: {reasons[0].message}"
                )
    columns = ProtobufColumns(reader.descriptor)
    return columns.decode, columns.type


def json_decoder(text: str, read: Callable[[memoryview], Any]) -> tuple[Decode, pa.DataType]:
    """The columns of a JSON Schema. `read` returns a value, or raises `ValueNotReadableError`."""
    try:
        kind: pa.DataType = pa.struct([_as_written(each) for each in json_schema_fields(text)])
    except JsonSchemaError:
        kind = pa.string()

    def decode(values: pa.Array, skip: int) -> tuple[pa.Array, Bad]:
        bad: Bad = []
        found: list[Any] = []
        for row, value in enumerate(values):
            data = memoryview(value.as_buffer())[skip:]
            try:
                one = read(data)
                found.append(str(data, "utf-8") if kind == pa.string() else _checked(one, kind))
            except ValueNotReadableError as error:
                found.append(None)
                bad.append((row, str(error)))
        return pa.array(found, kind), bad

    return decode, kind


def _checked(value: Any, kind: pa.DataType) -> Any:
    """The value, if it fits the columns: a schema may permit more than it says."""
    try:
        pa.array([value], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueNotReadableError(f"the value does not fit the columns of the schema: {error}") from error
    return value


def _as_written(field: pa.Field) -> pa.Field:
    return field.with_type(_text_for_times(field.type))


def _text_for_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([_as_written(each) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_written(kind.value_field))
    return pa.map_(pa.string(), _text_for_times(kind.item_type)) if pa.types.is_map(kind) else kind
