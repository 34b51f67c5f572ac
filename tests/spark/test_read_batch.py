"""Batches of records as DataFrames: the connector's columns, on Ottla and on Apache Kafka."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.options import CompressionType
from ottla.testing import ProcessBroker
from tests.spark.committed_records import committed_records
from tests.spark.topics import Topics, numbers, values_of
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_columns_and_values_are_the_connectors(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create(retention_ms="-1")
    topics.fill(
        name,
        [b"one", None, b""],
        keys=[None, b"k", b""],
        timestamps=[0, 1_700_000_000_123, 1_700_000_000_456],
        headers=[("trace", b"\xff\x00"), ("empty", b""), ("null", None)],
    )
    found = topics.batch(spark, subscribe=name, includeHeaders="true")
    assert (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    ) == found.schema.simpleString()
    rows = found.orderBy("offset").collect()
    assert [(None, b"one"), (b"k", None), (b"", b"")] == [(row.key, row.value) for row in rows]
    assert [(name, 0, 0, 0), (name, 0, 1, 0), (name, 0, 2, 0)] == [
        (row.topic, row.partition, row.offset, row.timestampType) for row in rows
    ]
    assert [[("trace", b"\xff\x00"), ("empty", b""), ("null", None)]] * 3 == [
        [(each.key, each.value) for each in row.headers] for row in rows
    ]
    times = [row.timestamp.astimezone(UTC) for row in rows]
    assert [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_000),
        datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=456_000),
    ] == times


def test_without_includeheaders_there_is_no_such_column(spark: "SparkSession", ottla: Topics) -> None:
    columns = ottla.batch(spark, subscribe="any").columns
    assert ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"] == columns


def test_times_of_the_broker_are_told_apart_within_one_topic(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create(retention_ms="-1")
    topics.fill(name, [b"a", b"b"], timestamps=[5, 6])
    topics.configure(name, message_timestamp_type="LogAppendTime")
    topics.fill(name, [b"c"], timestamps=[7])
    rows = topics.batch(spark, subscribe=name).orderBy("offset").collect()
    assert [0, 0, 1] == [row.timestampType for row in rows]
    assert rows[2].timestamp.year > 2020


def test_a_schema_narrows_what_is_read(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    ottla.fill(name, [b"1", b"2"], keys=[b"a", b"b"])
    reader = spark.read.format("ottla").options(**ottla.options(subscribe=name))
    rows = reader.schema("offset BIGINT, key BINARY").load().orderBy("offset").collect()
    assert [(0, b"a"), (1, b"b")] == [tuple(row) for row in rows]
    assert 2 == reader.schema("value BINARY").load().count()
    with pytest.raises(Exception, match="no column val; it has key, value"):
        reader.schema("val BINARY").load().collect()
    with pytest.raises(Exception, match="column value is binary, not string; cast it afterwards"):
        reader.schema("value STRING").load().collect()


def test_compressed_records_are_read(spark: "SparkSession", ottla: Topics) -> None:
    codecs: tuple[CompressionType, ...] = ("gzip", "snappy", "lz4", "zstd")
    names = {ottla.create(): codec for codec in codecs}
    for name, codec in names.items():
        with Producer(bootstrap_servers=ottla.bootstrap, compression_type=codec, linger_ms=50) as producer:
            for value in numbers(0, 500):
                producer.send(name, value)
    rows = ottla.batch(spark, subscribe=",".join(names)).collect()
    found = {codec: values_of(row for row in rows if row.topic == name) for name, codec in names.items()}
    assert dict.fromkeys(codecs, numbers(0, 500)) == found


def test_readers_of_committed_records_see_no_aborted_ones(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, numbers(0, 3))
    topics.transaction(name, numbers(3, 6), commits=False)
    topics.transaction(name, numbers(6, 9), commits=True)
    topics.transaction(name, numbers(9, 12), commits=False)
    committed = topics.batch(spark, subscribe=name, kafka_isolation_level="read_committed")
    assert [*numbers(0, 3), *numbers(6, 9)] == values_of(committed.collect())
    assert numbers(0, 12) == values_of(topics.batch(spark, subscribe=name).collect())


def test_gaps_of_compaction_are_no_loss(spark: "SparkSession", tmp_path: Path) -> None:
    settings = {"log.cleaner.backoff.ms": "50"}
    with ProcessBroker(tmp_path, settings) as broker, Topics(broker.bootstrap) as topics:
        name = topics.create(
            cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="100", segment_bytes="1048576"
        )
        topics.fill(name, numbers(0, 50), keys=[b"same"] * 50)
        topics.fill(name, [b"x" * 600_000, b"x" * 600_000], keys=[b"large", b"large"])
        topics.fill(name, [b"last"], keys=[b"end"])
        wait_until(lambda: len(committed_records(topics.bootstrap, name)) < 53, "the log is compacted")
        rows = topics.batch(spark, subscribe=name).collect()
        assert len(rows) < 53
        assert 53 == topics.end(name)
        assert b"last" == values_of(rows)[-1]
        assert len({row.offset for row in rows}) == len(rows)


def test_tasks_cut_a_partition_without_losing_a_record(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, numbers(0, 700), partition=0)
    topics.fill(name, numbers(700, 800), partition=1)
    found = topics.batch(spark, subscribe=name, minPartitions="6")
    assert 6 == found.rdd.getNumPartitions()
    assert numbers(0, 800) == values_of(found.collect())


def test_an_empty_topic_has_no_rows(spark: "SparkSession", topics: Topics) -> None:
    assert [] == topics.batch(spark, subscribe=topics.create(partitions=3)).collect()


def test_a_topic_made_anew_after_planning_is_not_read_for_the_old_one(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, numbers(0, 3))
    # The tasks' Python workers have read from the topic, and know it.
    assert numbers(0, 3) == values_of(topics.batch(spark, subscribe=name).collect())
    strict, lenient = topics.batch(spark, subscribe=name), topics.batch(spark, subscribe=name, failOnDataLoss="false")
    planned = {each: each.rdd for each in (strict, lenient)}
    assert [1, 1] == [each.getNumPartitions() for each in planned.values()]
    topics.delete(name)
    topics.create(name=name)
    topics.fill(name, numbers(100, 105))
    with pytest.raises(Exception, match=f"{name}-0 was deleted with offsets 0 to 2"):
        planned[strict].collect()
    assert [] == planned[lenient].collect()


def test_sql_reads_a_topic_by_name_of_the_format(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    ottla.fill(name, [b"1", b"2", b"3"])
    options = f"`kafka.bootstrap.servers` '{ottla.bootstrap}', subscribe '{name}', startingOffsets 'earliest'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW records USING ottla OPTIONS ({options})")
    assert 3 == spark.sql("SELECT count(*) AS n FROM records WHERE CAST(value AS STRING) >= '1'").first().n
    # Spark keeps the options of a view, and forgets those of a table.
    spark.sql(f"CREATE TABLE kept_records USING ottla OPTIONS ({options})")
    try:
        with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
            spark.table("kept_records").count()
    finally:
        spark.sql("DROP TABLE kept_records")


CONNECT_PROGRAM = """
import sys
from ottla.spark.launch.session import spark_environment
import os
os.environ.update(spark_environment())
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[1]").getOrCreate()
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
rows = spark.read.format("ottla").options(**options).load()
print("batch", rows.count(), flush=True)
stream = spark.readStream.format("ottla").options(**options).option("startingOffsets", "earliest").load()
query = (
    stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", sys.argv[3])
    .trigger(availableNow=True).start()
)
query.awaitTermination(60)
print("stream", spark.table("seen").count(), flush=True)
spark.stop()
"""


def test_spark_connect_finds_and_reads_it(ottla: Topics, tmp_path: Path) -> None:
    name = ottla.create(partitions=2)
    ottla.fill(name, numbers(0, 5))
    program = tmp_path / "program.py"
    program.write_text(CONNECT_PROGRAM)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")}
    done = subprocess.run(
        [sys.executable, str(program), ottla.bootstrap, name, str(tmp_path / "checkpoint")],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert ["batch 5", "stream 5"] == done.stdout.splitlines()[-2:], done.stderr[-4000:]
