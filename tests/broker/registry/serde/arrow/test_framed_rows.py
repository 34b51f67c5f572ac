"""Values with ids of schemas, and a real registry that knows the schemas: what is read, refused, or bad."""

import json
import pickle
from itertools import count
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.registry.schemas.schema import JSON, PROTOBUF, Reference, Schema
from ottla.registry.serde import AvroSerializer, JsonSchemaSerializer, ProtobufSerializer
from ottla.registry.serde.arrow.framed_rows import (
    FramedRows,
    IncompatibleSchemaError,
    reader_type,
    registered_reader,
    schema_ids,
    with_header_frames,
)
from ottla.registry.serde.errors import RegistryAnswerError, RegistryUnavailableError
from ottla.registry.serde.framing import VALUE_HEADER, id_prefix
from ottla.registry.serde.registry_client import RegistryClient
from tests.broker.registry.serde.framed_values import avro_bytes
from tests.unit.spark.value_cases import decoded

COLUMNS = pa.struct([("id", pa.string()), ("n", pa.int64())])
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_numbers = count()


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "O", "fields": list(fields)}


ID = {"name": "id", "type": "string"}
FIRST = record(ID)
SECOND = record(ID, {"name": "n", "type": "long", "default": 7})


def new_subject(registry: RegistryClient, compatibility: str = "NONE") -> str:
    subject = f"orders{next(_numbers)}-value"
    registry.set_config({"compatibility": compatibility}, subject)
    return subject


def registered(registry: RegistryClient, subject: str, schema: Any, type: str = "AVRO") -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return registry.register(subject, Schema(text=text, type=type)).id


def framed(schema_id: int, schema: Any, row: Any) -> bytes:
    return id_prefix(schema_id) + avro_bytes(schema, row)


def test_values_of_several_schemas_are_resolved_and_keep_their_order(registry: RegistryClient) -> None:
    subject = new_subject(registry)
    first, second = registered(registry, subject, FIRST), registered(registry, subject, SECOND)
    reader = registered_reader(registry, subject)
    assert reader is not None
    assert 2 == reader.version
    format = FramedRows(registry, COLUMNS, pickle.loads(pickle.dumps(reader)))
    values = [
        framed(first, FIRST, {"id": "a"}),
        framed(second, SECOND, {"id": "b", "n": 2}),
        None,
        framed(first, FIRST, {"id": "c"}),
    ]
    assert [{"id": "a", "n": 7}, {"id": "b", "n": 2}, None, {"id": "c", "n": 7}] == decoded(format, values)
    assert [str(first), str(second), None, str(first)] == schema_ids(pa.array(values, pa.binary())).to_pylist()
    by_name = FramedRows(registry, COLUMNS)
    assert [{"id": "a", "n": None}] == decoded(by_name, values[:1])


def test_an_older_version_can_be_the_readers(registry: RegistryClient) -> None:
    subject = new_subject(registry)
    registered(registry, subject, FIRST)
    second = registered(registry, subject, SECOND)
    reader = registered_reader(registry, subject, 1)
    rows = decoded(FramedRows(registry, pa.struct([COLUMNS[0]]), reader), [framed(second, SECOND, {"id": "b", "n": 2})])
    assert [{"id": "b"}] == rows
    assert registered_reader(registry, subject, 9) is None
    assert registered_reader(registry, "no-such-subject") is None


def test_ids_in_headers_and_in_prefixes_are_read(registry: RegistryClient) -> None:
    topic = f"orders{next(_numbers)}"
    in_header = AvroSerializer(registry, json.dumps(SECOND), id_place="header")
    in_prefix = AvroSerializer(registry, json.dumps(SECOND))
    in_prefix.serialize(topic, {"id": "z", "n": 0})
    records = []
    for number in range(4):
        for serializer in (in_header, in_prefix) if number % 2 else (in_prefix, in_header):
            while True:
                try:
                    records.append(serializer.serialize_record(topic, {"id": "x", "n": number}, False))
                    break
                except Exception as missing:
                    missing.prepare()  # type: ignore[attr-defined]
    values = pa.array([value for value, _ in records] + [None], pa.binary())
    headers = [[{"key": "a", "value": b"1"}, *({"key": k, "value": v} for k, v in more)] for _, more in records]
    merged = with_header_frames(values, pa.array([*headers, headers[-1]], HEADERS))
    rows = decoded(FramedRows(registry, COLUMNS), merged.to_pylist())
    assert [0, 0, 1, 1, 2, 2, 3, 3] == [row["n"] for row in rows[:-1]]
    assert rows[-1] is None
    guids = {str(found.guid) for found in [registry.version(f"{topic}-value")]}
    assert guids | {str(registry.version(f"{topic}-value").id), None} == set(schema_ids(merged).to_pylist())


