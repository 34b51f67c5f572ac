"""Serializers and deserializers for producers and consumers, and the client of the registry.

- `registry_client.py`: `RegistryClient` and `AsyncRegistryClient`; `registry_calls.py` has the requests of both.
- `framing.py`: where a record says which schema its bytes have; `subject_names.py`: which subject a schema belongs to.
- `schema_ids.py`: how a serializer finds the id to write: it registers, looks up, or takes the latest version.
- `avro_serde.py`: Avro, with `avro_limits.py`; `class_schemas.py` and `plain_values.py` for dataclasses, msgspec
  structs and Pydantic models.
- `json_serde.py`: JSON Schema; `json_values.py` has how Python values become JSON, derived schemas and validation.
- `protobuf_serde.py`: Protobuf; `protobuf_values.py` has classes of schemas and messages as dicts, `message_indexes.py`
  which message of a schema a value is.
- `plain_serializers.py`: strings, numbers, UUIDs and JSON, without a registry.
- `arrow/`: whole columns of values, for `poll_arrow` and Spark.

The bytes are those of Confluent's serializers. `ottla.client.serializers` says how clients call them.
"""

from typing import TYPE_CHECKING, Final

from ottla.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.registry.schemas.schema import Reference as Reference
    from ottla.registry.schemas.schema import Schema as Schema
    from ottla.registry.serde.avro_serde import AvroDeserializer as AvroDeserializer
    from ottla.registry.serde.avro_serde import AvroSerializer as AvroSerializer
    from ottla.registry.serde.errors import RegistryAnswerError as RegistryAnswerError
    from ottla.registry.serde.errors import RegistryUnavailableError as RegistryUnavailableError
    from ottla.registry.serde.errors import ValueNotReadableError as ValueNotReadableError
    from ottla.registry.serde.errors import ValueNotSerializableError as ValueNotSerializableError
    from ottla.registry.serde.json_serde import JsonSchemaDeserializer as JsonSchemaDeserializer
    from ottla.registry.serde.json_serde import JsonSchemaSerializer as JsonSchemaSerializer
    from ottla.registry.serde.plain_serializers import deserialize_bytes as deserialize_bytes
    from ottla.registry.serde.plain_serializers import deserialize_double as deserialize_double
    from ottla.registry.serde.plain_serializers import deserialize_float as deserialize_float
    from ottla.registry.serde.plain_serializers import deserialize_integer as deserialize_integer
    from ottla.registry.serde.plain_serializers import deserialize_json as deserialize_json
    from ottla.registry.serde.plain_serializers import deserialize_long as deserialize_long
    from ottla.registry.serde.plain_serializers import deserialize_short as deserialize_short
    from ottla.registry.serde.plain_serializers import deserialize_string as deserialize_string
    from ottla.registry.serde.plain_serializers import deserialize_uuid as deserialize_uuid
    from ottla.registry.serde.plain_serializers import json_deserializer as json_deserializer
    from ottla.registry.serde.plain_serializers import serialize_bytes as serialize_bytes
    from ottla.registry.serde.plain_serializers import serialize_double as serialize_double
    from ottla.registry.serde.plain_serializers import serialize_float as serialize_float
    from ottla.registry.serde.plain_serializers import serialize_integer as serialize_integer
    from ottla.registry.serde.plain_serializers import serialize_json as serialize_json
    from ottla.registry.serde.plain_serializers import serialize_long as serialize_long
    from ottla.registry.serde.plain_serializers import serialize_short as serialize_short
    from ottla.registry.serde.plain_serializers import serialize_string as serialize_string
    from ottla.registry.serde.plain_serializers import serialize_uuid as serialize_uuid
    from ottla.registry.serde.protobuf_serde import ProtobufDeserializer as ProtobufDeserializer
    from ottla.registry.serde.protobuf_serde import ProtobufSerializer as ProtobufSerializer
    from ottla.registry.serde.registry_calls import RegisteredSchema as RegisteredSchema
    from ottla.registry.serde.registry_client import AsyncRegistryClient as AsyncRegistryClient
    from ottla.registry.serde.registry_client import RegistryClient as RegistryClient
    from ottla.registry.serde.subject_names import record_subject as record_subject
    from ottla.registry.serde.subject_names import topic_record_subject as topic_record_subject
    from ottla.registry.serde.subject_names import topic_subject as topic_subject

