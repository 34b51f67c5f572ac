"""The names of the records that a schema describes, for subjects that are named after them."""

from collections.abc import Iterable, Iterator
from typing import Any

from ottla.registry.schemas.avro.avro_schema import AvroSchema
from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.registry.schemas.schema import JSON, Schema
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_ids import parsed


def record_names(registry: RegistryClient, schema: Schema, subject: str | None) -> list[str]:
    """The full name of an Avro record, the title of a JSON Schema, or the names of all messages of a Protobuf file.

    The subject says in which context references are. Raises `ValueNotReadableError`.
    """
    if schema.type == JSON:
        from ottla.registry.serde.json_serde import title_of

        title = title_of(schema)
        return [] if title is None else [title]
    found = parsed(registry, schema, subject)
    match found:
        case AvroSchema():
            return [] if found.name is None else [found.name]
        case ProtobufSchema():
            file = found.file_descriptor("default")
            return list(_message_names(file.message_type, f"{file.package}." if file.package else ""))
    return []


def _message_names(messages: Iterable[Any], prefix: str) -> Iterator[str]:
    for message in messages:
        yield prefix + message.name
        yield from _message_names(message.nested_type, f"{prefix}{message.name}.")
