"""Rows as values with schemas of a registry: the bytes of the client's serializers, and what registers which schema."""

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from ottla.client.options import OptionError
from ottla.registry.schemas.schema import PROTOBUF, Schema
from ottla.registry.serde import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegistryAnswerError,
    RegistryClient,
    ValueNotSerializableError,
)
from ottla.registry.serde.arrow.avro_rows import RowError
from ottla.spark.values.value_encoder import ValueEncoder, encoder_for

_numbers = count()
NOON = datetime(2024, 5, 1, 12, 0, 0, 123, tzinfo=UTC)
KIND = pa.struct(
    [
        ("id", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(10, 2)),
        ("lines", pa.list_(pa.struct([("sku", pa.string()), ("count", pa.int32())]))),
        ("labels", pa.map_(pa.string(), pa.float64())),
    ]
)
ROW = {
    "id": "a",
    "n": 5,
    "at": NOON,
    "day": date(2024, 5, 1),
    "price": Decimal("12.50"),
    "lines": [{"sku": "x", "count": 2}],
    "labels": {"new": 1.5},
}
EMPTY = dict.fromkeys(ROW)


def encoder(url: str, format: str, **options: str) -> ValueEncoder:
    told = {"valueFormat": format, "schemaRegistryUrl": url, **options}
    found = encoder_for({name.lower(): text for name, text in told.items()})
    assert found is not None
    travelled = pickle.loads(pickle.dumps(found))
    assert isinstance(travelled, ValueEncoder)
    return travelled


def rows(*found: dict[str, Any], kind: pa.StructType = KIND) -> pa.StructArray:
    plain = [{k: list(v.items()) if isinstance(v, dict) else v for k, v in each.items()} for each in found]
    return pa.array(plain, kind)


def topic() -> str:
    return f"orders-{next(_numbers)}"


def test_avro_has_the_bytes_of_the_serializer_and_a_derived_schema(registry_url: str, registry: RegistryClient) -> None:
    name = topic()
    values, headers = encoder(registry_url, "avro").encode(name, rows(ROW, EMPTY))
    found = registry.version(f"{name}-value")
    record = json.loads(found.schema.text)
    assert name.replace("-", "_") == record["name"]
    assert {"name": "n", "type": ["null", "long"], "default": None} in record["fields"]
    serializer = AvroSerializer(registry, found.schema)
    assert [serializer.serialize(name, each) for each in (ROW, EMPTY)] == values.to_pylist()
    assert () == headers
    assert ROW == AvroDeserializer(registry).deserialize(name, values[0].as_py())


def test_ids_in_headers_are_those_of_the_serializer(registry_url: str, registry: RegistryClient) -> None:
    name = topic()
    values, headers = encoder(registry_url, "avro", schemaIdPlace="header").encode(name, rows(ROW))
    guid = registry.version(f"{name}-value").guid
    assert guid is not None
    assert [("__value_schema_id", b"\1" + guid.bytes)] == list(headers)
    assert ROW == AvroDeserializer(registry).deserialize(name, values[0].as_py(), headers=headers)


def test_a_new_column_is_a_new_version_and_an_incompatible_one_is_refused(
    registry_url: str, registry: RegistryClient
) -> None:
    name, subject = topic(), f"shop{next(_numbers)}"
    first = Schema(text='{"type":"record","name":"shop.Order","fields":[{"name":"id","type":"string"}]}')
    registry.register(subject, first)
    told = encoder(registry_url, "avro", valueSubject=subject)
    told.encode(
        name, pa.array([{"id": "a", "n": 1}], pa.struct([pa.field("id", pa.string(), False), ("n", pa.int64())]))
    )
    second = registry.version(subject, 2)
    assert ("Order", "shop") == tuple(json.loads(second.schema.text)[key] for key in ("name", "namespace"))
    with pytest.raises(RegistryAnswerError, match=f"incompatible with an earlier schema for subject .?{subject}"):
        told.encode(name, pa.array([{"id": 5}], pa.struct([pa.field("id", pa.int32(), False)])))


