"""Protobuf serializers and deserializers with a registry: bytes as Confluent's, evolution, values, what is refused."""

import datetime
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as ConfluentDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as ConfluentSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import any_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.serializers import NotPreparedError
from ottla.registry.schemas.protobuf.protobuf_schema import parse_new
from ottla.registry.schemas.schema import PROTOBUF, Schema
from ottla.registry.serde.errors import RegistryAnswerError, ValueNotReadableError, ValueNotSerializableError
from ottla.registry.serde.message_indexes import encoded_indexes, indexes_of, message_name, read_indexes
from ottla.registry.serde.protobuf_serde import ProtobufDeserializer, ProtobufSerializer
from ottla.registry.serde.registry_client import RegistryClient
from ottla.registry.serde.schema_reader import SchemaReader
from ottla.registry.serde.subject_names import record_subject, topic_record_subject
from ottla.testing import InProcessBroker

MONEY_PATH = "serde_test/money.proto"
MONEY = """
syntax = "proto3"; package serde_test;
message Money { string currency = 1; int64 units = 2; }
"""
ORDER_PATH = "serde_test/order.proto"
ORDER = f"""
syntax = "proto3"; package serde_test;
import "{MONEY_PATH}";
import "google/protobuf/timestamp.proto";
message Order {{
  message Line {{
    message Note {{ string text = 1; }}
    string sku = 1; int32 count = 2; Note note = 3;
  }}
  map<string, Line> by_sku = 4;
  int64 id = 1;
  repeated Line lines = 2;
  Money price = 3;
  google.protobuf.Timestamp at = 5;
  message Other {{ bool flag = 1; }}
}}
message Cancelled {{ int64 id = 1; optional string reason = 2; }}
"""
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)


def _classes() -> dict[str, Any]:
    """The classes that protoc would generate, by name without the package."""
    pool = descriptor_pool.Default()
    for path, text, references in ((MONEY_PATH, MONEY, {}), (ORDER_PATH, ORDER, {MONEY_PATH: MONEY})):
        file = parse_new(text, references).file_descriptor(path)
        for message in file.message_type:
            # protoc puts the messages of maps where the maps are.
            message.nested_type.sort(key=lambda nested: not nested.options.map_entry)
        pool.AddSerializedFile(file.SerializeToString())
    names = ("Money", "Order", "Order.Line", "Order.Line.Note", "Order.Other", "Cancelled")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"serde_test.{name}")) for name in names}


CLASSES = _classes()


def _order() -> Any:
    order = CLASSES["Order"](id=7, price=CLASSES["Money"](currency="EUR", units=12))
    order.lines.add(sku="a", count=2).note.text = "ä"
    order.by_sku["a"].count = 3
    order.at.FromDatetime(AT.replace(tzinfo=None))
    return order


def _values() -> list[Any]:
    return [
        _order(),
        CLASSES["Order"](),
        CLASSES["Order.Line"](sku="x"),
        CLASSES["Order.Line.Note"](text="deep"),
        CLASSES["Order.Other"](flag=True),
        CLASSES["Cancelled"](id=1, reason=""),
    ]


# Bytes


@pytest.mark.parametrize("value", _values(), ids=lambda value: str(value.DESCRIPTOR.full_name))
@pytest.mark.parametrize("place", ["prefix", "header"])
def test_bytes_are_those_of_confluents_serializer(
    registry: RegistryClient, registry_url: str, value: Any, place: Any
) -> None:
    topic = f"bytes-{place}-{value.DESCRIPTOR.name}"
    theirs = SchemaRegistryClient({"url": registry_url})
    conf: dict[str, Any] = {"auto.register.schemas": True}
    if place == "header":
        conf["schema.id.serializer"] = header_schema_id_serializer
    context = SerializationContext(topic, MessageField.VALUE, [])
    expected = ConfluentSerializer(type(value), theirs, conf)(value, context)
    ours = ProtobufSerializer(registry, id_place=place)
    data, headers = _serialized(ours, topic, value)
    assert expected == data
    assert list(context.headers) == list(headers)
    # And each reads the bytes of the other; theirs with another client, because the one that registered the schema has
    # kept it as text, which their deserializer does not understand.
    theirs = SchemaRegistryClient({"url": registry_url})
    read = ProtobufDeserializer(registry, type(value)).deserialize(topic, data, headers=headers)
    assert value == read
    assert value == ConfluentDeserializer(type(value), {}, theirs)(
        data, SerializationContext(topic, MessageField.VALUE, list(headers))
    )


