"""Lines into records: what `ottla produce` reads. Pure; the caller adds the number of a bad line to the error."""

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from ottla.model.errors import InvalidRequestError

Headers = tuple[tuple[str, bytes | None], ...]


class InputFormat(StrEnum):
    """How a record is written on a line."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class BadLineError(InvalidRequestError):
    """A line that is not a record, with the reason."""


class NewRecord(NamedTuple):
    """A record to be sent; without partition or timestamp the sender chooses."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineShape:
    """What separates the parts of a line: `headers<sep>key<sep>value`; only the value is required."""

    format: InputFormat = InputFormat.TEXT
    key_separator: bytes | None = None
    header_separator: bytes | None = None
    null_mark: bytes | None = None
    """A key or value that is exactly this is null."""
    key: bytes | None = None
    """For every record without its own."""
    headers: Headers = ()
    """For every record, before its own."""
    is_json_key: bool = False
    """Whether keys are JSON that is encoded by a schema."""
    is_json_value: bool = False

    @property
    def is_bare(self) -> bool:
        """Whether every line is just a value."""
        return self == LineShape()


def _from_hex(part: bytes) -> bytes:
    return binascii.unhexlify(part.strip())


def _from_base64(part: bytes) -> bytes:
    return base64.b64decode(part.strip(), validate=True)


_DECODE: Final[dict[InputFormat, Callable[[bytes], bytes]]] = {
    InputFormat.TEXT: bytes,
    InputFormat.HEX: _from_hex,
    InputFormat.BASE64: _from_base64,
}


def line_parser(shape: LineShape) -> Callable[[bytes], NewRecord]:
    """A function that turns a line, without its line end, into a record; it raises `BadLineError`."""
    if shape.format is InputFormat.JSON:
        return lambda line: _from_json(line, shape)
    plain = shape.format is InputFormat.TEXT and shape.null_mark is None
    if plain and shape.key_separator is None and shape.header_separator is None:
        key, headers = shape.key, shape.headers
        return lambda line: NewRecord(key, line, headers)
    return lambda line: _from_parts(line, shape)


def parse_headers(text: str) -> Headers:
    """`name=value,name=value`; `name=` has an empty value, `name` alone a null one. Raises `BadLineError`."""
    found: list[tuple[str, bytes | None]] = []
    for part in filter(None, text.split(",")):
        name, separator, value = part.partition("=")
        if not name:
            raise BadLineError(f"header {part!r} has no name; write NAME=VALUE, NAME= (empty) or NAME (null)")
        found.append((name, value.encode("utf-8", "surrogateescape") if separator else None))
    return tuple(found)


def _from_parts(line: bytes, shape: LineShape) -> NewRecord:
    headers, key = shape.headers, shape.key
    if shape.header_separator is not None:
        first, separator, line = line.partition(shape.header_separator)
        if not separator:
            raise BadLineError(f"it has no {shape.header_separator.decode()!r} after its headers")
        headers += parse_headers(first.decode("utf-8", "surrogateescape"))
    try:
        if shape.key_separator is not None:
            first, separator, rest = line.partition(shape.key_separator)
            if not separator:
                raise BadLineError(f"it has no {shape.key_separator.decode()!r} between key and value")
            key, line = _value(first, shape), rest
        return NewRecord(key, _value(line, shape), headers)
    except (binascii.Error, ValueError) as error:
        raise BadLineError(f"it is not {shape.format.value}: {error}") from error


def _value(part: bytes, shape: LineShape) -> bytes | None:
    return None if shape.null_mark is not None and part == shape.null_mark else _DECODE[shape.format](part)


# JSON lines

_IGNORED: Final = frozenset({"offset", "topic", "timestamp_type", "key_schema", "value_schema"})
"""Printed by `ottla consume`."""
_FIELDS: Final = frozenset({"key", "value", "headers", "timestamp", "partition"}) | _IGNORED


def _from_json(line: bytes, shape: LineShape) -> NewRecord:
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise BadLineError(f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadLineError('it is not a JSON object such as {"key": …, "value": …}')
    unknown = sorted(found.keys() - _FIELDS)
    if unknown:
        raise BadLineError(f"unknown field {unknown[0]!r}; known fields: {', '.join(sorted(_FIELDS))}")
    return NewRecord(
        _json_part(found["key"], "key", is_json=shape.is_json_key) if "key" in found else shape.key,
        _json_part(found.get("value"), "value", is_json=shape.is_json_value),
        (*shape.headers, *_json_headers(found.get("headers"))),
        _json_number(found.get("timestamp"), "timestamp", -(2**63)),
        _json_number(found.get("partition"), "partition", 0),
    )


def _json_part(value: Any, name: str, *, is_json: bool) -> bytes | None:
    if is_json:
        return None if value is None else msgspec.json.encode(value)
    return _json_bytes(value, name)


def _json_bytes(value: Any, name: str) -> bytes | None:
    """Text as UTF-8, `{"base64": "…"}` as bytes, null as null, anything else as its own JSON."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded)} if len(value) == 1:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise BadLineError(f"its {name} is not base64: {error}") from error
        case _:
            return msgspec.json.encode(value)


def _json_headers(value: Any) -> Iterator[tuple[str, bytes | None]]:
    """Headers from an object, or from a list of pairs if a name is repeated."""
    pairs = list(value.items()) if isinstance(value, dict) else [] if value is None else value
    if not isinstance(pairs, list):
        raise BadLineError("its headers are not an object or a list of [name, value]")
    for pair in pairs:
        match pair:
            case (str(name), held) | [str(name), held]:
                yield name, _json_bytes(held, f"header {name}")
            case _:
                raise BadLineError("its headers are not an object or a list of [name, value]")


def _json_number(value: Any, name: str, least: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
        raise BadLineError(f"its {name} {value!r} is not a valid {name}")
    return value
