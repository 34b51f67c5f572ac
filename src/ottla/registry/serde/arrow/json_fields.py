"""JSON Schema as columns: only fields with one clear type; for others, the query must have a schema.

Supported are `properties` with `type`, `items`, `additionalProperties`, the formats `date` and `date-time`, and null as
one of two choices (`type: [null, X]`, or `oneOf` / `anyOf` of null and X).
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from ottla.model.errors import InvalidRequestError

_DEPTH_MAX: Final = 64
_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
}
_FORMATS: Final[Mapping[str, pa.DataType]] = {"date": pa.date32(), "date-time": pa.timestamp("us", "UTC")}


class JsonSchemaError(InvalidRequestError):
    """A JSON Schema from which columns cannot be derived."""


def json_schema_fields(text: str) -> list[pa.Field]:
    """The fields of the schema of an object; raises `JsonSchemaError`."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonSchemaError(f"not a valid JSON Schema: {error}") from error
    kind = _type(schema, "the value", 0)
    if not pa.types.is_struct(kind):
        raise JsonSchemaError("the JSON Schema is not that of an object with properties")
    return list(kind)


def _type(schema: Any, path: str, depth: int) -> pa.DataType:
    if not isinstance(schema, dict) or depth > _DEPTH_MAX:
        raise JsonSchemaError(f"{path}: the JSON Schema does not give its type; set a schema in the query")
    for choice in ("oneOf", "anyOf"):
        others = [each for each in schema.get(choice, ()) if each != {"type": "null"}]
        if len(others) == 1:
            return _type(others[0], path, depth + 1)
    name = schema.get("type")
    if isinstance(name, list):
        names = [each for each in name if each != "null"]
        name = names[0] if len(names) == 1 else None
    if name == "object" and isinstance(schema.get("properties"), dict) and schema["properties"]:
        fields = schema["properties"].items()
        return pa.struct([pa.field(key, _type(each, f"{path}.{key}", depth + 1)) for key, each in fields])
    if name == "object" and isinstance(schema.get("additionalProperties"), dict):
        return pa.map_(pa.string(), _type(schema["additionalProperties"], f"{path}{{}}", depth + 1))
    if name == "array" and "items" in schema:
        return pa.list_(pa.field("element", _type(schema["items"], f"{path}[]", depth + 1)))
    if name == "string":
        return _FORMATS.get(str(schema.get("format")), pa.string())
    if isinstance(name, str) and name in _SIMPLE:
        return _SIMPLE[name]
    raise JsonSchemaError(f"{path}: the JSON Schema does not give its type; set a schema in the query")


def unreadable_field(written: pa.DataType, wanted: pa.DataType, path: str = "") -> str | None:
    """Which field of the wanted struct has a type that cannot be read in the writer's schema, in a sentence, if any.

    Numbers can be read as wider ones, strings as dates and times, and everything as a string.
    """
    if pa.types.is_struct(wanted) and pa.types.is_struct(written):
        names = {each.name: each.type for each in written}
        both = [each for each in wanted if each.name in names]
        found = (unreadable_field(names[each.name], each.type, f"{path}.{each.name}") for each in both)
        return next((each for each in found if each is not None), None)
    if pa.types.is_list(wanted) and pa.types.is_list(written):
        return unreadable_field(written.value_type, wanted.value_type, f"{path}[]")
    if pa.types.is_map(wanted) and pa.types.is_struct(written):
        return None
    if pa.types.is_map(wanted) and pa.types.is_map(written):
        return unreadable_field(written.item_type, wanted.item_type, f"{path}{{}}")
    if written == wanted or pa.types.is_string(wanted) or _family(written) in _READABLE_AS.get(_family(wanted), ()):
        return None
    return f"field {path[1:]} is {written} in the writer's schema, which cannot be read as {wanted}"


_READABLE_AS: Final[Mapping[str, tuple[str, ...]]] = {
    "integer": ("integer",),
    "number": ("integer", "number"),
    "text": ("text",),
}


def _family(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_temporal(kind)
    return "text" if is_text else str(kind)
