"""Avro schemas of Python classes: dataclasses, msgspec structs and Pydantic models.

int is a long and float a double; `Annotated[int, {"type": "int"}]` names another Avro type for a field, which decimals
need: `Annotated[Decimal, {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]`. A class attribute
`__avro_namespace__` is the namespace of its record.
"""

import dataclasses
import datetime
import enum
import types
import uuid
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from ottla.registry.schemas.avro.avro_types import is_strict_name
from ottla.registry.serde.errors import ValueNotSerializableError
from ottla.registry.serde.plain_values import is_class_of_records

_TYPES: Final[Mapping[Any, Any]] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime.datetime: {"type": "long", "logicalType": "timestamp-micros"},
    datetime.date: {"type": "int", "logicalType": "date"},
    datetime.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}
_NO_DEFAULT: Final[Any] = object()


def schema_of(kind: type[Any]) -> dict[str, Any]:
    """The Avro schema of a class, as JSON. Raises `ValueNotSerializableError` if a field has no Avro type."""
    return _record(kind, set())


def _record(kind: type[Any], written: set[type[Any]]) -> dict[str, Any]:
    written.add(kind)
    schema: dict[str, Any] = {"type": "record", "name": kind.__name__}
    space = getattr(kind, "__avro_namespace__", None)
    if space is not None:
        schema["namespace"] = space
    hints = get_type_hints(kind, include_extras=True)
    fields = []
    for attribute, name, default in _fields(kind):
        avro = _avro(hints[attribute], f"{kind.__name__}.{attribute}", written)
        if isinstance(avro, list) and default is None and "null" in avro:
            avro = ["null", *(each for each in avro if each != "null")]
        field = {"name": name, "type": avro}
        if default is not _NO_DEFAULT and _is_simple(default):
            field["default"] = default.value if isinstance(default, enum.Enum) else default
        fields.append(field)
    return {**schema, "fields": fields}


def _fields(kind: type[Any]) -> Iterator[tuple[str, str, Any]]:
    """Attributes, the names that they are written with, and defaults."""
    if hasattr(kind, "__struct_fields__"):
        for each in msgspec.structs.fields(kind):
            factory = each.default_factory
            made = _NO_DEFAULT if factory is msgspec.NODEFAULT else factory()
            yield each.name, each.encode_name, made if each.default is msgspec.NODEFAULT else each.default
    elif dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            made = _NO_DEFAULT if field.default_factory is dataclasses.MISSING else field.default_factory()
            yield field.name, field.name, made if field.default is dataclasses.MISSING else field.default
    else:
        for name, field in kind.model_fields.items():
            yield name, name, _NO_DEFAULT if field.is_required() else field.get_default(call_default_factory=True)


def _avro(hint: Any, place: str, written: set[type[Any]]) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        named = [each for each in arguments[1:] if isinstance(each, Mapping)]
        return dict(named[0]) if named else _avro(arguments[0], place, written)
    if origin in (Union, types.UnionType):
        return [_avro(each, place, written) for each in arguments]
    if origin in (list, Sequence, set, frozenset) or (origin is tuple and arguments[1:] == (...,)):
        return {"type": "array", "items": _avro(arguments[0], f"{place}[]", written)}
    if origin in (dict, Mapping) and arguments[0] is str:
        return {"type": "map", "values": _avro(arguments[1], f"{place}{{}}", written)}
    if hint is None:
        return "null"
    if hint in _TYPES:
        return _TYPES[hint]
    if is_class_of_records(hint):
        if hint in written:
            space = getattr(hint, "__avro_namespace__", None)
            return hint.__name__ if space is None else f"{space}.{hint.__name__}"
        return _record(hint, written)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        symbols = [each.value for each in hint]
        if not all(isinstance(each, str) and is_strict_name(each) for each in symbols):
            raise ValueNotSerializableError(f"{place}: the values of {hint.__name__} are not symbols of an Avro enum")
        if hint in written:
            return hint.__name__
        written.add(hint)
        return {"type": "enum", "name": hint.__name__, "symbols": symbols}
    more = "; annotate it with its precision and scale" if hint is Decimal else "; annotate it with an Avro type"
    raise ValueNotSerializableError(f"{place}: {hint} has no Avro type{more}")


def _is_simple(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str | enum.Enum) or value == [] or value == {}
