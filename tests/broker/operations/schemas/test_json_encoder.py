"""JSON that a person typed becomes keys and values by schemas of a real registry."""

import json
from collections.abc import Iterator

import pytest

from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.operations.schemas.json_encoder import Encoded, EncoderOptions, SchemaEncoder
from ottla.registry.schemas.schema import AVRO, JSON, PROTOBUF, Schema
from ottla.registry.serde.registry_calls import RegisteredSchema
from ottla.registry.serde.registry_client import RegistryClient
from ottla.testing import InProcessBroker
from tests.broker.registry.service.registry_thread import RegistryThread

TOPIC = "orders"
PLAIN = EncoderOptions()
SCHEMAS = {
    AVRO: json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": ["null", "string"]}],
        }
    ),
    JSON: '{"type": "object", "properties": {"id": {"type": "integer"}}}',
    PROTOBUF: 'syntax = "proto3"; package shop; message Order { int32 id = 1; } message Item { int32 number = 2; }',
}


@pytest.fixture(scope="module")
def registry(ottla_shared_broker: InProcessBroker) -> Iterator[RegistryClient]:
    with (
        RegistryThread(ottla_shared_broker.bootstrap, topic="_schemas-operations") as running,
        RegistryClient(running.url) as client,
    ):
        yield client


def registered(registry: RegistryClient, language: str) -> RegisteredSchema:
    return registry.register(f"{TOPIC}-{language.lower()}", Schema(text=SCHEMAS[language], type=language))


def encode(registry: RegistryClient, language: str, text: str, options: EncoderOptions = PLAIN) -> bytes:
    """The bytes of a value without the magic byte and the id before it."""
    found = registered(registry, language)
    encoded = SchemaEncoder(registry, TOPIC, found, options, is_key=False).encode(text.encode())
    assert encoded.data is not None
    assert (b"\0" + found.id.to_bytes(4, "big"), ()) == (encoded.data[:5], encoded.headers)
    return encoded.data[5:]


@pytest.mark.parametrize(
    ("language", "text", "data"),
    [
        (AVRO, '{"id": 7, "note": "x"}', b"\x0e\x02\x02x"),
        (AVRO, '{"id": 7, "note": null}', b"\x0e\x00"),
        (JSON, '{"id": 7}', b'{"id":7}'),
        (PROTOBUF, '{"id": 7}', b"\x00\x08\x07"),
    ],
)
def test_values_in_each_language(language: str, text: str, data: bytes, registry: RegistryClient) -> None:
    assert data == encode(registry, language, text).replace(b": ", b":")


@pytest.mark.parametrize("message", ["Item", "shop.Item"])
def test_another_message_of_a_protobuf_schema(message: str, registry: RegistryClient) -> None:
    options = EncoderOptions(message=message)
    assert b"\x02\x02\x10\x07" == encode(registry, PROTOBUF, '{"number": 7}', options)


def test_a_message_that_a_protobuf_schema_does_not_have(registry: RegistryClient) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        encode(registry, PROTOBUF, "{}", EncoderOptions(message="tem"))
    assert "the schema has no message tem; its messages: shop.Order, shop.Item" == str(refused.value)


@pytest.mark.parametrize("language", SCHEMAS)
def test_null_is_null(language: str, registry: RegistryClient) -> None:
    encoder = SchemaEncoder(registry, TOPIC, registered(registry, language), PLAIN, is_key=False)
    assert [Encoded(None, ()), Encoded(None, ())] == [encoder.encode(None), encoder.encode(b" null ")]


@pytest.mark.parametrize(
    ("language", "text", "message"),
    [
        (AVRO, "plain", "not JSON: .*; write text in double quotes"),
        (AVRO, '{"note": null}', "id"),
        (JSON, '{"id": "seven"}', "seven"),
        (PROTOBUF, '{"nope": 7}', "nope"),
    ],
)
def test_what_does_not_match_the_schema_is_refused(
    language: str, text: str, message: str, registry: RegistryClient
) -> None:
    with pytest.raises(OttlaError, match=message):
        encode(registry, language, text)


@pytest.mark.parametrize(("is_key", "header"), [(True, "__key_schema_id"), (False, "__value_schema_id")])
def test_the_id_in_a_header(is_key: bool, header: str, registry: RegistryClient) -> None:
    found = registered(registry, AVRO)
    encoder = SchemaEncoder(registry, TOPIC, found, EncoderOptions(id_place="header"), is_key=is_key)
    encoded = encoder.encode(b'{"id": 7, "note": null}')
    assert found.guid is not None
    assert Encoded(b"\x0e\x00", ((header, b"\x01" + found.guid.bytes),)) == encoded
