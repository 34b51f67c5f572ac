"""Produces one record that a person typed."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from ottla.client.values import Header, RecordMetadata
from ottla.console.cluster.access import Access
from ottla.console.errors import InvalidFormError


class Encoding(StrEnum):
    """How a typed key or value becomes bytes."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    NULL = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    """None for the partition of its key."""


def typed_bytes(text: str, encoding: Encoding, name: str) -> bytes | None:
    """The bytes that a person typed. Raises `InvalidFormError`."""
    try:
        match encoding:
            case Encoding.NULL:
                return None
            case Encoding.JSON:
                msgspec.json.decode(text.encode())
                return text.encode()
            case Encoding.HEX:
                return bytes.fromhex(text)
            case Encoding.BASE64:
                return base64.b64decode(text, validate=True)
        return text.encode()
    except (msgspec.DecodeError, ValueError, binascii.Error) as error:
        raise InvalidFormError(f"{name} is not valid {encoding.value}: {error}") from None


def typed_headers(text: str) -> list[Header]:
    """Headers, one `name: value` in each line. Raises `InvalidFormError`."""
    found: list[Header] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, value = line.partition(":")
        if not separator or not name.strip():
            raise InvalidFormError(f"headers: {line[:80]!r} is not a header; write one in each line, as name: value")
        found.append((name.strip(), value.strip().encode()))
    return found


async def produce(access: Access, topic: str, record: NewRecord) -> RecordMetadata:
    """Writes the record with acks=all; returns where it is. The audit log gets its sizes, never its content."""
    details = {
        "partition": "by key" if record.partition is None else record.partition,
        "key_bytes": None if record.key is None else len(record.key),
        "value_bytes": None if record.value is None else len(record.value),
        "headers": len(record.headers),
    }
    async with access.change("produce record", topic, details), access.producer() as producer:
        return await producer.send_and_wait(
            topic, record.value, record.key, list(record.headers), partition=record.partition
        )
