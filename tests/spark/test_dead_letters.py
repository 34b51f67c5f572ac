"""Records that cannot be decoded: the query fails and names them, or reads them as nulls, or puts them aside."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.values import ConsumerRecord
from ottla.model import dead_letters
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id INT, name STRING"


def letters(topics: Topics, name: str, count: int) -> list[ConsumerRecord]:
    """What is in a dead-letter topic."""
    assert count == topics.end(name)
    found: list[ConsumerRecord] = []
    with Consumer(
        name, bootstrap_servers=topics.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    ) as consumer:
        for record in consumer:
            found.append(record)
            if len(found) == count:
                return found
    raise AssertionError(f"{len(found)} of {count} letters")


def read(spark: "SparkSession", topics: Topics, name: str, schema: str = SCHEMA, **options: str) -> "DataFrame":
    told = topics.options(subscribe=name, valueFormat="json", **options)
    return spark.read.format("ottla").options(**told).schema(schema).load()


def fill(topics: Topics, name: str, count: int) -> None:
    """Every tenth value is bad."""
    values = [b"{" if number % 10 == 3 else b'{"id":%d,"name":"n"}' % number for number in range(count)]
    keys = [b"%d" % number for number in range(count)]
    topics.fill(name, values, keys=keys, timestamps=range(1000, 1000 + count), headers=[("trace", b"1")])


def test_failing_names_the_record(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    fill(ottla, name, 20)
    with pytest.raises(Exception, match=f"offset 3 of {name}-0 cannot be decoded: the value is not JSON"):
        read(spark, ottla, name).collect()


def test_permissive_rows_say_why(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    fill(ottla, name, 500)
    found = read(spark, ottla, name, "id INT, _offset BIGINT, _value BINARY, _error STRING", mode="permissive")
    assert 500 == found.count()
    bad = found.where("_error IS NOT NULL").orderBy("_offset").collect()
    assert list(range(3, 500, 10)) == [row._offset for row in bad]
    assert {(None, b"{", "the value is not JSON: Input data was truncated: {")} == {
        (row.id, bytes(row._value), row._error) for row in bad
    }


def test_dead_letters_leave_with_their_story(spark: "SparkSession", topics: Topics) -> None:
    name, dead = topics.create(), topics.create()
    fill(topics, name, 500)
    rows = read(spark, topics, name, deadLetterTopic=dead).collect()
    assert [number for number in range(500) if number % 10 != 3] == sorted(row.id for row in rows)
    found = letters(topics, dead, 50)
    assert [b"%d" % number for number in range(3, 500, 10)] == sorted((each.key for each in found), key=int)
    one = next(each for each in found if each.key == b"13")
    story = dict(one.headers)
    stack = story.pop(dead_letters.STACKTRACE) or b""
    assert b"BadValueError" in stack
    assert b"decode_row" in stack
    assert {
        "trace": b"1",
        dead_letters.TOPIC: name.encode(),
        dead_letters.PARTITION: b"0",
        dead_letters.OFFSET: b"13",
        dead_letters.TIMESTAMP: b"1013",
        dead_letters.MESSAGE: b"the value is not JSON: Input data was truncated: {",
        dead_letters.EXCEPTION: b"ottla.registry.serde.arrow.row_decoding.BadValueError",
    } == story
    assert (b"{", 1013) == (one.value, one.timestamp)


def test_a_stream_goes_on_past_bad_records(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    name, dead = ottla.create(), ottla.create()
    fill(ottla, name, 100)
    told = ottla.options(
        subscribe=name, startingOffsets="earliest", valueFormat="json", deadLetterTopic=dead, maxOffsetsPerTrigger=30
    )
    for expected in (90, 180):
        query = (
            spark.readStream.format("ottla")
            .options(**told)
            .schema(SCHEMA)
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert expected == spark.read.parquet(str(tmp_path / "out")).count()
        fill(ottla, name, 100)
    assert 20 == ottla.end(dead)


def test_a_dead_letter_topic_that_cannot_be_written_stops_the_query(spark: "SparkSession", ottla: Topics) -> None:
    name, dead = ottla.create(), ottla.create(max_message_bytes="200")
    ottla.fill(name, [b"{" + b" " * 1000])
    with pytest.raises(Exception, match=f"a bad record could not be written to dead-letter topic {dead}"):
        read(spark, ottla, name, deadLetterTopic=dead).collect()
