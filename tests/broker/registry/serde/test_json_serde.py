"""JSON Schema serializers and deserializers with a registry: bytes as Confluent's, validation, references, ids."""

import json
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import confluent_kafka.schema_registry as sr
import msgspec
import pydantic
import pytest
from confluent_kafka.schema_registry import json_schema as their_json
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import SerializationError
from ottla.client.serializers import NotPreparedError
from ottla.registry.schemas.schema import Reference, Schema
from ottla.registry.serde.errors import RegistryAnswerError, ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.json_serde import JsonSchemaDeserializer, JsonSchemaSerializer
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.subject_names import record_subject, topic_record_subject
from ottla.testing import InProcessBroker

ORDER = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "note": {"type": ["string", "null"]},
            "lines": {"type": "array", "items": {"$ref": "#/definitions/line"}},
        },
        "required": ["id"],
        "additionalProperties": False,
        "definitions": {"line": {"type": "object", "properties": {"price": {"type": "number"}}}},
    }
)
VALUE: dict[str, Any] = {"id": 7, "note": "ä€😀\n", "lines": [{"price": 0.5}, {"price": 3, "more": True}]}


@dataclass
class DataOrder:
    id: int
    key: UUID
    tags: list[str] = field(default_factory=list)


class StructOrder(msgspec.Struct):
    id: int
    key: UUID
    tags: list[str] = []


class ModelOrder(pydantic.BaseModel):
    id: int
    key: UUID
    tags: list[str] = []


def test_dicts_both_ways(registry: RegistryClient) -> None:
    data = JsonSchemaSerializer(registry, ORDER).serialize("json-dicts", VALUE) or b""
    registered = registry.version("json-dicts-value")
    assert ("JSON", json.loads(ORDER)) == (registered.schema.type, json.loads(registered.schema.text))
    assert b"\0" + registered.id.to_bytes(4, "big") == data[:5]
    assert json.dumps(VALUE, separators=(",", ":"), ensure_ascii=False).encode() == data[5:]
    assert VALUE == JsonSchemaDeserializer(registry).deserialize("json-dicts", data)
    assert JsonSchemaSerializer(registry, ORDER).serialize("json-dicts", None) is None


@pytest.mark.parametrize("kind", [DataOrder, StructOrder, ModelOrder])
def test_objects_both_ways(registry: RegistryClient, kind: Any) -> None:
    value = kind(id=1, key=UUID(int=5), tags=["x"])
    plain = {"id": 1, "key": str(UUID(int=5)), "tags": ["x"]}
    topic = f"json-{kind.__name__}"
    for serializer in (JsonSchemaSerializer(registry, kind), JsonSchemaSerializer(registry)):
        data = serializer.serialize(topic, value, is_key=True) or b""
        assert plain == JsonSchemaDeserializer(registry).deserialize(topic, data)
        assert value == JsonSchemaDeserializer(registry, kind).deserialize(topic, data)
        assert value == JsonSchemaDeserializer(registry, into=kind, validate=False).deserialize(topic, data)
    assert [1] == registry.versions(f"{topic}-key")
    assert kind.__name__ == json.loads(registry.version(f"{topic}-key").schema.text)["title"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [('{"type":"string"}', "ä"), ('{"type":"integer"}', -5), ('{"type":"array"}', [1, None]), ("true", {"a": 1})],
)
def test_values_that_are_not_objects(registry: RegistryClient, schema: str, value: Any) -> None:
    topic = f"json-scalar-{type(value).__name__}"
    data = JsonSchemaSerializer(registry, schema).serialize(topic, value) or b""
    assert value == JsonSchemaDeserializer(registry).deserialize(topic, data)


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_the_same_bytes_as_confluents_serializer(registry: RegistryClient, place: Any) -> None:
    topic = f"json-confluent-{place}"
    theirs_of = sr.SchemaRegistryClient({"url": registry.config.urls[0]})
    conf = {"schema.id.serializer": sr.header_schema_id_serializer} if place == "header" else {}
    headers: list[Any] = []
    context = SerializationContext(topic, MessageField.VALUE, headers)
    theirs = their_json.JSONSerializer(ORDER, theirs_of, conf=conf)(VALUE, context)
    ours, added = prepared(JsonSchemaSerializer(registry, ORDER, id_place=place), topic, VALUE)
    assert (theirs, headers) == (ours, list(added))
    assert VALUE == JsonSchemaDeserializer(registry).deserialize(topic, theirs, headers=headers)
    context = SerializationContext(topic, MessageField.VALUE, list(added))
    assert VALUE == their_json.JSONDeserializer(None, schema_registry_client=theirs_of)(ours, context)


def prepared(serializer: JsonSchemaSerializer, topic: str, value: Any) -> Any:
    try:
        return serializer.serialize_record(topic, value, False)
    except NotPreparedError as missing:
        missing.prepare()
        return serializer.serialize_record(topic, value, False)


