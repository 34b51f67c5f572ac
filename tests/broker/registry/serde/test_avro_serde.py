"""Avro serializers and deserializers with a registry: bytes as Confluent's, evolution, ids, and what is refused."""

import datetime
import io
import json
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import confluent_kafka.schema_registry as sr
import fastavro
import msgspec
import pydantic
import pytest
from confluent_kafka.schema_registry import avro
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import RecordDeserializationError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import SerializationError
from ottla.client.serializers import NotPreparedError
from ottla.registry.schemas.schema import Reference, Schema
from ottla.registry.serde.avro_serde import AvroDeserializer, AvroSerializer
from ottla.registry.serde.errors import RegistryAnswerError, ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.subject_names import record_subject, topic_record_subject
from ottla.testing import InProcessBroker

MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "price", "type": MONEY},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
            {"name": "more", "type": {"type": "map", "values": ["int", "double"]}, "default": {}},
            {
                "name": "colour",
                "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]},
                "default": "RED",
            },
            {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        ],
    }
)
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
VALUE: dict[str, Any] = {
    "id": -7,
    "note": "ä€",
    "price": Decimal("12.50"),
    "at": AT,
    "tags": ["a", ""],
    "more": {"n": 1, "x": 0.5},
    "colour": "BLUE",
    "key": uuid.UUID(int=5),
}


@dataclass
class DataOrder:
    id: int
    price: Annotated[Decimal, MONEY]
    note: str | None = None


class StructOrder(msgspec.Struct):
    id: int
    price: Annotated[Decimal, MONEY]
    note: str | None = None


class ModelOrder(pydantic.BaseModel):
    id: int
    price: Annotated[Decimal, MONEY]
    note: str | None = None


def test_dicts_both_ways(registry: RegistryClient) -> None:
    data = AvroSerializer(registry, ORDER).serialize("avro-dicts", VALUE) or b""
    schema_id = registry.version("avro-dicts-value").id
    assert b"\0" + schema_id.to_bytes(4, "big") == data[:5]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, json.loads(ORDER), VALUE)
    assert out.getvalue() == data[5:]
    assert VALUE == AvroDeserializer(registry).deserialize("avro-dicts", data)
    assert AvroSerializer(registry, ORDER).serialize("avro-dicts", None) is None


@pytest.mark.parametrize("kind", [DataOrder, StructOrder, ModelOrder])
def test_objects_both_ways(registry: RegistryClient, kind: Any) -> None:
    value = kind(id=1, price=Decimal("1.50"), note="x")
    topic = f"avro-{kind.__name__}"
    for serializer in (AvroSerializer(registry, kind), AvroSerializer(registry)):
        data = serializer.serialize(topic, value, is_key=True) or b""
        assert {"id": 1, "price": Decimal("1.50"), "note": "x"} == AvroDeserializer(registry).deserialize(topic, data)
        assert value == AvroDeserializer(registry, kind).deserialize(topic, data)
        assert value == AvroDeserializer(registry, into=kind).deserialize(topic, data)
    assert [1] == registry.versions(f"{topic}-key")
    assert kind.__name__ == json.loads(registry.version(f"{topic}-key").schema.text)["name"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ('"string"', "ä"),
        ('"long"', -5),
        ('"bytes"', b"\0\1"),
        ('{"type":"array","items":"int"}', [1, 2]),
        ('["null","int"]', 3),
    ],
)
def test_schemas_that_are_not_records(registry: RegistryClient, schema: str, value: Any) -> None:
    subject = f"avro-{hash(schema) % 10**9}"
    data = AvroSerializer(registry, schema).serialize(subject, value) or b""
    assert value == AvroDeserializer(registry).deserialize(subject, data)
    if schema == '"bytes"':
        assert value == data[5:]


CONFLUENT_CASES: dict[str, tuple[str, Any]] = {
    "record": (ORDER, VALUE),
    "string": ('"string"', "text"),
    "bytes": ('"bytes"', b"raw \0 bytes"),
    "union": ('["null","string",{"type":"map","values":"long"}]', {"a": 1}),
    "fixed": ('{"type":"map","values":{"type":"fixed","name":"X","size":2}}', {"f": b"ab"}),
    "default": ('{"type":"record","name":"D","fields":[{"name":"f","type":"int","default":7}]}', {}),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), CONFLUENT_CASES.values(), ids=CONFLUENT_CASES)
