"""JSON that a person typed into keys and values by a schema of a registry: Avro, JSON Schema or Protobuf."""

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ottla.client.serializers import NotPreparedError
from ottla.client.values import Header
from ottla.model.errors import InvalidRequestError
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF
from ottla.registry.serde.avro_json import from_json
from ottla.registry.serde.registry_calls import RegisteredSchema
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_ids import parsed


class Encoded(NamedTuple):
    """The bytes of a key or value, and headers to add."""

    data: bytes | None
    headers: tuple[Header, ...]


class EncoderOptions(NamedTuple):
    """How values are written."""

    message: str | None = None
    """Which message of a Protobuf schema; None is the first."""
    id_place: Literal["prefix", "header"] = "prefix"
    """Where ids are written: `prefix` or `header`."""


class SchemaEncoder:
    """Encodes the keys or the values of one topic. Asks the registry when it is made, and blocks then."""

    def __init__(
        self,
        registry: RegistryClient,
        topic: str,
        found: RegisteredSchema,
        options: EncoderOptions,
        *,
        is_key: bool,
    ) -> None:
        """Raises an `OttlaError`."""
        self._topic = topic
        self._is_key = is_key
        self._serializer, self._convert = _LANGUAGES[found.schema.type](registry, found, options)
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


Convert = Callable[[Any], Any]


def _avro(registry: RegistryClient, found: RegisteredSchema, options: EncoderOptions) -> tuple[Any, Convert]:
    from ottla.registry.schemas.avro.avro_schema import AvroSchema
    from ottla.registry.serde.avro_serde import AvroSerializer

    schema = parsed(registry, found.schema, found.subject)
    if not isinstance(schema, AvroSchema):
        raise InvalidRequestError(f"schema {found.id} is not an Avro schema")
    root = schema.root
    return AvroSerializer(registry, use_schema_id=found.id, id_place=options.id_place), lambda value: from_json(
        root, value
    )


def _json(registry: RegistryClient, found: RegisteredSchema, options: EncoderOptions) -> tuple[Any, Convert]:
    from ottla.registry.serde.json_serde import JsonSchemaSerializer

    return JsonSchemaSerializer(registry, use_schema_id=found.id, id_place=options.id_place), lambda value: value


def _protobuf(registry: RegistryClient, found: RegisteredSchema, options: EncoderOptions) -> tuple[Any, Convert]:
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
    if options.message is not None:
        names = record_names(registry, found.schema, found.subject)
        # The name alone is enough if only one message has it.
        matching = [each for each in names if each == options.message or each.endswith(f".{options.message}")]
        if options.message in names:
            matching = [options.message]
        if len(matching) != 1:
            raise InvalidRequestError(f"the schema has no message {options.message}; its messages: {', '.join(names)}")
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
        registry, found.schema, message=name, use_schema_id=found.id, id_place=options.id_place
    ), convert


_LANGUAGES: Final[dict[str, Callable[[RegistryClient, RegisteredSchema, EncoderOptions], tuple[Any, Convert]]]] = {
    AVRO: _avro,
    JSON: _json,
    PROTOBUF: _protobuf,
}
"""By the schema's type: what writes the bytes, and what makes its values of JSON."""
