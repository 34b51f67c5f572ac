"""Values with schemas of a registry in real queries: read, written, and evolving while a stream runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.model import dead_letters
from ottla.registry.schemas.schema import Schema
from ottla.registry.serde import AvroDeserializer, AvroSerializer, RegistryClient
from ottla.registry.serde.framing import id_prefix
from tests.spark.pipeline_rig import headers_of, records_of, run_once, write_project
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def schema(**kinds: Any) -> str:
    """A record whose fields have these types, or type and default."""
    fields = []
    for name, kind in kinds.items():
        kind, *default = kind if isinstance(kind, tuple) else (kind,)
        fields.append({"name": name, "type": kind, **({"default": default[0]} if default else {})})
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


FIRST = schema(id="string")
SECOND = schema(id="string", n=("long", 7))
BROKEN = schema(id="string", n="string")


def fill(topics: Topics, registry: RegistryClient, name: str, text: str, *documents: dict[str, Any]) -> None:
    serializer = AvroSerializer(registry, text)
    topics.fill(name, [serializer.serialize(name, each) for each in documents])


@pytest.fixture
def name(ottla: Topics, registry: RegistryClient) -> str:
    """A topic whose schema may change as it likes."""
    found = ottla.create()
    registry.set_config({"compatibility": "NONE"}, f"{found}-value")
    return found


def options(topics: Topics, registry: RegistryClient, name: str, format: str = "avro", **more: str) -> dict[str, str]:
    url = registry.config.urls[0]
    return topics.options(subscribe=name, valueFormat=format, schemaRegistryUrl=url, **more)


def read(
    spark: "SparkSession", topics: Topics, registry: RegistryClient, name: str, format: str = "avro", **more: str
) -> "DataFrame":
    return spark.read.format("ottla").options(**options(topics, registry, name, format, **more)).load()


def test_values_are_resolved_to_the_latest_version_by_the_executors(
    spark: "SparkSession", ottla: Topics, registry: RegistryClient, name: str
) -> None:
    fill(ottla, registry, name, FIRST, *({"id": str(number)} for number in range(200)))
    fill(ottla, registry, name, SECOND, *({"id": str(number), "n": number} for number in range(200)))
    found = read(spark, ottla, registry, name)
    assert "struct<id:string,n:bigint>" == found.schema.simpleString()
    expected = [*((str(number), 7) for number in range(200)), *((str(number), number) for number in range(200))]
    assert sorted(expected) == sorted(map(tuple, found.collect()))
    older = read(spark, ottla, registry, name, valueSubjectVersion="1")
    assert (["id"], 400) == (older.columns, older.count())
    ottla.fill(name, [id_prefix(999_999) + b"x"])
    with pytest.raises(Exception, match=r"offset 400 of .*-0 \(schema 999999\) cannot be decoded: the registry has no"):
        read(spark, ottla, registry, name).collect()


@pytest.mark.parametrize("format", ["avro", "json", "protobuf"])
def test_rows_are_written_with_a_schema_and_read_again(
    spark: "SparkSession", ottla: Topics, registry: RegistryClient, format: str
) -> None:
    name = ottla.create()
    rows = spark.sql("SELECT string(id) AS id, id * 2 AS n, CAST(string(id) AS BINARY) AS _key FROM range(50)")
    told = {"schemaIdPlace": "header"} if format == "avro" else {}
    if format == "protobuf":
        told["valueSchema"] = 'syntax = "proto3"; message Order { optional string id = 1; optional int64 n = 2; }'
    url = registry.config.urls[0]
    writer = rows.write.format("ottla").options(**ottla.options(topic=name, valueFormat=format, schemaRegistryUrl=url))
    writer.options(**told).mode("append").save()
    found = read(spark, ottla, registry, name, format)
    assert sorted((str(number), number * 2) for number in range(50)) == sorted(map(tuple, found.collect()))
    assert [1] == registry.versions(f"{name}-value")
    records = records_of(ottla, name)
    assert {str(number).encode() for number in range(50)} == {each.key for each in records}
    if format == "avro":
        one = next(each for each in records if each.key == b"5")
        value = AvroDeserializer(registry).deserialize(name, one.value, headers=one.headers)
        assert {"id": "5", "n": 10} == value


def test_a_schema_evolves_while_a_stream_runs_or_ends_it_with_the_reason(
    spark: "SparkSession", ottla: Topics, registry: RegistryClient, name: str, tmp_path: Path
) -> None:
    subject = f"{name}-value"

    def start(**more: str) -> Any:
        told = options(ottla, registry, name, startingOffsets="earliest", deadLetterTopic=dead, **more)
        rows = spark.readStream.format("ottla").options(**told).load().selectExpr("id", "string(n) AS n")
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    dead = ottla.create()
    fill(ottla, registry, name, SECOND, {"id": "a", "n": 1})
    query = start()
    try:
        query.processAllAvailable()
        wider = schema(id="string", n=("int", 0), more=("string", "?"))
        fill(ottla, registry, name, wider, {"id": "b", "n": 2, "more": "x"})
        # Twice: the first may return at the end of a trigger that had looked for new records before these came.
        query.processAllAvailable()
        query.processAllAvailable()
        fill(ottla, registry, name, BROKEN, {"id": "c", "n": "three"})
        broken = registry.version(subject, 3).id
        reason = (
            rf"subject {subject} have schema {broken} \(version 3\), which version 1 cannot read: field n is of type"
        )
        with pytest.raises(Exception, match=reason):
            query.awaitTermination(60)
    finally:
        query.stop()
    query = start(valueSubjectVersion="1")
    with pytest.raises(Exception, match=reason):
        query.awaitTermination(60)
    query = start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [("a", "1"), ("b", "2"), ("c", "three")] == sorted(map(tuple, rows))
    assert 0 == ottla.end(dead), "a record of the subject's own schema is not a bad record"


def test_a_pipeline_names_subjects_and_its_dead_letters_the_schemas(
    spark: "SparkSession", ottla: Topics, registry: RegistryClient, name: str, tmp_path: Path
) -> None:
    out, dead = ottla.create(), ottla.create()
    settings = f"""
