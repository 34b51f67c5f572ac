"""Batch writes: columns, topics and keys as Spark's connector has them, one atomic job, and errors in plain words."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.records.murmur2 import murmur2
from tests.spark.committed_records import committed_records, committed_values, open_transactions
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(rows: "DataFrame", topics: Topics, **options: str) -> None:
    rows.write.format("ottla").options(**topics.options(**options)).mode("append").save()


def test_all_columns_arrive(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create(4)
    rows = spark.sql(
        "SELECT * FROM VALUES"
        " ('a', CAST('one' AS BINARY), array(struct('h' AS key, CAST('1' AS BINARY) AS value)), 2),"
        " (NULL, CAST('two' AS BINARY), NULL, 0),"
        " ('c', NULL, array(), CAST(NULL AS INT))"
        " AS t(key, value, headers, partition)"
    )
    write(rows, topics, topic=topic)
    found = {each.value: each for each in committed_records(topics.bootstrap, topic)}
    assert (2, b"a", (("h", b"1"),)) == (found[b"one"].partition, found[b"one"].key, found[b"one"].headers)
    assert (0, None, ()) == (found[b"two"].partition, found[b"two"].key, found[b"two"].headers)
    assert ((murmur2(b"c") & 0x7FFFFFFF) % 4, b"c") == (found[None].partition, found[None].key)


def test_the_column_topic_says_where_rows_go(spark: "SparkSession", ottla: Topics) -> None:
    first, second = ottla.create(2), ottla.create(1)
    rows = spark.range(1000).selectExpr(
        f"CASE WHEN id % 3 = 0 THEN '{first}' ELSE '{second}' END AS topic", "CAST(id AS STRING) AS value"
    )
    write(rows, ottla)
    thirds = {b"%d" % number for number in range(0, 1000, 3)}
    assert sorted(thirds) == committed_values(ottla.bootstrap, first)
    assert sorted({b"%d" % number for number in range(1000)} - thirds) == committed_values(ottla.bootstrap, second)


def test_the_option_topic_beats_the_column(spark: "SparkSession", ottla: Topics) -> None:
    topic = ottla.create()
    write(spark.sql("SELECT 'nowhere' AS topic, 'x' AS value"), ottla, topic=topic)
    assert [b"x"] == committed_values(ottla.bootstrap, topic)


def test_rows_of_a_key_stay_in_order(spark: "SparkSession", ottla: Topics) -> None:
    topic = ottla.create(3)
    rows = spark.range(30_000, numPartitions=1).selectExpr(
        "CAST(id % 5 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    write(rows, ottla, topic=topic)
    by_key: dict[bytes | None, list[int]] = {}
    for each in committed_records(ottla.bootstrap, topic):
        by_key.setdefault(each.key, []).append(int(each.value or b""))
    assert {b"%d" % key: list(range(key, 30_000, 5)) for key in range(5)} == by_key


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_many_tasks_are_one_job(spark: "SparkSession", topics: Topics, delivery: str) -> None:
    topic = topics.create(3)
    rows = spark.range(20_000, numPartitions=9).selectExpr("CAST(id AS STRING) AS value")
    write(rows, topics, topic=topic, delivery=delivery)
    assert sorted(b"%d" % number for number in range(20_000)) == committed_values(topics.bootstrap, topic)
    assert [] == open_transactions(topics.bootstrap)


def test_a_job_whose_task_fails_leaves_nothing(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    rows = spark.range(10_000, numPartitions=4).selectExpr(
        "IF(id = 9999, raise_error('no more'), CAST(id AS STRING)) AS value"
    )
    with pytest.raises(Exception, match="no more"):
        write(rows, topics, topic=topic)
    assert [] == open_transactions(topics.bootstrap)
    assert [] == committed_values(topics.bootstrap, topic)


def test_a_batch_of_a_named_sink_is_written_once(spark: "SparkSession", topics: Topics) -> None:
    topic = topics.create()
    sink = f"sink-of-{topic}"
    for batch_id, numbers in ((0, (0, 10)), (0, (0, 10)), (1, (10, 20)), (1, (10, 20))):
        rows = spark.range(*numbers).selectExpr("CAST(id AS STRING) AS value")
        write(rows, topics, topic=topic, sinkId=sink, batchId=str(batch_id))
    assert sorted(b"%d" % number for number in range(20)) == committed_values(topics.bootstrap, topic)
    with pytest.raises(Exception, match="already has batch 1, so batch 0 cannot be written"):
        write(spark.sql("SELECT 'late' AS value"), topics, topic=topic, sinkId=sink, batchId="0")
    assert 20 == len(committed_values(topics.bootstrap, topic))


def test_a_stream_through_foreach_batch_is_exactly_once(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    source, topic = ottla.create(), ottla.create()
    ottla.fill(source, [b"%d" % number for number in range(100)])

    def twice(rows: "DataFrame", batch_id: int) -> None:
        for _ in range(2):
            write(rows.select("value"), ottla, topic=topic, sinkId=f"each-{topic}", batchId=str(batch_id))

    stream = ottla.stream(spark, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    query = (
        stream.writeStream.foreachBatch(twice)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    assert sorted(b"%d" % number for number in range(100)) == committed_values(ottla.bootstrap, topic)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("'x' AS other", {}, "no column value of type string or binary"),
        ("1 AS value", {}, "column value must be of type string or binary, not int"),
        ("'x' AS value, 1L AS partition", {}, "column partition must be of type int"),
        ("'x' AS value, 7 AS partition", {}, "partition"),
        ("'x' AS value", {"kafka_compresion_type": "zstd"}, "did you mean kafka.compression.type"),
        ("'x' AS value", {"deliverry": "exactly-once"}, "did you mean delivery"),
        ("repeat('x', 2000000) AS value", {}, "max_request_size"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: "SparkSession", ottla: Topics, columns: str, options: dict[str, str], words: str
) -> None:
    topic = ottla.create()
    with pytest.raises(Exception) as refused:  # noqa: PT011  # Spark wraps errors in its own
        write(spark.sql(f"SELECT {columns}"), ottla, topic=topic, **options)
    assert words in str(refused.value)
    assert [] == committed_values(ottla.bootstrap, topic)


def test_a_row_without_a_topic_is_refused(spark: "SparkSession", ottla: Topics) -> None:
    topic = ottla.create()
    rows = spark.sql(f"SELECT * FROM VALUES ('{topic}', 'x'), (NULL, 'y') AS t(topic, value)")
    with pytest.raises(Exception, match="a row has no topic"):
        write(rows, ottla)
    assert [] == committed_values(ottla.bootstrap, topic)


def test_a_topic_that_cannot_be_is_refused(spark: "SparkSession", ottla: Topics) -> None:
    with pytest.raises(Exception, match="the topic name is not valid"):
        write(spark.sql("SELECT 'x' AS value"), ottla, topic="not/a/name")


def test_a_topic_cannot_be_overwritten(spark: "SparkSession", ottla: Topics) -> None:
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        spark.sql("SELECT 'x' AS value").write.format("ottla").options(**ottla.options(topic="t")).mode(
            "overwrite"
        ).save()


def test_a_timeout_beyond_what_brokers_allow_is_refused_or_lowered(spark: "SparkSession", tmp_path: Path) -> None:
    from ottla.testing import ProcessBroker

    with (
        ProcessBroker(tmp_path, {"transaction.max.timeout.ms": "20000"}) as broker,
        Topics(broker.bootstrap) as topics,
    ):
        topic = topics.create()
        write(spark.sql("SELECT 'x' AS value"), topics, topic=topic)
        assert [b"x"] == committed_values(broker.bootstrap, topic)
        with pytest.raises(Exception, match="INVALID_TRANSACTION_TIMEOUT"):
            write(spark.sql("SELECT 'y' AS value"), topics, topic=topic, transactionTimeoutMs="30000")
