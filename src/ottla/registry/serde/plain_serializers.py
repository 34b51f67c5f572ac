"""Serializers and deserializers that need no schema, with the bytes of Kafka's Java classes.

Numbers are big-endian and of fixed size, UUIDs are text, JSON is UTF-8. None stays None, as a null key or value.

    Producer(key_serializer=serialize_long, value_serializer=serialize_json)
"""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

import msgspec

_SHORT: Final = Struct(">h")
_INTEGER: Final = Struct(">i")
_LONG: Final = Struct(">q")
_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")


def serialize_string(value: str | None) -> bytes | None:
    """UTF-8."""
    return None if value is None else value.encode()


def deserialize_string(data: bytes) -> str:
    """UTF-8."""
    return data.decode()


def serialize_bytes(value: bytes | None) -> bytes | None:
    """The bytes as they are."""
    return value


def deserialize_bytes(data: bytes) -> bytes:
    """The bytes as they are."""
    return data


def serialize_uuid(value: UUID | None) -> bytes | None:
    """The text with hyphens."""
    return None if value is None else str(value).encode()


def deserialize_uuid(data: bytes) -> UUID:
    """The text with hyphens."""
    return UUID(data.decode())


def serialize_json(value: Any) -> bytes | None:
    """JSON of anything that msgspec encodes: also dataclasses, structs, dates, UUIDs. None is a null value."""
    return None if value is None else msgspec.json.encode(value)


def deserialize_json(data: bytes) -> Any:
    """Dicts, lists, strings, numbers, booleans and None."""
    return msgspec.json.decode(data)


def json_deserializer(kind: type[Any]) -> Callable[[bytes], Any]:
    """A deserializer that makes objects of a dataclass, struct or other type that msgspec knows, and checks them."""
    return msgspec.json.Decoder(kind).decode


def _number(layout: Struct, kind: str) -> tuple[Callable[[Any], bytes | None], Callable[[bytes], Any]]:
    def serialize(value: Any) -> bytes | None:
        try:
            return None if value is None else layout.pack(value)
        except StructError as error:
            raise ValueError(f"not a {kind}: {error}") from error

    def deserialize(data: bytes) -> Any:
        if len(data) != layout.size:
            raise ValueError(f"a {kind} has {layout.size} bytes, not {len(data)}")
        return layout.unpack(data)[0]

    serialize.__name__, deserialize.__name__ = f"serialize_{kind}", f"deserialize_{kind}"
    return serialize, deserialize


serialize_short, deserialize_short = _number(_SHORT, "short")
serialize_integer, deserialize_integer = _number(_INTEGER, "integer")
serialize_long, deserialize_long = _number(_LONG, "long")
serialize_float, deserialize_float = _number(_FLOAT, "float")
serialize_double, deserialize_double = _number(_DOUBLE, "double")