def test_values_that_do_not_match_are_refused(registry: RegistryClient) -> None:
    serializer = JsonSchemaSerializer(registry, ORDER)
    price = {"id": 1, "lines": [{"price": ""}]}
    for value, place in (({"id": "x"}, "/id"), ({}, "the root"), (price, "/lines/0/price")):
        with pytest.raises(ValueNotSerializableError, match=f"does not match its schema at {place}: "):
            serializer.serialize("json-unfit", value)
    loose = JsonSchemaSerializer(registry, ORDER, validate=False)
    bad = loose.serialize("json-unfit", {"id": "x"}) or b""
    with pytest.raises(ValueNotReadableError, match="does not match its schema at /id"):
        JsonSchemaDeserializer(registry).deserialize("json-unfit", bad)
    with pytest.raises(ValueNotReadableError, match="does not match its schema at /id"):
        JsonSchemaDeserializer(registry, into=StructOrder).deserialize("json-unfit", bad)
    assert {"id": "x"} == JsonSchemaDeserializer(registry, validate=False).deserialize("json-unfit", bad)
    with pytest.raises(ValueNotSerializableError, match="dict is not a class that has one"):
        JsonSchemaSerializer(registry).serialize("json-unfit", {})
    with pytest.raises(ValueNotSerializableError, match="cannot write object as JSON"):
        loose.serialize("json-unfit", object())


def test_bytes_that_are_not_of_the_schema(registry: RegistryClient) -> None:
    data = JsonSchemaSerializer(registry, ORDER).serialize("json-cut", VALUE) or b""
    for bad in (data[:-1], data[:5]):
        with pytest.raises(ValueNotReadableError, match="the bytes are not a value of schema"):
            JsonSchemaDeserializer(registry).deserialize("json-cut", bad)
    with pytest.raises(ValueNotReadableError, match="no schema id"):
        JsonSchemaDeserializer(registry).deserialize("json-cut", b"{}")
    registry.register("json-other-value", Schema(text='"string"'))
    avro = registry.version("json-other-value").id
    with pytest.raises(ValueNotReadableError, match="has type AVRO, not JSON"):
        JsonSchemaDeserializer(registry).deserialize("json-other", b"\0" + avro.to_bytes(4, "big") + b"{}")


def closed(**properties: str) -> str:
    return json.dumps(
        {
            "title": "E",
            "type": "object",
            "properties": {name: {"type": type_} for name, type_ in properties.items()},
            "additionalProperties": False,
        }
    )


OLD, NEW, WRONG = closed(a="integer"), closed(a="number", b="string"), closed(a="string")


def test_evolution(registry: RegistryClient) -> None:
    old = JsonSchemaSerializer(registry, OLD).serialize("json-evolve", {"a": 1}) or b""
    new = JsonSchemaSerializer(registry, NEW).serialize("json-evolve", {"a": 1.5, "b": "y"}) or b""
    for reader in (
        JsonSchemaDeserializer(registry),
        JsonSchemaDeserializer(registry, NEW),
        JsonSchemaDeserializer(registry, use_latest=True),
    ):
        assert [{"a": 1}, {"a": 1.5, "b": "y"}] == [reader.deserialize("json-evolve", each) for each in (old, new)]
    with pytest.raises(ValueNotReadableError, match="does not match"):
        JsonSchemaDeserializer(registry, OLD).deserialize("json-evolve", new)
    with pytest.raises(RegistryAnswerError, match="TYPE_CHANGED"):
        JsonSchemaSerializer(registry, WRONG).serialize("json-evolve", {"a": ""})


def test_a_class_that_gets_a_field(registry: RegistryClient) -> None:
    first = msgspec.defstruct("Growing", [("a", int)])
    second = msgspec.defstruct("Growing", [("a", int), ("b", str, "new")])
    old = JsonSchemaSerializer(registry, first).serialize("json-grow", first(1)) or b""
    new = JsonSchemaSerializer(registry, second).serialize("json-grow", second(2, "y")) or b""
    assert [second(1), second(2, "y")] == [
        JsonSchemaDeserializer(registry, second).deserialize("json-grow", each) for each in (old, new)
    ]
    assert [first(1), first(2)] == [
        JsonSchemaDeserializer(registry, first).deserialize("json-grow", each) for each in (old, new)
    ]


