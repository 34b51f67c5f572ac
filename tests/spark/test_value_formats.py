"""Values as columns in real queries: JSON as `from_json` reads it, Avro, text."""

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.registry.serde.framed_values import avro_bytes
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = (
    "id STRING, customer BIGINT, amount DOUBLE, price DECIMAL(12,3), small SMALLINT, paid BOOLEAN, at TIMESTAMP, "
    "day DATE, items ARRAY<STRUCT<sku: STRING, quantity: INT>>, address STRUCT<street: STRING, geo: STRUCT<x: FLOAT>>"
)
WITH_MAPS = ORDERS + ", labels MAP<STRING, INT>, raw BINARY"


def read(spark: "SparkSession", topics: Topics, name: str, ddl: str | None, **options: str) -> "DataFrame":
    reader = spark.read.format("ottla").options(**topics.options(subscribe=name, **options))
    return (reader if ddl is None else reader.schema(ddl)).load()


_CHOICES: dict[str, list[str]] = {
    "id": ['"a"', '"é\\u00e9\\n"', "null", "5", "true", '{"x":1}', "[1]", '""'],
    "customer": ["1", "-7", "9223372036854775807", "9223372036854775808", "1.5", '"1"', "null"],
    "amount": ["1", "1.25", "-1e5", "1e400", "NaN", '"NaN"', '"-Infinity"', '"x"', "123456789012345678901234567890"],
    "price": ["1", "1.2345", "-1.0005", '"7.5"', "1e2", "1234567890.5", '""'],
    "small": ["1", "32767"],
    "paid": ["true", "false", "null", '"true"', "1"],
    "at": [
        '"2024-05-01T12:00:00Z"',
        '"2024-05-01 12:00:00.123"',
        '"2024-5-1"',
        "1714564800",
        '"soon"',
        '"2024-05-01T12:00:00+02:00"',
    ],
    "day": ['"2024-05-01"', '"2024-5-1"', '"2024-05-01T01:00"', "1", '"x"'],
    "items": ['[{"sku":"a","quantity":1},{"quantity":null}]', "[]", "null", '[{"sku":1}]', "{}", '[{"quantity":"x"}]'],
    "address": ['{"street":"s","geo":{"x":1.5}}', "{}", '{"geo":null,"z":[1]}', "[]", '{"geo":{"x":"y"}}'],
    "labels": ['{"a":1}', "{}", '{"a":"x"}', "null"],
    "raw": ['"YWJj"', '""', "null"],
    "unknown": ['{"deep":[[{"x":1}]]}', "null", "1"],
}


def generated(count: int, seed: int) -> list[bytes]:
    """Objects with some of the fields, mostly good."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        names = [name for name in _CHOICES if chance.random() < 0.6]
        parts = [
            f'"{name}": {_CHOICES[name][0 if chance.random() < 0.7 else chance.randrange(len(_CHOICES[name]))]}'
            for name in names
        ]
        found.append(("{" + " , ".join(parts) + "}").encode())
    return found


@pytest.mark.parametrize("ddl", [ORDERS, WITH_MAPS], ids=["in blocks", "row by row"])
def test_json_is_read_as_from_json_reads_it(spark: "SparkSession", ottla: Topics, ddl: str) -> None:
    from pyspark.sql import functions

    name = ottla.create(partitions=2)
    ottla.fill(name, generated(700, 1), 0)
    ottla.fill(name, generated(700, 2), 1)
    theirs = (
        ottla.batch(spark, subscribe=name)
        .select(
            "partition",
            "offset",
            functions.from_json(
                functions.col("value").cast("string"), ddl + ", _bad STRING", {"columnNameOfCorruptRecord": "_bad"}
            ).alias("row"),
        )
        .select("partition", "offset", "row.*")
    )
    ours = read(
        spark,
        ottla,
        name,
        f"_partition INT, _offset BIGINT, {ddl}, _error STRING",
        valueFormat="json",
        mode="permissive",
    )
    expected = {(row.partition, row.offset): row for row in theirs.collect()}
    found = {(row._partition, row._offset): row for row in ours.collect()}
    assert expected.keys() == found.keys()
    good = 0
    for where, row in found.items():
        assert (expected[where]._bad is None) == (row._error is None), (expected[where], row)
        if row._error is None:
            good += 1
            assert repr(tuple(expected[where])[2:-1]) == repr(tuple(row)[2:-1])
        else:
            assert {None} == set(tuple(row)[2:-1])
    assert 300 < good < 1300


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "note", "type": ["null", "string"]},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "L", "fields": [{"name": "n", "type": "int"}]},
            },
        },
    ],
}


def test_avro_makes_its_own_columns(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create()
    row = {"id": "a", "at": 1_714_564_800_000, "tags": {"x": 1}, "note": None, "lines": [{"n": 1}, {"n": 2}]}
    topics.fill(name, [avro_bytes(AVRO, {**row, "id": str(number)}) for number in range(300)])
    found = read(spark, topics, name, None, valueFormat="avro", valueSchema=json.dumps(AVRO))
    assert (
        "struct<id:string,at:timestamp,tags:map<string,int>,note:string,lines:array<struct<n:int>>>"
    ) == found.schema.simpleString()
    rows = sorted(
        found.selectExpr("int(id) AS n", "unix_millis(at) AS at", "tags.x", "note", "lines.n AS lines").collect()
    )
    assert [(number, 1_714_564_800_000, 1, None, [1, 2]) for number in range(300)] == [tuple(each) for each in rows]


def test_text_in_a_stream(spark: "SparkSession", ottla: Topics, tmp_path: Any) -> None:
    name = ottla.create()
    ottla.fill(name, ["é".encode(), b"b", None])
    options = ottla.options(subscribe=name, startingOffsets="earliest", valueFormat="string")
    stream = spark.readStream.format("ottla").options(**options).load()
    assert "struct<value:string>" == stream.schema.simpleString()
    query = (
        stream.writeStream.format("memory")
        .queryName("text_values")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    assert query.awaitTermination(60)
    assert [(None,), ("b",), ("é",)] == [
        tuple(row) for row in spark.sql("SELECT * FROM text_values ORDER BY 1").collect()
    ]


def test_wrong_options_and_schemas_say_what_to_do(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    with pytest.raises(Exception, match="valueFormat=json needs a schema"):
        read(spark, ottla, name, None, valueFormat="json")
    with pytest.raises(Exception, match="valueFormat=xml is not one of json"):
        read(spark, ottla, name, "a INT", valueFormat="xml").collect()
    with pytest.raises(Exception, match="did you mean deadLetterTopic"):
        read(spark, ottla, name, "a INT", valueFormat="json", deadLettersTopic="x").collect()
    with pytest.raises(Exception, match="_offset is a field of the record and must be declared as BIGINT"):
        read(spark, ottla, name, "_offset INT", valueFormat="json").collect()
