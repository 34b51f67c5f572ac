"""JSON Schema as columns: only what says plainly which type a field has; for the rest, the query must say it.

Read are `properties` with `type`, `items`, `additionalProperties`, the formats `date` and `date-time`, and null as one
of two choices (`type: [null, X]`, or `oneOf` / `anyOf` of null and X).
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
    """No columns can be made of a JSON Schema. Names the place."""


def json_schema_fields(text: str) -> list[pa.Field]:
    """The fields of an object's schema; raises `JsonSchemaError`."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonSchemaError(f"this is no JSON Schema: {error}") from error
    kind = _type(schema, "the value", 0)
    if not pa.types.is_struct(kind):
        raise JsonSchemaError("the JSON Schema is not that of an object with properties")
    return list(kind)


def _type(schema: Any, path: str, depth: int) -> pa.DataType:
    if not isinstance(schema, dict) or depth > _DEPTH_MAX:
        raise JsonSchemaError(f"{path}: its JSON Schema does not say which type it has; give the query a schema")
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
    raise JsonSchemaError(f"{path}: its JSON Schema does not say which type it has; give the query a schema")