def test_the_last_header_counts_and_a_wrong_one_makes_a_bad_value(registry: RegistryClient) -> None:
    values = pa.array([b"a", b"b"], pa.binary())
    twice = [{"key": VALUE_HEADER, "value": each} for each in (b"\1old", b"\1new")]
    merged = with_header_frames(values, pa.array([twice, None], HEADERS))
    assert [b"\1newa", b"b"] == merged.to_pylist()
    rows = decoded(FramedRows(registry, COLUMNS), merged.to_pylist())
    assert all("has no schema id" in row for row in rows)


def test_json_is_read_by_its_fields(registry: RegistryClient) -> None:
    subject, topic = new_subject(registry), f"events{next(_numbers)}"
    kind = {"type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}}}
    value = JsonSchemaSerializer(registry, json.dumps(kind)).serialize(topic, {"id": "a", "n": 1})
    avro = registered(registry, subject, FIRST)
    values = [value, framed(avro, FIRST, {"id": "b"})]
    assert [{"id": "a", "n": 1}, {"id": "b", "n": None}] == decoded(FramedRows(registry, COLUMNS), values)
    only_json = decoded(FramedRows(registry, COLUMNS, types=frozenset({JSON})), values)
    assert {"id": "a", "n": 1} == only_json[0]
    assert "it is of type AVRO, but values are expected in JSON" in only_json[1]


def test_bad_values_are_rejected_each_with_its_reason(registry: RegistryClient) -> None:
    good = registered(registry, new_subject(registry), FIRST)
    recursive = registered(registry, new_subject(registry), record({"name": "o", "type": ["null", "O"]}))
    values: list[bytes | None] = [
        framed(good, FIRST, {"id": "a"}),
        b"",
        b"\0\0\0",
        b"{}{}{}",
        id_prefix(999_999) + b"x",
        id_prefix(recursive) + b"x",
        id_prefix(good) + b"\xff",
        framed(good, FIRST, {"id": "z"}),
    ]
    rows = decoded(FramedRows(registry, COLUMNS), values)
    assert ["a", "z"] == [rows[0]["id"], rows[-1]["id"]]
    reasons = ["no schema id", "no schema id", "no schema id", "no schema with the id 999999", "contains itself"]
    for row, reason in zip(rows[1:-1], [*reasons, "does not fit its schema"], strict=True):
        assert reason in row


def test_an_unknown_id_is_asked_for_again_after_a_while(registry: RegistryClient) -> None:
    now = [0.0]
    format = FramedRows(registry, COLUMNS, now=lambda: now[0])
    value = id_prefix(999_998) + b"\2a"
    assert "no schema with the id" in decoded(format, [value])[0]
    asked: list[int] = []
    format._registry = type("Asked", (), {"schema_by_id": lambda _, number, context: asked.append(number)})()
    assert "no schema with the id" in decoded(format, [value])[0]
    assert [] == asked
    now[0] = 61.0
    with pytest.raises(AttributeError):
        decoded(format, [value])
    assert [999_998] == asked


def test_references_are_fetched(registry: RegistryClient) -> None:
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "street", "type": "string"}]}
    subject = new_subject(registry)
    registry.register("address", Schema(text=json.dumps(address)))
    naming = record(ID, {"name": "home", "type": "shop.Address"})
    reference = Reference(name="shop.Address", subject="address", version=1)
    schema_id = registry.register(subject, Schema(text=json.dumps(naming), references=(reference,))).id
    kind = pa.struct([("id", pa.string()), ("home", pa.struct([("street", pa.string())]))])
    both = fastavro.parse_schema(record(ID, {"name": "home", "type": address}))
    row = {"id": "a", "home": {"street": "High"}}
    reader = pickle.loads(pickle.dumps(registered_reader(registry, subject)))
    assert [row] == decoded(FramedRows(registry, kind, reader), [framed(schema_id, both, row)])


def test_a_version_that_the_reader_cannot_read_is_refused_and_not_a_bad_record(registry: RegistryClient) -> None:
    subject = new_subject(registry)
    registered(registry, subject, SECOND)
    reader = registered_reader(registry, subject)
    changed = record(ID, {"name": "n", "type": "string"})
    schema_id = registered(registry, subject, changed)
    format = FramedRows(registry, COLUMNS, reader)
    with pytest.raises(IncompatibleSchemaError) as raised:
        decoded(format, [framed(schema_id, changed, {"id": "a", "n": "x"})])
    assert (
        f"records of subject {subject} have schema {schema_id} (version 2), which version 1 cannot read: field n is of"
        " type string in the writer's schema, which cannot be read as long. Start the query again to read with the"
        " latest version, or choose a version that can read it"
    ) == str(raised.value)
    # The same schema in a foreign subject makes a bad record.
    foreign = record(ID, {"name": "n", "type": "boolean"})
    foreign_id = registered(registry, new_subject(registry), foreign)
    (row,) = decoded(format, [framed(foreign_id, foreign, {"id": "a", "n": True})])
    assert f"schema {foreign_id}: field n is of type boolean" in row


