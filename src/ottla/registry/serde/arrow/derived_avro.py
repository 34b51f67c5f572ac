"""The Avro schema of Arrow columns: fields that may be null are unions with null, whose default is null.

So a column that is added later makes a version that reads what was written before.
"""

import re
from typing import Any, Final

import pyarrow as pa

from ottla.registry.serde.errors import ValueNotSerializableError

_SIMPLE: Final[dict[pa.DataType, Any]] = {
    pa.null(): "null",
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_UNITS: Final = {"ms": "millis", "us": "micros", "ns": "nanos"}


def avro_name(text: str) -> str:
    """The name of a record for a topic: characters that names cannot have become underscores."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


def derived_avro(kind: pa.StructType, name: str) -> dict[str, Any]:
    """The schema of rows. `name` is the full name of the record. Raises `ValueNotSerializableError`."""
    namespace, _, short = name.rpartition(".")
    schema = _record(kind, short, "")
    return {**schema, "namespace": namespace} if namespace else schema


def _record(kind: pa.StructType, name: str, path: str) -> dict[str, Any]:
    fields = []
    for each in kind:
        if avro_name(each.name) != each.name:
            raise ValueNotSerializableError(
                f"column {path}{each.name} has a name that Avro does not allow; use letters, digits and underscores"
            )
        inner = _type(each.type, f"{name}_{each.name}", f"{path}{each.name}")
        if each.nullable and inner != "null":
            fields.append({"name": each.name, "type": ["null", inner], "default": None})
        else:
            fields.append({"name": each.name, "type": inner})
    return {"type": "record", "name": name, "fields": fields}


def _type(kind: pa.DataType, name: str, path: str) -> Any:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_struct(kind):
        return _record(kind, name, f"{path}.")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, name, f"{path}[]")}
    if pa.types.is_map(kind) and kind.key_type in (pa.string(), pa.large_string()):
        return {"type": "map", "values": _nullable(kind.item_field, name, f"{path}{{}}")}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind) and kind.unit in _UNITS:
        zone = "" if kind.tz else "local-"
        return {"type": "long", "logicalType": f"{zone}timestamp-{_UNITS[kind.unit]}"}
    raise ValueNotSerializableError(f"column {path} is of type {kind}, which Avro does not have; cast it")


def _nullable(field: pa.Field, name: str, path: str) -> Any:
    inner = _type(field.type, name, path)
    return ["null", inner] if field.nullable and inner != "null" else inner
