"""Reads a key or value of any registered schema as JSON, by the schema id that it was written with.

`SchemaReader` finds the schema, chooses the deserializer of its language and turns the value into what JSON can hold.
What cannot be read is not an error here: `ReadPart` says why. It blocks to ask the registry for schemas that are new to
it, so programs with an event loop call it in a thread.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ottla.client.serializers import NotPreparedError
from ottla.client.values import Header
from ottla.model.errors import OttlaError
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF
from ottla.registry.serde.errors import RegistryUnavailableError, ValueNotReadableError
from ottla.registry.serde.framing import SchemaId, read_frame
from ottla.registry.serde.registry_calls import RegisteredSchema
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_ids import schema_to_read_with

_FAILED_IDS_MAX: Final = 1_000
FAILED_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A key or value: what it is in JSON, and which schema it has, or why it is not decoded."""

    value: Any = None
    schema: dict[str, Any] | None = None
    """Id or GUID, type and subject of the schema; with `error` if it cannot be decoded. None for null."""

    @property
    def error(self) -> str | None:
        """Why it is not decoded."""
        return None if self.schema is None else self.schema.get("error")


class SchemaReader:
    """Reads keys and values. Asks the registry once for each schema; a registry that is away, every few seconds."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._deserializers: dict[str, tuple[Any, Callable[[Any], Any]]] = {}
        self._schemas: dict[SchemaId, RegisteredSchema] = {}
        self._failed: dict[SchemaId, tuple[float, OttlaError]] = {}
        """Ids that the registry does not know, and when to ask again."""
        self._away: tuple[float, OttlaError] | None = None
        """Why the registry could not be reached, and when to ask again."""

    def close(self) -> None:
        """Closes the registry's client."""
        self._registry.close()

    def read(self, topic: str, headers: Sequence[Header], data: bytes | None, *, is_key: bool) -> ReadPart:
        """A key or value with the headers of its record."""
        if data is None:
            return ReadPart()
        told: dict[str, Any] = {}
        try:
            frame = read_frame(headers, data, is_key=is_key)
            told = {"guid": str(frame.schema_id)} if isinstance(frame.schema_id, UUID) else {"id": frame.schema_id}
            schema = self._schema(frame.schema_id)
            told |= {"type": schema.schema.type} | ({} if schema.subject is None else {"subject": schema.subject})
            deserializer, as_json = self._deserializer(schema.schema.type)
            while True:
                try:
                    value = deserializer.deserialize_record(topic, headers, data, is_key)
                    break
                except NotPreparedError as missing:
                    missing.prepare()
            return ReadPart(as_json(value), told)
        except (OttlaError, ValueError, RecursionError) as error:
            return ReadPart(None, {**told, "error": str(error) or type(error).__name__})

    def _schema(self, schema_id: SchemaId) -> RegisteredSchema:
        """Asks only once, and for ids that it did not get after some seconds again."""
        found = self._schemas.get(schema_id)
        if found is not None:
            return found
        # A registry that cannot be reached would be waited for once for each id.
        failed = self._away or self._failed.get(schema_id)
        if failed is not None and time.monotonic() < failed[0]:
            raise failed[1]
        self._away = None
        try:
            found = self._schemas[schema_id] = schema_to_read_with(self._registry, schema_id, None)
        except RegistryUnavailableError as error:
            self._away = time.monotonic() + FAILED_SECONDS, error
            raise
        except OttlaError as error:
            if len(self._failed) >= _FAILED_IDS_MAX:
                self._failed.clear()
            self._failed[schema_id] = time.monotonic() + FAILED_SECONDS, error
            raise
        return found

    def _deserializer(self, language: str) -> tuple[Any, Callable[[Any], Any]]:
        made = self._deserializers.get(language)
        if made is None:
            make = _LANGUAGES.get(language)
            if make is None:
                raise ValueNotReadableError(f"schemas of type {language} are not supported here")
            made = self._deserializers[language] = make(self._registry)
        return made


def _avro(registry: RegistryClient) -> tuple[Any, Callable[[Any], Any]]:
    from ottla.registry.serde.avro_json import to_json
    from ottla.registry.serde.avro_serde import AvroDeserializer

    return AvroDeserializer(registry, ignore_rules=True), to_json


def _json(registry: RegistryClient) -> tuple[Any, Callable[[Any], Any]]:
    from ottla.registry.serde.json_serde import JsonSchemaDeserializer

    return JsonSchemaDeserializer(registry, validate=False, ignore_rules=True), lambda value: value


def _protobuf(registry: RegistryClient) -> tuple[Any, Callable[[Any], Any]]:
    from google.protobuf.json_format import Error, MessageToDict

    from ottla.registry.serde.protobuf_serde import ProtobufDeserializer

    def as_json(message: Any) -> Any:
        pool = message.DESCRIPTOR.file.pool
        try:
            return MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except (TypeError, Error) as error:
            # Such as a google.protobuf.Any of a message that the schema does not have.
            raise ValueNotReadableError(f"not expressible as JSON: {error}") from None

    return ProtobufDeserializer(registry, ignore_rules=True), as_json


_LANGUAGES: Final[dict[str, Callable[[RegistryClient], tuple[Any, Callable[[Any], Any]]]]] = {
    AVRO: _avro,
    JSON: _json,
    PROTOBUF: _protobuf,
}
"""By the schema's type: what reads the bytes, and what makes JSON of the value."""