def test_use_latest(registry: RegistryClient) -> None:
    registry.register("json-latest-value", Schema(text=OLD, type="JSON"))
    second = registry.register("json-latest-value", Schema(text=NEW, type="JSON"))
    data = JsonSchemaSerializer(registry, use_latest=True).serialize("json-latest", {"a": 0.5, "b": ""}) or b""
    assert second.id == int.from_bytes(data[1:5], "big")
    assert data == JsonSchemaSerializer(registry, OLD, use_latest=True).serialize("json-latest", {"a": 0.5, "b": ""})
    with pytest.raises(ValueNotSerializableError, match="the latest, cannot read"):
        JsonSchemaSerializer(registry, WRONG, use_latest=True).serialize("json-latest", {"a": ""})
    with pytest.raises(ValueNotSerializableError, match="does not match"):
        JsonSchemaSerializer(registry, use_latest=True).serialize("json-latest", {"a": ""})
    assert [1, 2] == registry.versions("json-latest-value")


def test_look_up_and_use_schema_id(registry: RegistryClient) -> None:
    with pytest.raises(RegistryAnswerError, match="40401"):
        JsonSchemaSerializer(registry, OLD, auto_register=False).serialize("json-looked-up", {"a": 1})
    registered = registry.register("json-looked-up-value", Schema(text=OLD, type="JSON")).id
    for serializer in (
        JsonSchemaSerializer(registry, OLD, auto_register=False),
        JsonSchemaSerializer(registry, use_schema_id=registered),
    ):
        data = serializer.serialize("json-looked-up", {"a": 1}) or b""
        assert registered == int.from_bytes(data[1:5], "big")


def test_normalize(registry: RegistryClient) -> None:
    other = '{"additionalProperties":false,"properties":{"a":{"type":"integer"}},"title":"E","type":"object"}'
    ids = {JsonSchemaSerializer(registry, each, normalize=True).serialize("json-normal", {}) for each in (OLD, other)}
    assert 1 == len(ids)
    assert [1] == registry.versions("json-normal-value")


def test_references(registry: RegistryClient) -> None:
    registry.register("json-sku", Schema(text='{"type":"string"}', type="JSON"))
    line = Schema(
        text='{"type":"object","properties":{"sku":{"$ref":"sku.json"}}}',
        type="JSON",
        references=(Reference(name="sku.json", subject="json-sku", version=1),),
    )
    registry.register("json-line", line)
    schema = Schema(
        text='{"type":"object","properties":{"line":{"$ref":"line.json"}}}',
        type="JSON",
        references=(Reference(name="line.json", subject="json-line", version=1),),
    )
    serializer = JsonSchemaSerializer(registry, schema)
    data = serializer.serialize("json-referring", {"line": {"sku": "a"}}) or b""
    assert {"line": {"sku": "a"}} == JsonSchemaDeserializer(registry).deserialize("json-referring", data)
    with pytest.raises(ValueNotSerializableError, match="/line/sku"):
        serializer.serialize("json-referring", {"line": {"sku": 7}})


def test_subject_names(registry: RegistryClient) -> None:
    JsonSchemaSerializer(registry, ORDER, subject_name=record_subject).serialize("json-named", VALUE)
    JsonSchemaSerializer(registry, ORDER, subject_name=topic_record_subject).serialize("json-named", VALUE)
    assert {"Order", "json-named-Order"} <= set(registry.subjects())
    with pytest.raises(ValueNotSerializableError, match="named after the record"):
        JsonSchemaSerializer(registry, "{}", subject_name=record_subject).serialize("json-named", VALUE)


def test_wrong_uses_are_refused(registry: RegistryClient) -> None:
    with pytest.raises(ValueError, match="of type JSON, not AVRO"):
        JsonSchemaSerializer(registry, Schema(text='"string"'))
    with pytest.raises(ValueError, match="cannot both be set"):
        JsonSchemaDeserializer(registry, OLD, use_latest=True)
    with pytest.raises(ValueNotSerializableError, match="not JSON"):
        JsonSchemaSerializer(registry, "{").serialize("json-wrong", {})


@pytest.mark.parametrize("place", ["prefix", "header"])
async def test_from_producers_to_consumers(
    registry: RegistryClient, ottla_shared_broker: InProcessBroker, place: Any
) -> None:
    bootstrap, topic = ottla_shared_broker.bootstrap, f"json-clients-{place}"
    orders = [DataOrder(number, UUID(int=number)) for number in range(4)]
    serializer = JsonSchemaSerializer(registry, DataOrder, id_place=place)
    with Producer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
        for order in orders[:2]:
            producer.send(topic, order, partition=0)
        with pytest.raises(SerializationError, match="does not match its schema"):
            producer.send(topic, {"id": "x"})
    value_serializer = JsonSchemaSerializer(registry, DataOrder, id_place=place)
    async with AsyncProducer(bootstrap_servers=bootstrap, value_serializer=value_serializer) as producer:
        for order in orders[2:]:
            await producer.send_and_wait(topic, order, partition=0)
    found: list[Any] = []
    async with AsyncConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=JsonSchemaDeserializer(registry, DataOrder),
    ) as consumer:
        while len(found) < len(orders):
            for records in (await consumer.poll(10_000)).values():
                found += [record.value for record in records]
    assert orders == (found)