def test_a_json_property_that_changes_its_type_is_refused(registry: RegistryClient) -> None:
    subject = new_subject(registry)

    def schema(**kinds: str) -> str:
        properties = {name: {"type": kind} for name, kind in kinds.items()}
        return json.dumps({"type": "object", "properties": properties})

    registered(registry, subject, schema(id="string", n="integer"), JSON)
    reader = registered_reader(registry, subject)
    wider = registered(registry, subject, schema(id="integer", more="string", n="integer"), JSON)
    other = registered(registry, subject, schema(id="string", n="string"), JSON)
    format = FramedRows(registry, COLUMNS, reader)
    assert [{"id": "5", "n": 1}] == decoded(format, [id_prefix(wider) + b'{"id":5,"more":"x","n":1}'])
    with pytest.raises(IncompatibleSchemaError, match=r"field n is string .* cannot be read as int64"):
        decoded(format, [id_prefix(other) + b'{"id":"a","n":"x"}'])


def test_schemas_with_rules_are_not_read_without_them(registry: RegistryClient) -> None:
    rule = {"name": "encrypt", "kind": "TRANSFORM", "type": "ENCRYPT", "mode": "WRITEREAD", "tags": ["PII"]}
    schema = Schema(text=json.dumps(FIRST), rule_set={"domainRules": [rule]})
    schema_id = registry.register(new_subject(registry), schema).id
    (row,) = decoded(FramedRows(registry, COLUMNS), [framed(schema_id, FIRST, {"id": "a"})])
    assert "rules that this client does not execute: encrypt" in row


def test_a_registry_that_is_away_is_an_error_and_no_bad_row(registry_url: str) -> None:
    away = RegistryClient("http://127.0.0.1:1", retry_seconds=0.3)
    with away, pytest.raises(RegistryUnavailableError, match="no schema registry could be reached"):
        decoded(FramedRows(away, COLUMNS), [id_prefix(1) + b"\2a"])
    with RegistryClient(registry_url + "/nothing") as wrong, pytest.raises(RegistryAnswerError):
        decoded(FramedRows(wrong, COLUMNS), [id_prefix(1) + b"\2a"])


def test_large_blocks_and_large_values_are_unframed(registry: RegistryClient) -> None:
    schema_id = registered(registry, new_subject(registry), FIRST)
    texts = [str(number) * (1 if number % 1000 else 100_000) for number in range(5_000)]
    values = pa.array([framed(schema_id, FIRST, {"id": text}) for text in texts], pa.binary())
    rows = FramedRows(registry, COLUMNS).decode_block(values.slice(1))
    assert texts[1:] == rows.field("id").to_pylist()


PROTO = """syntax = "proto3"; package shop;
message Order { string id = 1; %s n = 2; map<int32, string> names = 3; uint64 big = 4; }
message Other { string x = 1; }"""


def test_protobuf_is_read_by_field_numbers_and_by_its_message(registry: RegistryClient) -> None:
    subject, topic = new_subject(registry), "any"
    wide = Schema(text=(PROTO % "int64").replace("uint64 big = 4;", ""), type=PROTOBUF)
    narrow = Schema(text=PROTO % "int32", type=PROTOBUF)

    def written(schema: Schema, row: dict[str, Any], message: str = "shop.Order") -> bytes | None:
        serializer = ProtobufSerializer(registry, schema, message=message, subject_name=lambda *_: subject)
        return serializer.serialize(topic, row)

    values = [
        written(wide, {"id": "a", "n": 2**40, "names": {1: "x"}}),
        written(narrow, {"id": "b", "n": 2, "big": 2**64 - 1}),
        written(wide, {"x": "y"}, "shop.Other"),
    ]
    kind = pa.struct([*COLUMNS, ("names", pa.map_(pa.string(), pa.string())), ("big", pa.decimal128(20, 0))])
    rows = decoded(FramedRows(registry, kind, registered_reader(registry, subject, 1)), values)
    assert {"id": "a", "n": 2**40, "names": [("1", "x")], "big": None} == rows[0]
    assert {"id": "b", "n": 2, "names": [], "big": None} == rows[1]
    assert "the value is a message shop.Other, not shop.Order" == rows[2]
    by_name = decoded(FramedRows(registry, kind), values)
    assert 2**64 - 1 == by_name[1]["big"]
    other = registered_reader(registry, subject, 1, "shop.Other")
    assert other is not None
    assert pa.struct([("x", pa.string())]) == reader_type(other)
    assert [{"x": "y"}] == decoded(FramedRows(registry, reader_type(other), other), values[2:])


def test_a_protobuf_field_that_changes_its_encoding_is_refused(registry: RegistryClient) -> None:
    subject = new_subject(registry)
    registered(registry, subject, PROTO % "int64", PROTOBUF)
    reader = registered_reader(registry, subject)
    changed = registered(registry, subject, PROTO % "string", PROTOBUF)
    with pytest.raises(
        IncompatibleSchemaError, match=rf"schema {changed} \(version 2\), which version 1 cannot read: "
    ):
        decoded(FramedRows(registry, COLUMNS, reader), [id_prefix(changed) + b"\0\x0a\1a\x12\1b"])