@pytest.mark.parametrize("place", ["prefix", "header"])
def test_the_same_bytes_as_confluents_serializer(registry: RegistryClient, schema: str, value: Any, place: Any) -> None:
    topic = f"avro-confluent-{abs(hash(schema))}"
    theirs_of = sr.SchemaRegistryClient({"url": registry.config.urls[0]})
    conf = {"schema.id.serializer": sr.header_schema_id_serializer} if place == "header" else {}
    headers: list[Any] = []
    context = SerializationContext(topic, MessageField.VALUE, headers)
    theirs = avro.AvroSerializer(theirs_of, schema, conf=conf)(value, context)
    serializer = AvroSerializer(registry, schema, id_place=place)
    ours, added = prepared(serializer, topic, value)
    assert (theirs, headers) == (ours, list(added))
    read = AvroDeserializer(registry).deserialize(topic, theirs, headers=headers)
    assert expected_from(schema, value) == read
    if len(ours) > 5:  # their deserializer refuses shorter values, even if the id is in a header
        context = SerializationContext(topic, MessageField.VALUE, list(added))
        assert read == avro.AvroDeserializer(theirs_of)(ours, context)


def expected_from(schema: str, value: Any) -> Any:
    return {"f": 7} if value == {} else value


def test_the_same_bytes_as_confluents_java_serializer(registry: RegistryClient) -> None:
    """Recorded from KafkaAvroSerializer 8 for the same schema and value."""
    recorded = (
        "0d020ac3a4e282ac0404e2eabcbae5ded7a306040261000004026e000202780200000000"
        "0000e03f00024830303030303030302d303030302d303030302d303030302d303030303030303030303035"
    )
    data = AvroSerializer(registry, ORDER).serialize("avro-java", VALUE) or b""
    assert recorded == data[5:].hex()


def prepared(serializer: AvroSerializer, topic: str, value: Any) -> Any:
    try:
        return serializer.serialize_record(topic, value, False)
    except NotPreparedError as missing:
        missing.prepare()
        return serializer.serialize_record(topic, value, False)


OLD = '{"type":"record","name":"E","fields":[{"name":"a","type":"int"},{"name":"gone","type":"string"}]}'
NEW = '{"type":"record","name":"E","fields":[{"name":"b","type":"string","default":"new"},{"name":"a","type":"long"}]}'
OTHER = '{"type":"record","name":"E","fields":[{"name":"c","type":"string"}]}'


def test_evolution(registry: RegistryClient) -> None:
    old = AvroSerializer(registry, OLD).serialize("avro-evolve", {"a": 1, "gone": "x"}) or b""
    new = AvroSerializer(registry, NEW).serialize("avro-evolve", {"a": 2**40, "b": "y"}) or b""
    assert [{"a": 1, "gone": "x"}, {"a": 2**40, "b": "y"}] == [
        AvroDeserializer(registry).deserialize("avro-evolve", each) for each in (old, new)
    ]
    for reader in (AvroDeserializer(registry, NEW), AvroDeserializer(registry, use_latest=True)):
        assert [{"a": 1, "b": "new"}, {"a": 2**40, "b": "y"}] == [
            reader.deserialize("avro-evolve", each) for each in (old, new)
        ]
    with pytest.raises(
        ValueNotReadableError, match=r"cannot read what was written with schema \d+: /fields/0: .* field c"
    ):
        AvroDeserializer(registry, OTHER).deserialize("avro-evolve", old)


def test_use_latest(registry: RegistryClient) -> None:
    registry.register("avro-latest-value", Schema(text=OLD))
    registry.register("avro-latest-value", Schema(text=NEW))
    data = AvroSerializer(registry, use_latest=True).serialize("avro-latest", {"a": 5}) or b""
    assert {"a": 5, "b": "new"} == AvroDeserializer(registry).deserialize("avro-latest", data)
    assert data == AvroSerializer(registry, OLD, use_latest=True).serialize("avro-latest", {"a": 5})
    with pytest.raises(
        ValueNotSerializableError, match="version 2 of subject avro-latest-value, the latest, cannot read"
    ):
        AvroSerializer(registry, '{"type":"record","name":"Z","fields":[]}', use_latest=True).serialize(
            "avro-latest", {}
        )
    loose = AvroSerializer(
        registry, '{"type":"record","name":"Z","fields":[]}', use_latest=True, latest_compatibility_strict=False
    )
    assert data == loose.serialize("avro-latest", {"a": 5})
    assert [1, 2] == registry.versions("avro-latest-value")


