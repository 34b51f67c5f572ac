"""Avro values as JSON that people write and read, and back. Pure.

Unions are plain values, as in `{"note": null}`; Avro's own form, `{"note": {"string": "x"}}`, is read too. Bytes are
strings of the characters 0 to 255, as in Avro's own form. Times are texts of ISO 8601, decimals are texts with their
digits; numbers are read too, as Avro stores them.
"""

import datetime
import decimal
import math
import uuid
from collections.abc import Callable
from typing import Any, Final

from ottla.registry.schemas.avro.avro_types import Array, AvroType, Enumeration, Fixed, Map, Named, Record, Union
from ottla.registry.schemas.avro.logical_types import logical_type
from ottla.registry.serde.errors import ValueNotSerializableError

DEPTH_MAX: Final = 200
_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SHOWN_CHARACTERS_MAX: Final = 40
_Known = dict[tuple[int, int], tuple[Any, ValueNotSerializableError | None]]
"""By union and object, both by their identity: what was read, or the error."""


def to_json(value: Any) -> Any:
    """The value in what JSON has."""
    match value:
        case dict():
            return {str(key): to_json(item) for key, item in value.items()}
        case list() | tuple():
            return [to_json(item) for item in value]
        case bytes():
            return value.decode("latin-1")
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID():
            return str(value)
    return value


def from_json(schema: AvroType, value: Any) -> Any:
    """The value that a serializer writes with the schema. Raises `ValueNotSerializableError` that names the field."""
    return _read(schema, value, "", 0, {})


def _read(schema: AvroType, value: Any, path: str, depth: int, known: _Known) -> Any:
    if depth > DEPTH_MAX:
        raise _wrong(path, f"nested more than {DEPTH_MAX} levels deep")
    match schema:
        case Record():
            return _record(schema, value, path, depth, known)
        case Union():
            return _union(schema, value, path, depth, known)
        case Array() if isinstance(value, list):
            return [_read(schema.items, item, f"{path}[{at}]", depth + 1, known) for at, item in enumerate(value)]
        case Map() if isinstance(value, dict):
            return {
                key: _read(schema.values, item, _inside(path, key), depth + 1, known) for key, item in value.items()
            }
        case Enumeration():
            if value in schema.symbols:
                return value
            raise _wrong(path, f"{_shown(value)} is not one of {', '.join(schema.symbols)}")
    read = _LOGICAL.get(logical_type(schema) or "")
    if read is not None:
        try:
            found = read(value)
        except (ValueError, ArithmeticError) as error:
            raise _wrong(path, f"{_shown(value)} is not a {logical_type(schema)}: {error}") from None
        if found is not None:
            return found
    takes = _TAKES.get(schema.kind)
    found = None if takes is None else takes(schema, value)
    if found is None and not (schema.kind == "null" and value is None):
        raise _wrong(path, f"expected {_kind_text(schema)}, not {_shown(value)}")
    return found


def _record(schema: Record, value: Any, path: str, depth: int, known: _Known) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong(path, f"expected an object with the fields of {schema.name.full}, not {_shown(value)}")
    for name in value:
        if name not in schema.by_name:
            fields = ", ".join(schema.by_name) or "none"
            raise _wrong(_inside(path, name), f"{schema.name.full} has no such field; its fields: {fields}")
    found = {}
    for field in schema.fields:
        if field.name in value:
            found[field.name] = _read(field.type, value[field.name], _inside(path, field.name), depth + 1, known)
        elif not field.has_default:
            raise _wrong(_inside(path, field.name), "it is missing, and the schema has no default for it")
    return found


def _union(schema: Union, value: Any, path: str, depth: int, known: _Known) -> Any:
    """Tries each branch. What a union makes of an object is remembered: nested unions of records with the same fields
    would be tried again for each branch around them, which takes exponential time."""
    if not isinstance(value, dict | list):
        return _branch(schema, value, path, depth, known)
    place = id(schema), id(value)
    found = known.get(place)
    if found is None:
        try:
            found = _branch(schema, value, path, depth, known), None
        except ValueNotSerializableError as error:
            found = None, error
        known[place] = found
    read, failed = found
    if failed is not None:
        raise failed
    return read


