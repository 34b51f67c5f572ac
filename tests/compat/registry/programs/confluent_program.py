"""Confluent's registry client and serializers for Python as a client program."""

import base64
import json
import sys
from typing import Any

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    SchemaRegistryError,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import Metadata, RuleSet
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from tests.compat.clients.programs import command_loop

_PLACES = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}


class Program:
    """The commands."""

    def __init__(self, url: str) -> None:
        self._url = url

    def register(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {"id": self._client().register_schema(subject, _schema(schema))}

    def look_up(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        found = self._client().lookup_schema(subject, _schema(schema))
        return {"id": found.schema_id, "version": found.version}

    def versions(self, subject: str) -> dict[str, Any]:
        return {"versions": self._client().get_versions(subject)}

    def version(self, subject: str, version: int) -> dict[str, Any]:
        found = self._client().get_version(subject, version)
        return {"id": found.schema_id, "schema": _without_nulls(found.schema.to_dict())}

    def schema(self, subject: str, id: int) -> dict[str, Any]:
        return {"text": self._client().get_schema(id, subject).schema_str}

    def compatible(self, subject: str, schema: dict[str, Any]) -> dict[str, Any]:
        return {"compatible": self._client().test_compatibility(subject, _schema(schema))}

    def set_level(self, subject: str, level: str) -> None:
        self._client().set_compatibility(subject, level)

    def delete_version(self, subject: str, version: int, permanent: bool) -> None:
        self._client().delete_version(subject, version, permanent)

    def delete_subject(self, subject: str, permanent: bool) -> dict[str, Any]:
        # Its own `permanent` deletes softly first.
        path = f"subjects/{subject}" + ("?permanent=true" if permanent else "")
        return {"versions": self._client()._rest_client.delete(path)}

    def serialize(
        self, topic: str, format: str, place: str, schema: dict[str, Any], value: Any, descriptor: str
    ) -> dict[str, Any]:
        options = {"schema.id.serializer": _PLACES[place]}
        client, serializer = self._client(), None
        match format:
            case "AVRO":
                serializer = AvroSerializer(client, _schema(schema), conf=options)
            case "JSON":
                serializer = JSONSerializer(_schema(schema), client, conf=options)
            case _:
                kind = _message_type(descriptor)
                serializer = ProtobufSerializer(kind, client, conf=options)
                value = json_format.ParseDict(value, kind())
        headers: list[tuple[str, bytes]] = []
        data = serializer(value, SerializationContext(topic, MessageField.VALUE, headers))
        return {
            "data": command_loop.to_text(data),
            "headers": [[name, command_loop.to_text(value)] for name, value in headers],
        }

    def deserialize(self, topic: str, format: str, data: str, headers: Any, descriptor: str) -> dict[str, Any]:
        client, context = (
            self._client(),
            SerializationContext(topic, MessageField.VALUE, command_loop.to_headers(headers)),
        )
        written = command_loop.to_bytes(data)
        match format:
            case "AVRO":
                return {"value": AvroDeserializer(client)(written, context)}
            case "JSON":
                return {"value": JSONDeserializer(None, schema_registry_client=client)(written, context)}
        found = ProtobufDeserializer(_message_type(descriptor), schema_registry_client=client)(written, context)
        return {"value": json_format.MessageToDict(found)}

    def _client(self) -> SchemaRegistryClient:
        """A new one: an old one answers from its cache."""
        return SchemaRegistryClient({"url": self._url})


def _schema(given: dict[str, Any]) -> Schema:
    return Schema(
        given["schema"],
        given["schemaType"],
        [SchemaReference.from_dict(each) for each in given.get("references", ())],
        Metadata.from_dict(given["metadata"]) if "metadata" in given else None,
        RuleSet.from_dict(given["ruleSet"]) if "ruleSet" in given else None,
    )


def _message_type(descriptor: str) -> Any:
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(descriptor))
    pool = descriptor_pool.DescriptorPool()
    found = pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(next(iter(found.message_types_by_name.values())))


def _without_nulls(value: Any) -> Any:
    return json.loads(json.dumps(value), object_hook=lambda each: {k: v for k, v in each.items() if v is not None})


def _code_of(error: BaseException) -> int | None:
    return error.error_code if isinstance(error, SchemaRegistryError) else None


if __name__ == "__main__":
    command_loop.run(command_loop.commands_of(Program(sys.argv[1])), _code_of)