def test_a_new_latest_version_is_noticed(registry_url: str) -> None:
    with RegistryClient(registry_url, latest_cache_seconds=0.2) as registry:
        registry.register("avro-noticed-value", Schema(text=OLD))
        serializer = AvroSerializer(registry, use_latest=True)
        first = serializer.serialize("avro-noticed", {"a": 1, "gone": "x"}) or b""
        second = registry.register("avro-noticed-value", Schema(text=NEW)).id
        data = first
        while data[:5] == first[:5]:
            data = serializer.serialize("avro-noticed", {"a": 1, "gone": "x"}) or b""
        assert second == int.from_bytes(data[1:5], "big")


def test_use_schema_id(registry: RegistryClient) -> None:
    first = registry.register("avro-by-id-value", Schema(text=OLD)).id
    registry.register("avro-by-id-value", Schema(text=NEW))
    data = AvroSerializer(registry, use_schema_id=first).serialize("anything", {"a": 1, "gone": "x"}) or b""
    assert first == int.from_bytes(data[1:5], "big")
    with pytest.raises(ValueError, match="cannot both be set"):
        AvroSerializer(registry, use_schema_id=first, use_latest=True)
    with pytest.raises(RegistryAnswerError, match="40403"):
        AvroSerializer(registry, use_schema_id=999_999).serialize("anything", {})


def test_without_auto_register(registry: RegistryClient) -> None:
    with pytest.raises(RegistryAnswerError, match="40401"):
        AvroSerializer(registry, OLD, auto_register=False).serialize("avro-looked-up", {"a": 1, "gone": ""})
    registered = registry.register("avro-looked-up-value", Schema(text=OLD)).id
    data = AvroSerializer(registry, OLD, auto_register=False).serialize("avro-looked-up", {"a": 1, "gone": ""}) or b""
    assert registered == int.from_bytes(data[1:5], "big")


def test_normalize(registry: RegistryClient) -> None:
    one = '{"type":"record","name":"N","fields":[],"z":1,"a":2}'
    other = '{"type":"record","name":"N","fields":[],"a":2,"z":1}'
    ids = {AvroSerializer(registry, each, normalize=True).serialize("avro-normal", {}) for each in (one, other)}
    assert 1 == len(ids)
    assert [1] == registry.versions("avro-normal-value")


def test_references(registry: RegistryClient) -> None:
    registry.register("avro-inner", Schema(text='{"type":"record","name":"In","fields":[{"name":"n","type":"int"}]}'))
    schema = Schema(
        text='{"type":"record","name":"Out","fields":[{"name":"in","type":"In"}]}',
        references=(Reference(name="In", subject="avro-inner", version=1),),
    )
    data = AvroSerializer(registry, schema).serialize("avro-outer", {"in": {"n": 3}}) or b""
    assert {"in": {"n": 3}} == AvroDeserializer(registry).deserialize("avro-outer", data)


def test_subject_names(registry: RegistryClient) -> None:
    AvroSerializer(registry, ORDER, subject_name=record_subject).serialize("avro-named", VALUE)
    AvroSerializer(registry, ORDER, subject_name=topic_record_subject).serialize("avro-named", VALUE)
    assert {"shop.Order", "avro-named-shop.Order"} <= set(registry.subjects())


def test_rules_are_not_passed_over(registry: RegistryClient) -> None:
    rules = {
        "domainRules": [{"name": "hide", "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", "tags": ["PII"]}]
    }
    registry.register("avro-rules-value", Schema(text=OLD, rule_set=rules))
    with pytest.raises(ValueNotSerializableError, match="rules that this client does not execute: hide"):
        AvroSerializer(registry, use_latest=True).serialize("avro-rules", {"a": 1, "gone": ""})
    serializer = AvroSerializer(registry, use_latest=True, ignore_rules=True)
    data = serializer.serialize("avro-rules", {"a": 1, "gone": ""}) or b""
    with pytest.raises(ValueNotReadableError, match="rules that this client does not execute: hide"):
        AvroDeserializer(registry).deserialize("avro-rules", data)
    assert {"a": 1, "gone": ""} == AvroDeserializer(registry, ignore_rules=True).deserialize("avro-rules", data)


