"""Avro schemas as Arrow types, as Spark's own Avro reader maps them; what cannot be read safely is refused here.

Avro allows schemas that a few hostile bytes turn into endless work: an array of nulls takes no bytes for each of its
2^60 elements, and a type that contains itself nests as deep as the writer likes. Neither has a place in a table, so
both are refused before any value is read. Logical types other than decimals are taken off: the decoder reads plain
numbers, and Arrow makes days and instants of whole columns.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from ottla.model.errors import InvalidRequestError

_PRIMITIVE: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_WIDER: Final[Mapping[frozenset[str], str]] = {
    frozenset({"int", "long"}): "long",
    frozenset({"float", "double"}): "double",
}
_DECIMAL_DIGITS_MAX: Final = 38


class AvroSchemaError(InvalidRequestError):
    """An Avro schema is not valid, or describes values that cannot become rows of a table. Names the place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """A schema ready to decode with."""

    parsed: Any
    """For fastavro: names resolved, logical types other than decimals taken off."""
    type: pa.DataType
    """The struct that its values become, with the units that the writer used."""

    @property
    def fields(self) -> list[pa.Field]:
        """The fields as Spark has them: instants in microseconds."""
        return [pa.field(each.name, _spark_type(each.type)) for each in self.type]


def avro_schema(text: str, references: Iterable[str] = ()) -> AvroSchema:
    """Reads a schema; `references` are the texts of schemas that it names, each after those that it names itself.

    Raises `AvroSchemaError`.
    """
    # Imported late: programs that decode no Avro need not have it installed.
    import fastavro
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, Any] = {}
    try:
        for each in references:
            fastavro.parse_schema(json.loads(each), named_schemas=named)
        expanded = fastavro.schema.parse_schema(json.loads(text), named_schemas=named, expand=True)
    except (SchemaParseException, UnknownType, ValueError, TypeError, KeyError, RecursionError) as error:
        raise AvroSchemaError(f"this is no Avro schema: {type(error).__name__}: {error}") from error
    if not isinstance(expanded, dict) or expanded.get("type") != "record":
        raise AvroSchemaError("the Avro schema is no record, so it has no fields that could become columns")
    kind, plain, _ = _read(expanded, "the value")
    return AvroSchema(parsed=fastavro.parse_schema(_named_once(plain, set())), type=kind)


def _read(schema: Any, path: str) -> tuple[pa.DataType, Any, int]:
    """The Arrow type, the schema without logical types, and the least number of bytes that a value takes."""
    if isinstance(schema, list):
        return _read_union(schema, path)
    name = schema if isinstance(schema, str) else schema["type"]
    attributes: Mapping[str, Any] = {} if isinstance(schema, str) else schema
    if isinstance(name, dict | list):
        return _read(name, path)
    if name == "record" or name == "error":
        return _read_record(attributes, path)
    if name == "array":
        kind, plain, least = _read(attributes["items"], f"{path}[]")
        if least == 0:
            raise AvroSchemaError(f"{path} is an array whose elements take no bytes, which no reader can bound")
        return pa.list_(pa.field("element", kind)), {"type": "array", "items": plain}, 1
    if name == "map":
        kind, plain, _ = _read(attributes["values"], f"{path}{{}}")
        return pa.map_(pa.string(), kind), {"type": "map", "values": plain}, 1
    if name == "enum":
        return pa.string(), dict(attributes), 1
    decimal = _decimal(name, attributes, path)
    if name == "fixed":
        size = int(attributes["size"])
        plain = dict(attributes) if decimal else {key: attributes[key] for key in ("type", "name", "size")}
        return decimal or pa.binary(), plain, size
    if name not in _PRIMITIVE:
        raise AvroSchemaError(f"{path} is of type {name}, which contains itself; rows of a table cannot")
    if decimal is not None:
        return decimal, dict(attributes), 1
    logical = str(attributes.get("logicalType", ""))
    return _LOGICAL.get((name, logical), _PRIMITIVE[name]), name, 0 if name == "null" else 1


def _read_record(schema: Mapping[str, Any], path: str) -> tuple[pa.DataType, Any, int]:
    fields: list[pa.Field] = []
    plain: list[dict[str, Any]] = []
    width = 0
    for each in schema["fields"]:
        kind, inner, least = _read(each["type"], f"{path}.{each['name']}")
        fields.append(pa.field(each["name"], kind))
        kept = {key: each[key] for key in ("default", "aliases") if key in each}
        plain.append({"name": each["name"], "type": inner, **kept})
        width += least
    kept = {key: schema[key] for key in ("aliases",) if key in schema}
    return pa.struct(fields), {"type": "record", "name": schema["name"], "fields": plain, **kept}, width


def _read_union(schema: list[Any], path: str) -> tuple[pa.DataType, Any, int]:
    read = [_read(each, path) for each in schema]
    plain = [each[1] for each in read]
    kinds = [each[0] for each in read if not pa.types.is_null(each[0])]
    if not kinds:
        return pa.null(), plain, 1
    if len(kinds) == 1:
        return kinds[0], plain, 1
    names = frozenset(each for each in plain if isinstance(each, str) and each != "null")
    if len(names) == len(kinds) and names in _WIDER:
        return _PRIMITIVE[_WIDER[names]], plain, 1
    raise AvroSchemaError(f"{path} is a union of several types, which one column cannot hold")


def _decimal(name: str, attributes: Mapping[str, Any], path: str) -> pa.DataType | None:
    if name not in ("bytes", "fixed") or attributes.get("logicalType") != "decimal":
        return None
    precision, scale = int(attributes["precision"]), int(attributes.get("scale", 0))
    if precision > _DECIMAL_DIGITS_MAX:
        raise AvroSchemaError(f"{path} is a decimal of {precision} digits; there are at most {_DECIMAL_DIGITS_MAX}")
    return pa.decimal128(precision, scale)


def _named_once(schema: Any, seen: set[str]) -> Any:
    """The schema with each named type written out where it is first met: twice is an error to the parser."""
    if isinstance(schema, list):
        return [_named_once(each, seen) for each in schema]
    if not isinstance(schema, dict):
        return schema
    name = schema.get("name")
    if name is not None and schema.get("type") in ("record", "error", "enum", "fixed"):
        if name in seen:
            return name
        seen.add(name)
    found = dict(schema)
    if "fields" in found:
        found["fields"] = [{**each, "type": _named_once(each["type"], seen)} for each in found["fields"]]
    for inner in ("items", "values"):
        if inner in found:
            found[inner] = _named_once(found[inner], seen)
    return found


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _spark_type(each.type)) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _spark_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _spark_type(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.string() if pa.types.is_null(kind) else kind