@pytest.mark.parametrize("value", _values(), ids=lambda value: str(value.DESCRIPTOR.full_name))
def test_normalized_schemas_have_no_messages_for_maps(registry: RegistryClient, value: Any) -> None:
    """So the indexes of others differ from those in the class. Confluent's serializer in Python does not know that."""
    topic = f"normalized-{value.DESCRIPTOR.name}"
    data = ProtobufSerializer(registry, normalize=True).serialize(topic, value)
    assert data is not None
    assert "map<string, .serde_test.Order.Line> by_sku = 4;" in registry.version(f"{topic}-value").schema.text
    read = ProtobufDeserializer(registry).deserialize(topic, data)
    assert value.DESCRIPTOR.full_name == read.DESCRIPTOR.full_name
    assert value.SerializeToString(deterministic=True) == read.SerializeToString(deterministic=True)


def test_a_registry_that_normalizes_by_itself(registry: RegistryClient) -> None:
    registry.set_config({"normalize": True}, "normalizing-value")
    data = ProtobufSerializer(registry).serialize("normalizing", CLASSES["Order.Line"](sku="x"))
    assert data is not None
    assert "map<" in registry.version("normalizing-value").schema.text
    assert "x" == ProtobufDeserializer(registry, CLASSES["Order.Line"]).deserialize("normalizing", data).sku


def _serialized(serializer: ProtobufSerializer, topic: str, value: Any) -> Any:
    while True:
        try:
            return serializer.serialize_record(topic, value, False)
        except NotPreparedError as missing:
            missing.prepare()


def test_a_schema_as_text_has_the_messages_of_its_maps_last(registry: RegistryClient) -> None:
    """A text has no messages for maps, so nested messages have other indexes than in a generated class."""
    text = 'syntax = "proto3"; message A { map<string, B> m = 1; message B { int32 b = 1; } }'
    serializer = ProtobufSerializer(registry, text, message="A.B")
    data = serializer.serialize("maps", {"b": 5})
    assert data is not None
    assert bytes.fromhex("040000") == data[5:8]
    assert {"b": 5} == ProtobufDeserializer(registry, into=dict).deserialize("maps", data)


