"""Tables with schemas of a registry: the bytes of single records, columns of several schemas, and bad values."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa
import pytest

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.consumer.errors import RecordDeserializationError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import SerializationError
from ottla.client.serializers import ColumnDeserializer, ColumnSerializer, DeserializedColumn, NotPreparedError
from ottla.client.values import Header
from ottla.model.errors import MisuseError
from ottla.records.arrow import HEADERS
from ottla.registry.schemas.schema import JSON, PROTOBUF, Schema
from ottla.registry.serde.avro_serde import AvroDeserializer, AvroSerializer
from ottla.registry.serde.framing import guid_header, id_prefix
from ottla.registry.serde.json_serde import JsonSchemaDeserializer, JsonSchemaSerializer
from ottla.registry.serde.protobuf_serde import ProtobufDeserializer, ProtobufSerializer
from ottla.registry.serde.registry_client import RegistryClient
from ottla.testing import InProcessBroker
from tests.unit.registry.serde.arrow.protobuf_messages import PROTO3, message_class, random_message, row_of

Place = Literal["prefix", "header"]
SOON_MS = 30_000
FIRST: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"], "default": None},
]
SECOND = [*FIRST, {"name": "price", "type": "double", "default": 1.5}]
JSON_ORDER = json.dumps(
    {
        "type": "object",
        "title": "Order",
        "properties": {
            "id": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["id"],
    }
)


def avro(fields: Sequence[dict[str, Any]] = FIRST, name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


def write_column(
    serializer: ColumnSerializer, topic: str, values: pa.Array, *, is_key: bool = False
) -> tuple[list[bytes | None], Sequence[Header]]:
    while True:
        try:
            data, headers = serializer.serialize_column(topic, values, is_key)
            return data.to_pylist(), headers
        except NotPreparedError as missing:
            missing.prepare()


def one_by_one(serializer: Any, topic: str, value: Any) -> bytes | None:
    """What the serializer makes of a single record."""
    while True:
        try:
            data: bytes | None = serializer.serialize_record(topic, value, False)[0]
            return data
        except NotPreparedError as missing:
            missing.prepare()


def read_column(
    deserializer: ColumnDeserializer,
    topic: str,
    values: Sequence[bytes | None],
    headers: Sequence[Sequence[Header]] = (),
    *,
    is_key: bool = False,
) -> DeserializedColumn:
    lists = [[{"key": name, "value": value} for name, value in each] for each in headers or [()] * len(values)]
    data, frames = pa.array(values, pa.binary()), pa.array(lists, HEADERS)
    while True:
        try:
            found = deserializer.deserialize_column(topic, data, frames, is_key)
            found.values.validate(full=True)
            return found
        except NotPreparedError as missing:
            missing.prepare()


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_avro_columns_are_the_bytes_of_records(registry: RegistryClient, place: Place) -> None:
    topic = f"avro-bytes-{place}"
    rows = [{"id": 1, "note": "x", "price": 2.0}, None, {"id": -5, "note": None, "price": 0.0}]
    serializer = AvroSerializer(registry, avro(SECOND), id_place=place)
    data, headers = write_column(serializer, topic, pa.array(rows))
    assert [one_by_one(serializer, topic, each) for each in rows] == data
    assert (1 if place == "header" else 0) == len(headers)
    found = read_column(AvroDeserializer(registry), topic, data, [headers if each else () for each in data])
    assert rows == found.values.to_pylist()
    assert not found.bad


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_protobuf_columns_are_the_bytes_of_records(registry: RegistryClient, place: Place) -> None:
    topic, chance = f"protobuf-bytes-{place}", Random(5)
    kind = message_class(PROTO3)
    messages = [random_message(kind, chance, map_entries_max=1) for _ in range(20)]
    serializer = ProtobufSerializer(registry, PROTO3, message="shop.Order", id_place=place)
    expected: list[bytes | None] = []
    headers: Sequence[Header] = ()
    for each in messages:
        try:
            value, headers = serializer.serialize_record(topic, each, False)
        except NotPreparedError as missing:
            missing.prepare()
            value, headers = serializer.serialize_record(topic, each, False)
        expected.append(value)
    found = read_column(ProtobufDeserializer(registry), topic, expected, [headers] * len(expected))
    assert not found.bad
    values = found.values.to_pylist()
    assert len(messages) == len(values)
    assert row_of(messages[0])["f_string"] == values[0]["f_string"]
    data, column_headers = write_column(serializer, topic, found.values)
    assert expected == data
    assert headers == column_headers


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_json_columns_are_the_bytes_of_records(registry: RegistryClient, place: Place) -> None:
    topic = f"json-bytes-{place}"
    rows = [
        {"id": 1, "at": "2024-01-01T00:00:00Z", "tags": ["a"], "counts": {"x": 1}},
        {"id": 2, "at": "2024-01-02T00:00:00Z", "tags": [], "counts": {}},
    ]
    serializer = JsonSchemaSerializer(registry, JSON_ORDER, id_place=place)
    kind = pa.struct(
        [
            ("id", pa.int64()),
            ("at", pa.string()),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )
    written = [{**each, "counts": list(each["counts"].items())} for each in rows]  # type: ignore[attr-defined]
    data, headers = write_column(serializer, topic, pa.array([*written, None], kind))
    assert [*(one_by_one(serializer, topic, each) for each in rows), None] == data
    found = read_column(JsonSchemaDeserializer(registry), topic, data, [headers, headers, ()])
    assert [*written, None] == found.values.to_pylist()
    # A value that does not match the schema, one that is not JSON, and one that misses a property that it may miss.
    bad = [(data[0] or b"").replace(b":1,", b':"x",'), (data[0] or b"")[:-1], (data[0] or b"").split(b",")[0] + b"}"]
    found = read_column(JsonSchemaDeserializer(registry), topic, bad, [headers] * 3)
    assert [0, 1] == [row for row, _ in found.bad]
    assert {"id": 1, "at": None, "tags": None, "counts": None} == found.values[2].as_py()


def test_json_without_clear_types_is_text(registry: RegistryClient) -> None:
    loose = json.dumps({"type": "object", "properties": {"a": {}}})
    serializer = JsonSchemaSerializer(registry, loose)
    data = serializer.serialize("json-loose", {"a": [1, {}]})
    found = read_column(JsonSchemaDeserializer(registry), "json-loose", [data])
    assert ['{"a":[1,{}]}'] == found.values.to_pylist()


def test_several_schemas_are_read_as_the_newest(registry: RegistryClient) -> None:
    old = AvroSerializer(registry, avro())
    new = AvroSerializer(registry, avro(SECOND))
    first = old.serialize("avro-evolves", {"id": 1, "note": "x"})
    deserializer = AvroDeserializer(registry)
    assert [{"id": 1, "note": "x"}] == read_column(deserializer, "avro-evolves", [first]).values.to_pylist()
    second = new.serialize("avro-evolves", {"id": 2, "note": None, "price": 3.0})
    found = read_column(deserializer, "avro-evolves", [first, second, None, first, second])
    one, two = {"id": 1, "note": "x", "price": 1.5}, {"id": 2, "note": None, "price": 3.0}
    assert [one, two, None, one, two] == found.values.to_pylist()
    # The columns do not shrink again.
    assert [one] == read_column(deserializer, "avro-evolves", [first]).values.to_pylist()
    given = AvroDeserializer(registry, avro([FIRST[0], {"name": "more", "type": "int", "default": 7}]))
    assert [{"id": 1, "more": 7}, {"id": 2, "more": 7}] == read_column(
        given, "avro-evolves", [first, second]
    ).values.to_pylist()
    latest = AvroDeserializer(registry, use_latest=True)
    assert [one] == read_column(latest, "avro-evolves", [first]).values.to_pylist()


def test_guids_in_headers_are_as_new_as_their_ids(registry: RegistryClient) -> None:
    """The newest is the one with the highest id, not the one that came last."""
    old = AvroSerializer(registry, avro(), id_place="header")
    new = AvroSerializer(registry, avro(SECOND), id_place="header")
    write_column(old, "avro-guids", pa.array([{"id": 1}]))
    (second,), to_second = write_column(new, "avro-guids", pa.array([{"id": 2, "price": 3.0}]))
    (first,), to_first = write_column(old, "avro-guids", pa.array([{"id": 1}]))
    deserializer = AvroDeserializer(registry)
    read_column(deserializer, "avro-guids", [second], [to_second])
    other: Header = ("other", b"x")
    nothing: Header = ("__value_schema_id", None)
    headers = [[other, *to_first, nothing], [*to_first, *to_second]]
    found = read_column(deserializer, "avro-guids", [first, second], headers)
    assert [{"id": 1, "note": None, "price": 1.5}, {"id": 2, "note": None, "price": 3.0}] == found.values.to_pylist()
    in_prefix = (to_first[0][1] or b"") + (first or b"")
    assert 1 == read_column(deserializer, "avro-guids", [in_prefix]).values[0].as_py()["id"]


def test_bad_values_are_listed_and_null(registry: RegistryClient) -> None:
    good = AvroSerializer(registry, avro()).serialize("avro-bad", {"id": 1, "note": "x"})
    assert good is not None
    other = AvroSerializer(registry, avro([{"name": "z", "type": "string"}], "Other")).serialize("avro-z", {"z": "z"})
    unknown: Header = guid_header(UUID(int=1), is_key=False)
    values = [good, good[:-1], b"", b"\0\0", id_prefix(999_999) + b"x", good, other, None, good]
    headers: list[list[Header]] = [[]] * 8 + [[unknown]]
    found = read_column(AvroDeserializer(registry, avro()), "avro-bad", values, headers)
    assert [1, 2, 3, 4, 6, 8] == [row for row, _ in found.bad]
    reasons = dict(found.bad)
    assert "a length or a count is negative, or larger than the value" == reasons[1]
    assert "has no schema id" in reasons[2]
    assert "has no schema id" in reasons[3]
    assert "schema 999999: " in reasons[4]
    assert "field id is not in the writer's schema" in reasons[6]
    assert f"schema {UUID(int=1)}: " in reasons[8]
    assert [0, 5] == [row for row, each in enumerate(found.values.to_pylist()) if each is not None]
    nothing = read_column(AvroDeserializer(registry), "avro-nothing", [b"x", None])
    assert [0] == [row for row, _ in nothing.bad]


def test_messages_are_found_by_their_indexes(registry: RegistryClient) -> None:
    text = """syntax = "proto3"; message A { int32 a = 1; }
    message B { message C { int32 c = 1; } message D { string d = 1; } }"""
    topic = "protobuf-indexes"
    a = ProtobufSerializer(registry, text, message="A").serialize(topic, {"a": 1})
    d = ProtobufSerializer(registry, text, message="B.D").serialize(topic, {"d": "x" * 50})
    deserializer = ProtobufDeserializer(registry)
    assert [{"d": "x" * 50}] * 2 == read_column(deserializer, topic, [d, d]).values.to_pylist()
    found = read_column(deserializer, topic, [d, a, (d or b"")[:6], (d or b"")[:7]])
    assert [1, 2, 3] == [row for row, _ in found.bad]
    assert "the value is a A, not a B.D" in found.bad[0][1]
    assert "the message indexes" in found.bad[1][1]
    in_header = ProtobufSerializer(registry, text, message="B.D", id_place="header")
    data, headers = write_column(in_header, topic, pa.array([{"d": "y"}]))
    assert [{"d": "y"}] == read_column(deserializer, topic, data, [headers]).values.to_pylist()


def test_protobuf_evolves(registry: RegistryClient) -> None:
    topic = "protobuf-evolves"
    old = 'syntax = "proto3"; message M { int32 a = 1; }'
    new = 'syntax = "proto3"; message M { int32 a = 1; repeated string b = 2; }'
    first = ProtobufSerializer(registry, old).serialize(topic, {"a": 1})
    second = ProtobufSerializer(registry, new).serialize(topic, {"a": 2, "b": ["x"]})
    found = read_column(ProtobufDeserializer(registry), topic, [first, second])
    assert [{"a": 1, "b": []}, {"a": 2, "b": ["x"]}] == found.values.to_pylist()
    by_class = ProtobufDeserializer(registry, message_class(old, "M"))
    assert [{"a": 1}, {"a": 2}] == read_column(by_class, topic, [first, second]).values.to_pylist()
    latest = ProtobufDeserializer(registry, use_latest=True)
    assert [{"a": 1, "b": []}] == read_column(latest, topic, [first]).values.to_pylist()


@pytest.mark.parametrize(
    ("schema", "values", "kind"),
    [
        ('"string"', ["x", None, "y"], pa.string()),
        ('"long"', [1, -1], pa.int64()),
        ('"bytes"', [b"x", None, b""], pa.binary()),
        ('["null", "int"]', [5], pa.int32()),
        ('{"type": "array", "items": "int"}', [[1], []], pa.list_(pa.field("element", pa.int32()))),
    ],
)
def test_keys_need_not_be_records(registry: RegistryClient, schema: str, values: list[Any], kind: pa.DataType) -> None:
    topic = f"avro-keys-{abs(hash(schema))}"
    serializer = AvroSerializer(registry, schema)
    data, _ = write_column(serializer, topic, pa.array(values, kind), is_key=True)
    expected = [None if each is None else serializer.serialize(topic, each, is_key=True) for each in values]
    assert expected == data
    found = read_column(AvroDeserializer(registry), topic, data, is_key=True)
    assert kind == found.values.type
    assert values == found.values.to_pylist()


def test_a_schema_is_derived_from_the_table(registry: RegistryClient) -> None:
    kind = pa.struct(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string()),
            pa.field("day", pa.date32()),
            pa.field("lines", pa.list_(pa.field("element", pa.struct([pa.field("sku", pa.string())])))),
        ]
    )
    rows = [{"id": 1, "name": None, "day": None, "lines": [{"sku": "x"}]}]
    data, _ = write_column(AvroSerializer(registry), "shop.derived", pa.array(rows, kind))
    stored = json.loads(registry.version("shop.derived-value").schema.text)
    assert "shop_derived_value" == stored["name"]
    assert ["long", ["null", "string"]] == [each["type"] for each in stored["fields"][:2]]
    found = read_column(AvroDeserializer(registry), "shop.derived", data)
    assert rows == found.values.to_pylist()
    keys, _ = write_column(AvroSerializer(registry), "shop.derived", pa.array(["k"]), is_key=True)
    assert '"string"' == registry.version("shop.derived-key").schema.text
    assert ["k"] == read_column(AvroDeserializer(registry), "shop.derived", keys, is_key=True).values.to_pylist()


def test_the_latest_version_is_written(registry: RegistryClient) -> None:
    registry.register("latest-columns-value", Schema(text=avro(SECOND)))
    serializer = AvroSerializer(registry, use_latest=True)
    data, _ = write_column(serializer, "latest-columns", pa.array([{"id": 1}]))
    assert [serializer.serialize("latest-columns", {"id": 1, "note": None, "price": 1.5})] == data
    with pytest.raises(Exception, match="no field for column other"):
        write_column(serializer, "latest-columns", pa.array([{"id": 1, "other": 2}]))


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_tables_go_through_a_broker(
    registry: RegistryClient, ottla_shared_broker: InProcessBroker, place: Place
) -> None:
    bootstrap, topic = ottla_shared_broker.bootstrap, f"typed-{place}"
    rows = pa.table(
        {
            "key": pa.array(["a", "b", None]),
            "value": pa.array([{"id": 1, "note": "x"}, {"id": 2, "note": None}, None]),
            "headers": pa.array([[{"key": "own", "value": b"1"}], None, []], HEADERS),
        }
    )
    options: dict[str, Any] = {
        "key_serializer": AvroSerializer(registry, '"string"', id_place=place),
        "value_serializer": AvroSerializer(registry, avro(), id_place=place),
    }
    with Producer(bootstrap_servers=bootstrap, **options) as producer:
        producer.send_table(topic, rows, partition=0).get(30)
        producer.send(topic, {"id": 3, "note": "one"}, key="c", partition=0).get(30)
        with pytest.raises(SerializationError, match="column value cannot be written as values of topic"):
            producer.send_table(topic, pa.table({"value": [{"id": "x"}]}), partition=0)
    given: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "key_deserializer": AvroDeserializer(registry),
        "value_deserializer": AvroDeserializer(registry),
    }
    with Consumer(topic, **given) as consumer:
        table = consumer.poll_table(SOON_MS)
        assert ["a", "b", None, "c"] == table["key"].to_pylist()
        assert [1, 2, None, 3] == [each and each["id"] for each in table["value"].to_pylist()]
        names = [[each["key"] for each in some] for some in table["headers"].to_pylist()]
        added = ["__key_schema_id", "__value_schema_id"] if place == "header" else []
        assert [["own", *added], added, [], added] == names
    with Consumer(topic, **given) as consumer:
        (batch,) = consumer.poll_arrow(SOON_MS, headers=False).values()
        assert ["offset", "timestamp", "key", "value"] == batch.schema.names
        assert pa.struct([("id", pa.int64()), ("note", pa.string())]) == batch.schema.field("value").type
    with Consumer(topic, **given) as consumer:
        records = [each for some in consumer.poll(SOON_MS).values() for each in some]
        assert ["a", "b", None, "c"] == [each.key for each in records]
        assert {"id": 1, "note": "x"} == records[0].value


async def test_bad_values_are_raised_where_they_are_or_kept(
    registry: RegistryClient, ottla_shared_broker: InProcessBroker
) -> None:
    bootstrap, topic = ottla_shared_broker.bootstrap, "typed-bad"
    good = AvroSerializer(registry, avro()).serialize(topic, {"id": 1, "note": "x"})
    assert good is not None
    values = [good, good, b"bad", good[:-1], good]
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_table(topic, pa.table({"value": pa.array(values, pa.binary())}), partition=0).get(30)
    given: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "auto_offset_reset": "earliest",
        "value_deserializer": AvroDeserializer(registry),
    }
    with Consumer(topic, **given) as consumer:
        (batch,) = consumer.poll_arrow(SOON_MS).values()
        assert [0, 1] == batch.column("offset").to_pylist()
        for _ in range(2):
            with pytest.raises(
                RecordDeserializationError, match=r"value of the record at offset 2 of typed-bad-0"
            ) as why:
                consumer.poll_arrow(SOON_MS)
        consumer.seek(why.value.partition, why.value.offset + 2)
        assert [4] == consumer.poll_table(SOON_MS)["offset"].to_pylist()
        with pytest.raises(MisuseError, match='bad_values must be "raise" or "keep"'):
            consumer.poll_arrow(0, bad_values="drop")  # type: ignore[arg-type]
    async with AsyncConsumer(topic, **given) as consumer:
        table = await consumer.poll_table(SOON_MS, bad_values="keep")
        assert [1, 1, None, None, 1] == [each and each["id"] for each in table["value"].to_pylist()]
        errors = table["value_error"].to_pylist()
        assert [None, None, b"bad", good[:-1], None] == [each and each["data"] for each in errors]
        assert "a length or a count is negative, or larger than the value" == errors[3]["reason"]


async def test_batches_of_a_poll_have_one_type(registry: RegistryClient, ottla_shared_broker: InProcessBroker) -> None:
    """The newer schema comes later in the poll than the older one; asynchronous clients too."""
    bootstrap, topic = ottla_shared_broker.bootstrap, "typed-evolving"
    for text, row in ((avro(), {"id": 1, "note": "x"}), (avro(SECOND), {"id": 2, "note": None, "price": 2.0})):
        async with AsyncProducer(
            bootstrap_servers=bootstrap, value_serializer=AvroSerializer(registry, text)
        ) as producer:
            await (await producer.send_table(topic, pa.table({"value": [row]}), partition=0))
    async with AsyncConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(registry),
    ) as consumer:
        table = await consumer.poll_table(SOON_MS)
        assert [1.5, 2.0] == [each["price"] for each in table["value"].to_pylist()]


def test_the_registry_is_asked_for_each_schema_once(registry: RegistryClient, monkeypatch: pytest.MonkeyPatch) -> None:
    data = AvroSerializer(registry, avro()).serialize("avro-once", {"id": 1, "note": "x"})
    deserializer = AvroDeserializer(registry)
    read_column(deserializer, "avro-once", [data])
    read_column(deserializer, "avro-once", [id_prefix(888_888)])
    monkeypatch.setattr(registry, "_cached", lambda *_: pytest.fail("the registry was asked again"))
    read_column(deserializer, "avro-once", [data] * 3)
    assert 1 == len(read_column(deserializer, "avro-once", [id_prefix(888_888)]).bad)


def test_other_languages_are_bad_values(registry: RegistryClient) -> None:
    registry.register("columns-mixed", Schema(text='syntax = "proto3"; message M {}', type=PROTOBUF))
    other = registry.register("columns-other", Schema(text=JSON_ORDER, type=JSON))
    found = read_column(AvroDeserializer(registry), "columns-mixed", [id_prefix(other.id) + b"{}"])
    assert "has type JSON, not AVRO" in found.bad[0][1]
