"""JSON of the input into keys and values by a schema of a registry."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
import typer

from ottla.cli.produce.record_lines import BadLineError, NewRecord
from ottla.cli.registry.schema_files import TYPES, read_schema, schema_type
from ottla.client.serializers import NotPreparedError
from ottla.client.values import Header
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF, Schema
from ottla.registry.serde.avro_json import from_json
from ottla.registry.serde.registry_calls import LATEST, RegisteredSchema
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_ids import parsed


class Encoded(NamedTuple):
    """The bytes of a key or value, and headers to add."""

    data: bytes | None
    headers: tuple[Header, ...]


class SchemaChoice(NamedTuple):
    """What the options of a command say about the schema of keys or values."""

    schema: str | None
    """A file, an id, or `latest`, which None means too."""
    language: str | None
    """As `schema_type` takes it."""
    message: str | None = None
    """Which message of a Protobuf schema; None is the first."""
    id_place: Literal["prefix", "header"] = "prefix"
    """Where ids are written: `prefix` or `header`."""


class SchemaEncoder:
    """Encodes the keys or the values of one command. Asks the registry when it is made."""

    def __init__(self, registry: RegistryClient, topic: str, choice: SchemaChoice, *, is_key: bool) -> None:
        """Raises an `OttlaError`, or `BadParameter` for a wrong option."""
        schema, language = choice.schema, choice.language
        part = "key" if is_key else "value"
        subject, option = f"{topic}-{part}", f"--{part}-schema"
        if language is not None and language.upper() not in TYPES:
            raise typer.BadParameter(f"{language!r} is not one of avro, json, protobuf", param_hint=f"--{part}-format")
        found = _schema(registry, subject, schema or LATEST, language, option)
        if language is not None and found.schema.type != language.upper():
            raise InvalidRequestError(
                f"{option} {schema or LATEST} is a schema of type {found.schema.type}; leave out --{part}-format"
            )
        if choice.message is not None and found.schema.type != PROTOBUF:
            raise InvalidRequestError(
                f"{option} {schema or LATEST} is a schema of type {found.schema.type}; --{part}-message is for Protobuf"
            )
        self._topic = topic
        self._is_key = is_key
        self._serializer, self._convert = _LANGUAGES[found.schema.type](registry, found, choice)
        # Now: the registry is not needed for records then.
        try:
            self._serializer.serialize_record(topic, {}, is_key)
        except NotPreparedError as missing:
            missing.prepare()

    def encode(self, text: bytes | None) -> Encoded:
        """The bytes of JSON; null is null. Raises an `OttlaError` that says which field is wrong."""
        if text is None:
            return Encoded(None, ())
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidRequestError(f"not JSON: {error}; write text in double quotes") from None
        if value is None:
            return Encoded(None, ())
        converted = self._convert(value)
        data, headers = self._serializer.serialize_record(self._topic, converted, self._is_key)
        return Encoded(data, tuple(headers))


def _schema(registry: RegistryClient, subject: str, schema: str, language: str | None, option: str) -> RegisteredSchema:
    if schema == LATEST:
        try:
            return registry.version(subject)
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"{option} latest: {error}; register a schema with `ottla registry register {subject} FILE`, or pass"
                f" {option} FILE"
            ) from error
    if schema.isdecimal() and not Path(schema).exists():
        return registry.schema_by_id(int(schema))
    return registry.register(subject, Schema(text=read_schema(schema), type=schema_type(schema, language)))


Convert = Callable[[Any], Any]


def _avro(registry: RegistryClient, found: RegisteredSchema, choice: SchemaChoice) -> tuple[Any, Convert]:
    from ottla.registry.schemas.avro.avro_schema import AvroSchema
    from ottla.registry.serde.avro_serde import AvroSerializer

    schema = parsed(registry, found.schema, found.subject)
    if not isinstance(schema, AvroSchema):
        raise InvalidRequestError(f"schema {found.id} is not an Avro schema")
    root = schema.root
    return AvroSerializer(registry, use_schema_id=found.id, id_place=choice.id_place), lambda value: from_json(
        root, value
    )


def _json(registry: RegistryClient, found: RegisteredSchema, choice: SchemaChoice) -> tuple[Any, Convert]:
    from ottla.registry.serde.json_serde import JsonSchemaSerializer

    return JsonSchemaSerializer(registry, use_schema_id=found.id, id_place=choice.id_place), lambda value: value


def _protobuf(registry: RegistryClient, found: RegisteredSchema, choice: SchemaChoice) -> tuple[Any, Convert]:
    from google.protobuf import json_format

    from ottla.registry.schemas.protobuf.protobuf_schema import ProtobufSchema
    from ottla.registry.serde.message_indexes import first_message_name
    from ottla.registry.serde.protobuf_serde import ProtobufSerializer
    from ottla.registry.serde.protobuf_values import MessageClasses
    from ottla.registry.serde.record_names import record_names

    schema = parsed(registry, found.schema, found.subject)
    name = first_message_name(schema) if isinstance(schema, ProtobufSchema) else None
    if not isinstance(schema, ProtobufSchema) or name is None:
        raise InvalidRequestError(f"schema {found.id} has no message")
    if choice.message is not None:
        names = record_names(registry, found.schema, found.subject)
        # The name alone is enough if only one message has it.
        matching = [each for each in names if each == choice.message or each.endswith(f".{choice.message}")]
        if choice.message in names:
            matching = [choice.message]
        if len(matching) != 1:
            raise InvalidRequestError(f"the schema has no message {choice.message}; its messages: {', '.join(names)}")
        (name,) = matching
    message_class = MessageClasses(schema).find(name)

    def convert(value: Any) -> Any:
        message: Any = message_class()
        try:
            json_format.ParseDict(value, message, descriptor_pool=message.DESCRIPTOR.file.pool)
        except (json_format.ParseError, TypeError) as error:
            raise InvalidRequestError(str(error)) from None
        return message

    return ProtobufSerializer(
        registry, found.schema, message=name, use_schema_id=found.id, id_place=choice.id_place
    ), convert


_LANGUAGES: Final[dict[str, Callable[[RegistryClient, RegisteredSchema, SchemaChoice], tuple[Any, Convert]]]] = {
    AVRO: _avro,
    JSON: _json,
    PROTOBUF: _protobuf,
}
"""By the schema's type: what writes the bytes, and what makes its values of JSON."""


def record_encoder(key: SchemaEncoder | None, value: SchemaEncoder | None) -> Callable[[NewRecord], NewRecord]:
    """A function that encodes key and value of a record, each if it has a schema. It raises `BadLineError`."""

    def encoded(encoder: SchemaEncoder | None, name: str, data: bytes | None) -> Encoded:
        if encoder is None:
            return Encoded(data, ())
        try:
            return encoder.encode(data)
        except OttlaError as error:
            raise BadLineError(f"its {name} cannot be encoded: {error}") from error

    def encode(record: NewRecord) -> NewRecord:
        key_data, key_headers = encoded(key, "key", record.key)
        value_data, value_headers = encoded(value, "value", record.value)
        headers = (*record.headers, *key_headers, *value_headers)
        return record._replace(key=key_data, value=value_data, headers=headers)

    return encode