def test_values_that_do_not_fit(registry: RegistryClient) -> None:
    for value in ({"a": "text", "gone": ""}, {"a": 1}, {"a": 2**31, "gone": ""}, {"a": 2**63, "gone": ""}, 5, [1]):
        with pytest.raises(ValueNotSerializableError, match="does not fit the schema"):
            AvroSerializer(registry, OLD).serialize("avro-unfit", value)
    with pytest.raises(ValueNotSerializableError, match="dict is not a class that has one"):
        AvroSerializer(registry).serialize("avro-unfit", {})
    with pytest.raises(ValueNotSerializableError, match="the schema is bytes, but the value is str"):
        AvroSerializer(registry, '"bytes"').serialize("avro-unfit-bytes", "text")


def test_bytes_that_are_not_of_the_schema(registry: RegistryClient) -> None:
    data = AvroSerializer(registry, OLD).serialize("avro-cut", {"a": 1, "gone": "long text"}) or b""
    for bad in (data[:-3], data[:5], data[:6] + b"\x03" + data[7:]):
        with pytest.raises(ValueNotReadableError, match="the bytes are not a value of schema"):
            AvroDeserializer(registry).deserialize("avro-cut", bad)
    with pytest.raises(ValueNotReadableError, match="no schema id"):
        AvroDeserializer(registry).deserialize("avro-cut", b"{}")
    with pytest.raises(RegistryAnswerError, match="40403"):
        AvroDeserializer(registry).deserialize("avro-cut", b"\0\0\x0f\xff\xff1")


@pytest.mark.parametrize("place", ["prefix", "header"])
async def test_from_producers_to_consumers(
    registry: RegistryClient, ottla_shared_broker: InProcessBroker, place: Any
) -> None:
    bootstrap, topic = ottla_shared_broker.bootstrap, f"avro-clients-{place}"
    serializer = AvroSerializer(registry, DataOrder, id_place=place)
    keys = AvroSerializer(registry, '"string"', id_place=place)
    orders = [DataOrder(number, Decimal(number)) for number in range(4)]
    with Producer(bootstrap_servers=bootstrap, key_serializer=keys, value_serializer=serializer) as producer:
        for order in orders[:2]:
            producer.send(topic, order, key=str(order.id), partition=0)
        with pytest.raises(SerializationError, match="does not fit the schema"):
            producer.send(topic, {"id": "x"}, key="k")
    given: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "key_deserializer": AvroDeserializer(registry),
        "value_deserializer": AvroDeserializer(registry, DataOrder),
    }
    async with AsyncProducer(
        bootstrap_servers=bootstrap, key_serializer=keys, value_serializer=AvroSerializer(registry, DataOrder)
    ) as producer:
        for order in orders[2:]:
            await producer.send_and_wait(topic, order, key=str(order.id), partition=0)
    found: list[Any] = []
    async with AsyncConsumer(topic, **given) as consumer:
        while len(found) < 4:
            for records in (await consumer.poll(10_000)).values():
                found += [(each.key, each.value, [name for name, _ in each.headers]) for each in records]
    assert [(str(each.id), each) for each in orders] == [(key, value) for key, value, _ in found]
    added = ["__key_schema_id", "__value_schema_id"] if place == "header" else []
    assert [added, added[:1]] == [found[0][2], found[3][2]]
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"not avro", partition=0).get(30)
    with Consumer(topic, **given) as consumer:
        assert 4 == sum(map(len, consumer.poll(10_000).values()))
        with pytest.raises(RecordDeserializationError, match="no schema id"):
            consumer.poll(10_000)


@pytest.mark.parametrize("cache_size", [0, 2])
def test_readers_and_writers_are_kept_within_a_bound(registry_url: str, cache_size: int) -> None:
    with RegistryClient(registry_url, cache_size=cache_size) as registry:
        serializer, deserializer = AvroSerializer(registry, '"string"'), AvroDeserializer(registry)
        for number in range(5):
            schema = json.dumps({"type": "record", "name": f"Bounded{number}", "fields": []})
            written = AvroSerializer(registry, schema).serialize(f"bounded-{number}", {})
            assert written is not None
            assert {} == deserializer.deserialize("any", written)
            serializer.serialize(f"bounded-text-{number}", "x")
        assert max(cache_size, 1) == len(deserializer._readers) == len(serializer._writers)
