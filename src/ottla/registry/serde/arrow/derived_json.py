"""The JSON Schema of Arrow columns. Objects permit no other properties, so that a column can be added later."""

from typing import Any, Final

import pyarrow as pa

from ottla.registry.serde.errors import ValueNotSerializableError

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def derived_json(kind: pa.StructType, title: str) -> dict[str, Any]:
    """The schema of rows. Raises `ValueNotSerializableError` for a type that JSON does not have."""
    return {"$schema": _DIALECT, "title": title, **_object(kind, "")}


def _object(kind: pa.StructType, path: str) -> dict[str, Any]:
    properties = {each.name: _nullable(each, f"{path}{each.name}") for each in kind}
    required = [each.name for each in kind if not each.nullable]
    found: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": required} if required else found


def _nullable(field: pa.Field, path: str) -> dict[str, Any]:
    inner = _type(field.type, path)
    return {"oneOf": [{"type": "null"}, inner]} if field.nullable else inner


def _type(kind: pa.DataType, path: str) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return _object(kind, f"{path}.")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": _nullable(kind.value_field, f"{path}[]")}
    if pa.types.is_map(kind):
        return {"type": "object", "additionalProperties": _nullable(kind.item_field, f"{path}{{}}")}
    if pa.types.is_boolean(kind):
        return {"type": "boolean"}
    if pa.types.is_integer(kind):
        return {"type": "integer"}
    if pa.types.is_floating(kind):
        return {"type": "number"}
    if pa.types.is_date(kind):
        return {"type": "string", "format": "date"}
    if pa.types.is_timestamp(kind):
        # Without a zone it is not the date-time of JSON Schema.
        return {"type": "string", "format": "date-time"} if kind.tz else {"type": "string"}
    # Decimals keep all digits as strings; bytes are base64.
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_decimal(kind):
        return {"type": "string"}
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return {"type": "string", "contentEncoding": "base64"}
    raise ValueNotSerializableError(f"column {path} is of type {kind}, which JSON does not have; cast it")
