"""Writers of columns by schemas of each language: the bytes of the serializers of single records. Nulls stay null."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor

from ottla.client.values import Header
from ottla.registry.schemas.avro.avro_schema import AvroSchema
from ottla.registry.schemas.avro.avro_types import Record
from ottla.registry.serde.arrow.avro_rows import AvroRows
from ottla.registry.serde.arrow.column_decoders import as_record
from ottla.registry.serde.arrow.derived_avro import avro_name, derived_avro
from ottla.registry.serde.arrow.protobuf_rows import ProtobufRows

Encode = Callable[[pa.Array, bytes], pa.Array]
"""The bytes of values, none of which is null, each after a prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnWriter:
    """Writes columns with one schema and id."""

    encode: Encode
    prefix: bytes
    headers: Sequence[Header]
    deadline: float

    def write(self, values: pa.Array) -> tuple[pa.Array, Sequence[Header]]:
        """The bytes, and headers to add to those that are not null. Raises what `encode` raises."""
        if not values.null_count:
            return self.encode(values, self.prefix), self.headers
        data = self.encode(values.drop_null(), self.prefix)
        is_valid = values.is_valid()
        numbers = pc.subtract(pc.cumulative_sum(is_valid.cast(pa.int64())), 1)
        return data.take(pc.if_else(is_valid, numbers, pa.scalar(None, pa.int64()))), self.headers


def derived_avro_text(kind: pa.DataType, name: str) -> str:
    """The Avro schema of a column, as JSON. Raises `ValueNotSerializableError`."""
    if pa.types.is_struct(kind):
        return json.dumps(derived_avro(kind, avro_name(name)))
    only = pa.struct([pa.field("value", kind, nullable=False)])
    return json.dumps(derived_avro(only, avro_name(name))["fields"][0]["type"])


def avro_encoder(avro: AvroSchema) -> Encode:
    """Raises `NoColumnsError` for a schema whose values cannot be columns."""
    if avro.root.kind == "bytes":
        return lambda values, prefix: pc.binary_join_element_wise(prefix, values.cast(pa.binary()), b"")
    rows = AvroRows(as_record(avro.root))
    if isinstance(avro.root, Record):
        return rows.encode

    def encode_only(values: pa.Array, prefix: bytes) -> pa.Array:
        return rows.encode(pa.StructArray.from_arrays([values], [rows.type.field(0).name]), prefix)

    return encode_only


def protobuf_encoder(message: Descriptor) -> Encode:
    """Raises `NoColumnsError` for a message whose values cannot be columns."""
    return ProtobufRows(message).encode


def json_encoder(write: Callable[[Any], bytes]) -> Encode:
    """JSON is written value by value, by a function that adds the prefix."""

    def encode(values: pa.Array, _prefix: bytes) -> pa.Array:
        kind = values.type
        return pa.array([write(_as_json(each, kind)) for each in values.to_pylist()], pa.binary())

    return encode


def _as_json(value: Any, kind: pa.DataType) -> Any:
    """Arrow gives maps as lists of pairs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _as_json(value[each.name], each.type) for each in kind}
    if pa.types.is_map(kind):
        return {key: _as_json(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_as_json(each, kind.value_type) for each in value]
    return value