__all__ = [
    "AsyncRegistryClient",
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegisteredSchema",
    "RegistryAnswerError",
    "RegistryClient",
    "RegistryUnavailableError",
    "Schema",
    "ValueNotReadableError",
    "ValueNotSerializableError",
    "deserialize_bytes",
    "deserialize_double",
    "deserialize_float",
    "deserialize_integer",
    "deserialize_json",
    "deserialize_long",
    "deserialize_short",
    "deserialize_string",
    "deserialize_uuid",
    "json_deserializer",
    "record_subject",
    "serialize_bytes",
    "serialize_double",
    "serialize_float",
    "serialize_integer",
    "serialize_json",
    "serialize_long",
    "serialize_short",
    "serialize_string",
    "serialize_uuid",
    "topic_record_subject",
    "topic_subject",
]

_HOMES: Final = {
    "AsyncRegistryClient": "ottla.registry.serde.registry_client",
    "AvroDeserializer": "ottla.registry.serde.avro_serde",
    "AvroSerializer": "ottla.registry.serde.avro_serde",
    "JsonSchemaDeserializer": "ottla.registry.serde.json_serde",
    "JsonSchemaSerializer": "ottla.registry.serde.json_serde",
    "ProtobufDeserializer": "ottla.registry.serde.protobuf_serde",
    "ProtobufSerializer": "ottla.registry.serde.protobuf_serde",
    "Reference": "ottla.registry.schemas.schema",
    "RegisteredSchema": "ottla.registry.serde.registry_calls",
    "RegistryAnswerError": "ottla.registry.serde.errors",
    "RegistryClient": "ottla.registry.serde.registry_client",
    "RegistryUnavailableError": "ottla.registry.serde.errors",
    "Schema": "ottla.registry.schemas.schema",
    "ValueNotReadableError": "ottla.registry.serde.errors",
    "ValueNotSerializableError": "ottla.registry.serde.errors",
    "deserialize_bytes": "ottla.registry.serde.plain_serializers",
    "deserialize_double": "ottla.registry.serde.plain_serializers",
    "deserialize_float": "ottla.registry.serde.plain_serializers",
    "deserialize_integer": "ottla.registry.serde.plain_serializers",
    "deserialize_json": "ottla.registry.serde.plain_serializers",
    "deserialize_long": "ottla.registry.serde.plain_serializers",
    "deserialize_short": "ottla.registry.serde.plain_serializers",
    "deserialize_string": "ottla.registry.serde.plain_serializers",
    "deserialize_uuid": "ottla.registry.serde.plain_serializers",
    "json_deserializer": "ottla.registry.serde.plain_serializers",
    "record_subject": "ottla.registry.serde.subject_names",
    "serialize_bytes": "ottla.registry.serde.plain_serializers",
    "serialize_double": "ottla.registry.serde.plain_serializers",
    "serialize_float": "ottla.registry.serde.plain_serializers",
    "serialize_integer": "ottla.registry.serde.plain_serializers",
    "serialize_json": "ottla.registry.serde.plain_serializers",
    "serialize_long": "ottla.registry.serde.plain_serializers",
    "serialize_short": "ottla.registry.serde.plain_serializers",
    "serialize_string": "ottla.registry.serde.plain_serializers",
    "serialize_uuid": "ottla.registry.serde.plain_serializers",
    "topic_record_subject": "ottla.registry.serde.subject_names",
    "topic_subject": "ottla.registry.serde.subject_names",
}

# A program that uses one language need not have the libraries of the others.
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
