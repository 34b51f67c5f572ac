"""Produces one record that a person typed."""

import asyncio
import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from ottla.client.values import Header, RecordMetadata
from ottla.console.cluster.access import Access
from ottla.console.errors import InvalidFormError
from ottla.model.errors import InvalidRequestError


class Encoding(StrEnum):
    """How a typed key or value becomes bytes."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"
    SCHEMA = "schema"
    """JSON that is encoded by a schema of the registry."""
    NULL = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    """A record to produce."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()
    partition: int | None = None
    """None for the partition of its key."""
    key_schema: int | None = None
    """The id of the schema that the key was encoded by; the same for the value."""
    value_schema: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedPart:
    """A key or value as a person typed it."""

    text: str
    encoding: Encoding
    schema: str = ""
    """For `Encoding.SCHEMA`: the id of a schema, or a subject, whose latest version is used; empty for the topic's own
    subject."""
    message: str = ""
    """Which message of a Protobuf schema; empty for the first."""


async def made_record(
    access: Access, topic: str, *, key: TypedPart, value: TypedPart, headers: Sequence[Header], partition: int | None
) -> NewRecord:
    """The record that a person typed, encoded by schemas where it says so. Raises `InvalidFormError`, which names the
    field that is wrong, and what keeps the registry away."""
    found: list[tuple[bytes | None, int | None]] = []
    for part, is_key in ((key, True), (value, False)):
        if part.encoding is not Encoding.SCHEMA:
            found.append((typed_bytes(part.text, part.encoding, "key" if is_key else "value"), None))
            continue
        found.append(await asyncio.to_thread(_encoded, access, topic, part, is_key=is_key))
    (key_bytes, key_schema), (value_bytes, value_schema) = found
    return NewRecord(
        key=key_bytes,
        value=value_bytes,
        headers=headers,
        partition=partition,
        key_schema=key_schema,
        value_schema=value_schema,
    )


def _encoded(access: Access, topic: str, part: TypedPart, *, is_key: bool) -> tuple[bytes | None, int | None]:
    from ottla.operations.schemas.json_encoder import EncoderOptions, SchemaEncoder

    name = "key" if is_key else "value"
    registry = access.clients.blocking_registry()
    if registry is None:
        raise InvalidFormError(f"{name}: this console knows no schema registry; start it with --registry", name)
    wanted = part.schema.strip()
    try:
        if wanted.isascii() and wanted.isdigit():
            schema = registry.schema_by_id(int(wanted))
        else:
            schema = registry.version(wanted or f"{topic}-{name}")
        encoder = SchemaEncoder(registry, topic, schema, EncoderOptions(part.message.strip() or None), is_key=is_key)
        return encoder.encode(part.text.encode("utf-8", "surrogatepass")).data, schema.id
    except (InvalidRequestError, ValueError) as error:
        raise InvalidFormError(f"{name}: {error}", name) from None


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
        raise InvalidFormError(f"{name} is not valid {encoding.value}: {error}", name) from None


def typed_headers(text: str) -> list[Header]:
    """Headers, one `name: value` in each line. Raises `InvalidFormError`."""
    found: list[Header] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, separator, value = line.partition(":")
        if not separator or not name.strip():
            raise InvalidFormError(
                f"headers: {line[:80]!r} is not a header; write one in each line, as name: value", "headers"
            )
        found.append((name.strip(), value.strip().encode()))
    return found


async def produce(access: Access, topic: str, record: NewRecord) -> RecordMetadata:
    """Writes the record with acks=all; returns where it is. The audit log gets its sizes, never its content."""
    details: dict[str, object] = {
        "partition": "by key" if record.partition is None else record.partition,
        "key_bytes": None if record.key is None else len(record.key),
        "value_bytes": None if record.value is None else len(record.value),
        "headers": len(record.headers),
    }
    schemas = {"key_schema": record.key_schema, "value_schema": record.value_schema}
    details |= {name: id for name, id in schemas.items() if id is not None}
    async with access.change("produce record", topic, details), access.producer() as producer:
        return await producer.send_and_wait(
            topic, record.value, record.key, list(record.headers), partition=record.partition
        )