@pytest.mark.parametrize(
    ("indexes", "encoded"), [((0,), "00"), ((1,), "0202"), ((0, 0), "040000"), ((2, 70), "04048c01")]
)
def test_message_indexes(indexes: tuple[int, ...], encoded: str) -> None:
    assert bytes.fromhex(encoded) == encoded_indexes(indexes)
    assert (indexes, len(encoded) // 2 + 1) == read_indexes(b"x" + bytes.fromhex(encoded) + b"y", 1)


@pytest.mark.parametrize("data", ["", "02", "04", "0280", "01", "ffffffffffff", "a01f"])
def test_malformed_message_indexes_are_refused(data: str) -> None:
    with pytest.raises(ValueNotReadableError):
        read_indexes(bytes.fromhex(data), 0)


def test_a_file_that_only_imports_another_publicly_has_its_messages() -> None:
    schema = parse_new('import public "b.proto";', {"b.proto": "package b; message B { message C {} }"})
    assert (0, 0) == indexes_of(schema, "b.B.C")
    assert "b.B.C" == message_name(schema, (0, 0))


# Schemas


def test_imports_are_registered_as_references(registry: RegistryClient) -> None:
    ProtobufSerializer(registry).serialize("references", _order())
    schema = registry.version("references-value").schema
    assert [(MONEY_PATH, MONEY_PATH)] == [(each.name, each.subject) for each in schema.references]
    assert "message Money" in registry.version(MONEY_PATH).schema.text


def test_reference_subjects_can_be_named(registry: RegistryClient) -> None:
    serializer = ProtobufSerializer(registry, reference_subject_name=lambda path: path.replace("/", "."))
    serializer.serialize("named-references", _order())
    assert "serde_test.money.proto" in registry.subjects()


def test_without_auto_register_the_schema_must_be_there(registry: RegistryClient) -> None:
    cancelled = CLASSES["Cancelled"](id=1)
    with pytest.raises(RegistryAnswerError):
        ProtobufSerializer(registry, auto_register=False).serialize("not-there", cancelled)
    ProtobufSerializer(registry).serialize("there", cancelled)
    assert ProtobufSerializer(registry, auto_register=False).serialize("there", cancelled)


def test_subjects_by_record(registry: RegistryClient) -> None:
    for strategy, subject in (
        (record_subject, "serde_test.Order.Line"),
        (topic_record_subject, "by-record-serde_test.Order.Line"),
    ):
        ProtobufSerializer(registry, subject_name=strategy).serialize("by-record", CLASSES["Order.Line"]())
        assert subject in registry.subjects()


def test_the_latest_version_is_used(registry: RegistryClient) -> None:
    old = 'syntax = "proto3"; message First { } message A { int32 a = 1; }'
    new = 'syntax = "proto3"; message A { int32 a = 1; string b = 2; } message First { }'
    for text in (old, new):
        registry.register("latest-value", Schema(text=text, type=PROTOBUF))
    data = ProtobufSerializer(registry, use_latest=True, message="A").serialize("latest", {"a": 1, "b": "x"})
    assert data is not None
    assert registry.version("latest-value").id == int.from_bytes(data[1:5], "big")
    assert b"\0" == data[5:6]
    assert {"a": 1, "b": "x"} == ProtobufDeserializer(registry, into=dict).deserialize("latest", data)
    changed = 'syntax = "proto3"; message First { } message A { string a = 1; }'
    with pytest.raises(ValueNotSerializableError, match=r"#/A/1: field 1 \(a\) of A is int32"):
        ProtobufSerializer(registry, changed, use_latest=True, message="A").serialize("latest", {"a": "1"})


def test_a_schema_by_its_id(registry: RegistryClient) -> None:
    found = registry.register("by-id", Schema(text='syntax = "proto3"; message A { int32 a = 1; }', type=PROTOBUF))
    data = ProtobufSerializer(registry, use_schema_id=found.id).serialize("any-topic", {"a": 1})
    assert data == b"\0" + found.id.to_bytes(4, "big") + b"\0\x08\x01"


# Reading


def test_without_a_class_the_writers_schema_makes_one(registry: RegistryClient) -> None:
    data = ProtobufSerializer(registry).serialize("dynamic", _order())
    assert data is not None
    message = ProtobufDeserializer(registry).deserialize("dynamic", data)
    assert isinstance(message, Message)
    assert "serde_test.Order" == message.DESCRIPTOR.full_name
    assert _order().SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


def test_old_values_are_read_with_the_latest_schema(registry: RegistryClient) -> None:
    old = 'syntax = "proto3"; message A { int32 a = 1; }'
    new = 'syntax = "proto3"; message A { int64 renamed = 1; optional string b = 2; }'
    data = ProtobufSerializer(registry, old).serialize("evolved", {"a": 5})
    assert data is not None
    registry.register("evolved-value", Schema(text=new, type=PROTOBUF))
    read = ProtobufDeserializer(registry, into=dict, use_latest=True).deserialize("evolved", data)
    assert {"renamed": 5, "b": None} == read


def test_a_value_of_another_message_is_refused(registry: RegistryClient) -> None:
    data = ProtobufSerializer(registry).serialize("other-message", CLASSES["Cancelled"](id=1))
    assert data is not None
    with pytest.raises(ValueNotReadableError, match=r"is a serde_test\.Cancelled, not a serde_test\.Order"):
        ProtobufDeserializer(registry, CLASSES["Order"]).deserialize("other-message", data)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "no schema id"),
        (lambda data: data[:5], "cut off"),
        (lambda data: data[:5] + b"\x02\x50" + data[6:], "no message with the indexes"),
        (lambda data: data[:-1], "not a value of schema"),
    ],
)
def test_damaged_bytes_are_refused(registry: RegistryClient, damage: Any, message: str) -> None:
    data = ProtobufSerializer(registry).serialize("damaged", _order())
    with pytest.raises(ValueNotReadableError, match=message):
        ProtobufDeserializer(registry).deserialize("damaged", damage(data))


# Dicts and classes


@dataclass
class DataLine:
    sku: str
    count: int = 0


@dataclass
class DataOrder:
    id: int
    lines: list[DataLine] = field(default_factory=list)
    at: datetime.datetime | None = None


class StructLine(msgspec.Struct):
    sku: str
    count: int = 0


class StructOrder(msgspec.Struct):
    id: int
    lines: list[StructLine] = []
    at: datetime.datetime | None = None


class ModelLine(pydantic.BaseModel):
    sku: str
    count: int = 0


class ModelOrder(pydantic.BaseModel):
    id: int
    lines: list[ModelLine] = []
    at: datetime.datetime | None = None


@pytest.mark.parametrize(
    "value",
    [
        DataOrder(7, [DataLine("a", 2)], AT),
        StructOrder(7, [StructLine("a", 2)], AT),
        ModelOrder(id=7, lines=[ModelLine(sku="a", count=2)], at=AT),
    ],
    ids=["dataclass", "struct", "model"],
)
def test_objects_of_classes(registry: RegistryClient, value: Any) -> None:
    topic = f"objects-{type(value).__name__}"
    data = ProtobufSerializer(registry, CLASSES["Order"]).serialize(topic, value)
    assert data is not None
    assert value == ProtobufDeserializer(registry, into=type(value)).deserialize(topic, data)
    assert 2 == ProtobufDeserializer(registry, CLASSES["Order"]).deserialize(topic, data).lines[0].count