name = "registered"
registry = "{registry.config.urls[0]}"
[sources.orders]
topic = "{name}"
format = "avro"
subject = "{name}-value"
expect = {{ "n is positive" = "n > 0" }}
[sinks.totals]
from = "doubled"
topic = "{out}"
format = "avro"
key = "id"
[dead_letters]
topic = "{dead}"
"""
    folder = write_project(tmp_path, settings, {"doubled.sql": "SELECT id, n * 2 AS n FROM orders"})
    fill(ottla, registry, name, SECOND, {"id": "a", "n": 1}, {"id": "b", "n": -1})
    known = registry.version(f"{name}-value").id
    foreign = registry.register("foreign-value", Schema(text=schema(x="boolean"))).id
    ottla.fill(name, [id_prefix(known) + b"\xff", id_prefix(foreign) + b"\1", b"?"])
    run_once(spark, ottla, folder)
    fill(ottla, registry, name, schema(id="string", n="long", m=("string", "")), {"id": "c", "n": 3, "m": "x"})
    run_once(spark, ottla, folder)
    found = [(each.key, AvroDeserializer(registry).deserialize(out, each.value)) for each in records_of(ottla, out)]
    assert [(b"a", {"id": "a", "n": 2}), (b"c", {"id": "c", "n": 6})] == found
    assert [1] == registry.versions(f"{out}-value")
    letters = {each.value: headers_of(each) for each in records_of(ottla, dead)}
    name_of_id = dead_letters.SCHEMA_ID.removeprefix("__dlq.errors.")
    ids = {value[5:]: story.get(name_of_id) for value, story in letters.items()}
    assert {b"\2b\1": str(known), b"\xff": str(known), b"\1": str(foreign), b"": None} == ids
    reasons = sorted(story["message"].split(":")[0] for story in letters.values())
    assert ["failed expectation", f"schema {foreign}", "the value does not fit its schema"] == reasons[:3]
