"""Where a record says which schema its key or value has: before the bytes, or in a header.

The prefix is a zero byte and the schema's id in four bytes. The header has a one byte and the schema's GUID in 16
bytes. Protobuf adds the position of the message in its file, in the same place as the id.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

from ottla.client.values import Header
from ottla.registry.serde.errors import ValueNotReadableError

KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"
PREFIX_BYTES: Final = 5

IdPlace = Literal["prefix", "header"]
SchemaId = int | UUID
"""The id in a context of the registry, or the GUID, which is the same in all registries."""

_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_GUID_BYTES: Final = 17


class Framed(NamedTuple):
    """The schema of a key or value, and where its own bytes begin."""

    schema_id: SchemaId
    start: int
    """The position of the first byte after the prefix; 0 if the id is in a header."""
    suffix: bytes
    """What follows the GUID in the header."""


def id_prefix(schema_id: int) -> bytes:
    """The bytes before a key or value."""
    return b"\0" + schema_id.to_bytes(4, "big")


def guid_header(guid: UUID, *, is_key: bool, suffix: bytes = b"") -> Header:
    """The header for a key or value."""
    return KEY_HEADER if is_key else VALUE_HEADER, b"\1" + guid.bytes + suffix


def read_frame(headers: Sequence[Header], data: bytes, *, is_key: bool) -> Framed:
    """Which schema a key or value has: by its header, else by its prefix. Raises `ValueNotReadableError`."""
    if headers:
        wanted = KEY_HEADER if is_key else VALUE_HEADER
        for name, value in reversed(headers):
            if name == wanted and value is not None:
                schema_id, end = _read_id(value, f"the header {wanted}")
                return Framed(schema_id, 0, value[end:])
    schema_id, end = _read_id(data, "the key" if is_key else "the value")
    return Framed(schema_id, end, b"")


def _read_id(data: bytes, place: str) -> tuple[SchemaId, int]:
    if len(data) >= PREFIX_BYTES and data[0] == _ID_MAGIC:
        return int.from_bytes(data[1:PREFIX_BYTES], "big"), PREFIX_BYTES
    if len(data) >= _GUID_BYTES and data[0] == _GUID_MAGIC:
        return UUID(bytes=bytes(data[1:_GUID_BYTES])), _GUID_BYTES
    raise ValueNotReadableError(
        f"{place} has no schema id: it begins with {bytes(data[:PREFIX_BYTES]).hex() or 'nothing'}, not with 00 and"
        " the id, or 01 and the GUID; it was not written with a schema of a registry"
    )