def test_the_latest_version_is_used_and_must_fit(registry_url: str, registry: RegistryClient) -> None:
    name = topic()
    fields = '[{"name":"id","type":"string"},{"name":"n","type":"long","default":9}]'
    registered = registry.register(f"{name}-value", Schema(text=f'{{"type":"record","name":"O","fields":{fields}}}'))
    told = encoder(registry_url, "avro", useLatestVersion="true")
    narrow = pa.struct([("id", pa.string())])
    values, _ = told.encode(name, rows({"id": "a"}, kind=narrow))
    assert {"id": "a", "n": 9} == AvroDeserializer(registry).deserialize(name, values[0].as_py())
    assert registered.id.to_bytes(4, "big") == values[0].as_py()[1:5]
    with pytest.raises(RowError, match="no field for column more"):
        told.encode(name, rows({"id": "a", "more": 1}, kind=pa.struct([*narrow, ("more", pa.int64())])))
    with pytest.raises(RowError, match="field id"):
        told.encode(name, rows({"id": None}, kind=narrow))
    assert [1] == registry.versions(f"{name}-value")


def test_nothing_is_registered_if_that_is_not_allowed(registry_url: str, registry: RegistryClient) -> None:
    name = topic()
    with pytest.raises(RegistryAnswerError, match="not found"):
        encoder(registry_url, "avro", autoRegisterSchemas="false").encode(name, rows(ROW))
    assert f"{name}-value" not in registry.subjects()


def test_json_has_the_bytes_of_the_serializer_and_a_derived_schema(registry_url: str, registry: RegistryClient) -> None:
    name = topic()
    values, _ = encoder(registry_url, "json").encode(name, rows(ROW, EMPTY))
    schema = registry.version(f"{name}-value").schema
    assert "JSON" == schema.type
    serializer = JsonSchemaSerializer(registry, schema)
    assert [serializer.serialize(name, each) for each in (ROW, EMPTY)] == values.to_pylist()
    wider = pa.struct([*KIND, ("more", pa.int64())])
    encoder(registry_url, "json").encode(name, rows({**ROW, "more": 1}, kind=wider))
    assert [1, 2] == registry.versions(f"{name}-value")


def test_protobuf_has_the_bytes_of_the_serializer(registry_url: str, registry: RegistryClient) -> None:
    name = topic()
    text = 'syntax = "proto3"; message Other { string x = 1; } message Order { string id = 1; int64 n = 2; }'
    kind = pa.struct([("x", pa.string())])
    values, _ = encoder(registry_url, "protobuf", valueSchema=text).encode(name, rows({"x": "a"}, kind=kind))
    expected = ProtobufSerializer(registry, Schema(text=text, type=PROTOBUF)).serialize(name, {"x": "a"})
    assert [expected] == values.to_pylist()
    with pytest.raises(RowError, match="no field for column id"):
        encoder(registry_url, "protobuf", useLatestVersion="true").encode(
            name, rows({"id": "a"}, kind=pa.struct([KIND[0]]))
        )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"valueFormat": "xml"}, "not one of avro, json, protobuf"),
        ({"valueFormat": "avro"}, "need schemaRegistryUrl"),
        ({"valueSubject": "x"}, "needs valueFormat"),
        ({"valueFormat": "avro", "schemaRegistryUrl": "http://x", "useLatestVersion": "yes"}, "neither true nor false"),
        ({"valueFormat": "avro", "schemaRegistryUrl": "http://x", "schemaIdPlace": "body"}, "prefix, header"),
        ({"valueFormat": "protobuf", "schemaRegistryUrl": "http://x"}, "needs valueSchema"),
    ],
)
def test_wrong_options_say_what_to_do(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        encoder_for(options)


def test_columns_that_have_no_schema_are_named(registry_url: str) -> None:
    with pytest.raises(ValueNotSerializableError, match="column a-b has a name that Avro does not allow"):
        encoder(registry_url, "avro").encode(topic(), rows({"a-b": 1}, kind=pa.struct([("a-b", pa.int32())])))
    inner = pa.struct([("b", pa.duration("us"))])
    with pytest.raises(ValueNotSerializableError, match=r"column a\.b is of type duration"):
        encoder(registry_url, "avro").encode(topic(), pa.array([{"a": {"b": 1}}], pa.struct([("a", inner)])))