def _branch(schema: Union, value: Any, path: str, depth: int, known: _Known) -> Any:
    if value is None and any(branch.kind == "null" for branch in schema.branches):
        return None
    branches = [branch for branch in schema.branches if branch.kind != "null"]
    if isinstance(value, dict) and len(value) == 1:
        (tag,) = value
        for branch in branches:
            if tag == _branch_name(branch):
                return _chosen(branches, branch, _read(branch, value[tag], path, depth + 1, known))
    errors = []
    for branch in branches:
        try:
            return _chosen(branches, branch, _read(branch, value, path, depth + 1, known))
        except ValueNotSerializableError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    kinds = ", ".join(_branch_name(branch) for branch in schema.branches)
    raise _wrong(path, f"{_shown(value)} fits none of {kinds}")


def _chosen(branches: list[AvroType], branch: AvroType, value: Any) -> Any:
    """With several named types, the encoder is told which one it is."""
    is_clear = sum(isinstance(each, Named) for each in branches) < 2
    return value if is_clear or not isinstance(branch, Named) else (_branch_name(branch), value)


def _branch_name(branch: AvroType) -> str:
    return branch.name.full if isinstance(branch, Named) else branch.kind


def _kind_text(schema: AvroType) -> str:
    return f"{schema.size} bytes" if isinstance(schema, Fixed) else schema.kind


# Scalars


def _whole(bits: int) -> Callable[[AvroType, Any], Any]:
    def take(_: AvroType, value: Any) -> Any:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and -(1 << bits - 1) <= value < 1 << bits - 1 else None

    return take


def _number(_: AvroType, value: Any) -> float | None:
    if isinstance(value, str):
        return _FLOATS.get(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _bytes(schema: AvroType, value: Any) -> bytes | None:
    if not isinstance(value, str) or any(ord(each) > 255 for each in value):
        return None
    found = value.encode("latin-1")
    return found if not isinstance(schema, Fixed) or len(found) == schema.size else None


_TAKES: Final[dict[str, Callable[[AvroType, Any], Any]]] = {
    "boolean": lambda _, value: value if isinstance(value, bool) else None,
    "int": _whole(32),
    "long": _whole(64),
    "float": _number,
    "double": _number,
    "string": lambda _, value: value if isinstance(value, str) else None,
    "bytes": _bytes,
    "fixed": _bytes,
}


def _moment(value: Any) -> datetime.datetime | None:
    if not isinstance(value, str):
        return None
    found = datetime.datetime.fromisoformat(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=datetime.UTC)


def _local_moment(value: Any) -> datetime.datetime | None:
    return datetime.datetime.fromisoformat(value) if isinstance(value, str) else None


def _decimal(value: Any) -> decimal.Decimal | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return decimal.Decimal(str(value))


_LOGICAL: Final[dict[str, Callable[[Any], Any]]] = {
    "date": lambda value: datetime.date.fromisoformat(value) if isinstance(value, str) else None,
    "time-millis": lambda value: datetime.time.fromisoformat(value) if isinstance(value, str) else None,
    "time-micros": lambda value: datetime.time.fromisoformat(value) if isinstance(value, str) else None,
    "timestamp-millis": _moment,
    "timestamp-micros": _moment,
    "local-timestamp-millis": _local_moment,
    "local-timestamp-micros": _local_moment,
    "decimal": _decimal,
    "uuid": lambda value: str(uuid.UUID(value)) if isinstance(value, str) else None,
}
"""How texts of logical types are read; None leaves the value to the type below."""


def _inside(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _wrong(path: str, reason: str) -> ValueNotSerializableError:
    return ValueNotSerializableError(f"field {path}: {reason}" if path else reason)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."