ALL_TYPES = """
syntax = "proto3"; package t;
import "google/protobuf/timestamp.proto"; import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
import "google/type/date.proto"; import "google/type/decimal.proto"; import "confluent/type/decimal.proto";
enum Colour { RED = 0; BLUE = 1; }
message All {
  bytes data = 1; Colour colour = 2; repeated Colour colours = 3; map<int32, Colour> by_number = 4;
  google.protobuf.Timestamp at = 5; google.protobuf.Duration took = 6; google.protobuf.Int64Value maybe = 7;
  google.protobuf.Struct json = 8; google.type.Date day = 9; google.type.Decimal exact = 10;
  confluent.type.Decimal price = 11; All inner = 12; optional bool flag = 13; double ratio = 14;
  repeated google.protobuf.Timestamp moments = 15; map<string, All> more = 16; oneof o { int32 x = 17; string y = 18; }
}
"""
EMPTY: dict[str, Any] = {
    "data": b"",
    "colour": "RED",
    "colours": [],
    "by_number": {},
    "at": None,
    "took": None,
    "maybe": None,
    "json": None,
    "day": None,
    "exact": None,
    "price": None,
    "inner": None,
    "flag": None,
    "ratio": 0.0,
    "moments": [],
    "more": {},
    "x": None,
    "y": None,
}


def test_dicts_of_all_types(registry: RegistryClient) -> None:
    value = {
        **EMPTY,
        "data": b"\0\xff",
        "colour": "BLUE",
        "colours": ["BLUE", "RED", 7],
        "by_number": {-1: "BLUE"},
        "at": AT,
        "took": datetime.timedelta(days=-1, microseconds=5),
        "maybe": 0,
        "json": {"a": [1.0, None, {"b": True}]},
        "day": datetime.date(2026, 1, 2),
        "exact": Decimal("1.50"),
        "price": Decimal("-12.50"),
        "inner": {**EMPTY, "x": 0},
        "flag": False,
        "ratio": 0.25,
        "moments": [AT],
        "more": {"k": EMPTY},
        "y": "",
    }
    data = ProtobufSerializer(registry, ALL_TYPES).serialize("all", value)
    assert data is not None
    assert value == ProtobufDeserializer(registry, into=dict).deserialize("all", data)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"nothing": 1}, "message t.All has no field nothing"),
        ({"colour": "GREEN"}, "field t.All.colour: enum t.Colour has no value GREEN"),
        ({"x": "text"}, "field t.All.x"),
        ({"x": 2**40}, "field t.All.x"),
        ({"inner": 5}, "expected a dict for t.All, not int"),
        ({"at": "now"}, "field t.All.at"),
        ("text", "str cannot be written as message t.All"),
    ],
)
def test_values_that_do_not_fit_are_refused(registry: RegistryClient, value: Any, message: str) -> None:
    with pytest.raises(ValueNotSerializableError, match=message):
        ProtobufSerializer(registry, ALL_TYPES).serialize("all", value)


def test_required_fields_must_be_set(registry: RegistryClient) -> None:
    serializer = ProtobufSerializer(registry, "message A { required int32 a = 1; }")
    with pytest.raises(ValueNotSerializableError, match="a"):
        serializer.serialize("required", {})
    assert serializer.serialize("required", {"a": 1})


def test_a_value_without_any_schema_is_refused(registry: RegistryClient) -> None:
    with pytest.raises(ValueNotSerializableError, match="has no schema"):
        ProtobufSerializer(registry).serialize("none", {"a": 1})


# Producers and consumers


def test_an_unknown_message_inside_is_said_and_not_raised(registry: RegistryClient) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/any.proto"; message Box { google.protobuf.Any inner = 1; }'
    registered = registry.register("boxes-value", Schema(text=text, type=PROTOBUF))
    unknown = any_pb2.Any(type_url="type.googleapis.com/nowhere.Unknown", value=b"x").SerializeToString()
    data = b"\0" + registered.id.to_bytes(4, "big") + b"\0" + b"\x0a" + bytes([len(unknown)]) + unknown
    read = SchemaReader(registry).read("boxes", (), data, is_key=False)
    assert "nowhere.Unknown" in (read.error or "")


async def test_through_a_topic(registry: RegistryClient, ottla_shared_broker: InProcessBroker) -> None:
    bootstrap = ottla_shared_broker.bootstrap
    serializer = ProtobufSerializer(registry, id_place="header")
    async with AsyncProducer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
        for value in _values():
            await producer.send_and_wait("protobuf-values", value, partition=0)
    read: list[Any] = []
    async with AsyncConsumer(
        "protobuf-values",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=ProtobufDeserializer(registry),
    ) as consumer:
        while len(read) < len(_values()):
            for records in (await consumer.poll(10_000)).values():
                read += [record.value for record in records]
    read = read
    expected = [value.SerializeToString(deterministic=True) for value in _values()]
    assert expected == [value.SerializeToString(deterministic=True) for value in read]
