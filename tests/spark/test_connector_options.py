"""Every option of the source, each with a test of what it means; and the connector's documented examples.

`covers` says which options a test is about, and the last test here compares that with what the source accepts, so that
an option without a test does not stay unnoticed.
"""

from collections.abc import Callable
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, TypeVar

import pytest

from ottla.client.producer.blocking_producer import Producer
from ottla.model.ids import TopicPartition
from ottla.spark.source.options import CONNECTOR_OPTIONS, OWN_OPTIONS
from tests.spark.streams import Batches, offset_in, run_available, running, wait_for
from tests.spark.topics import Topics, numbers, values_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., None])

COVERED: dict[str, list[str]] = {}
HOUR_MS = 3_600_000
FOREVER = "-1"
"""The retention of records that say to be old."""


def covers(*options: str) -> Callable[[F], F]:
    """Says which options a test is about."""

    def note(test: F) -> F:
        for option in options:
            COVERED.setdefault(option, []).append(test.__name__)
        return test

    return note


@pytest.fixture(scope="module")
def filled(ottla: Topics) -> str:
    """A topic of two partitions, ten records in each, one for every hour since 1970; nobody writes to it."""
    name = ottla.create(partitions=2, retention_ms=FOREVER)
    for partition in (0, 1):
        begin = partition * 10
        times = [HOUR_MS * each for each in range(10)]
        ottla.fill(name, numbers(begin, begin + 10), partition, timestamps=times)
    return name


# Which topics


@covers("subscribe", "kafka.bootstrap.servers")
def test_subscribe_reads_a_list_of_topics(spark: "SparkSession", topics: Topics) -> None:
    one, other = topics.create(), topics.create()
    topics.fill(one, [b"1"])
    topics.fill(other, [b"2"])
    assert [b"1", b"2"] == sorted(values_of(topics.batch(spark, subscribe=f"{one}, {other}").collect()))


@covers("subscribePattern")
def test_subscribepattern_reads_topics_whose_whole_name_matches(spark: "SparkSession", ottla: Topics) -> None:
    for name in ("orders-eu", "orders-us", "orders-us-old", "my-orders-eu"):
        ottla.create(name=name)
        ottla.fill(name, [name.encode()])
    found = ottla.batch(spark, subscribePattern="orders-[a-z]+")
    assert [b"orders-eu", b"orders-us"] == values_of(found.collect())


@covers("assign")
def test_assign_reads_these_partitions_only(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    assert numbers(10, 20) == values_of(ottla.batch(spark, assign=f'{{"{filled}":[1]}}').collect())


# From where to where


@covers("startingOffsets", "endingOffsets")
def test_offsets_bound_a_batch(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    found = ottla.batch(
        spark,
        subscribe=filled,
        startingOffsets=f'{{"{filled}":{{"0":3,"1":-2}}}}',
        endingOffsets=f'{{"{filled}":{{"0":-1,"1":4}}}}',
    )
    assert [*numbers(3, 10), *numbers(10, 14)] == values_of(found.collect())


@covers("startingOffsets")
def test_offsets_begin_a_stream(spark: "SparkSession", ottla: Topics, filled: str, tmp_path: Path) -> None:
    stream = ottla.stream(spark, subscribe=filled, startingOffsets=f'{{"{filled}":{{"0":8,"1":-1}}}}')
    assert numbers(8, 10) == run_available(stream, tmp_path).values


@covers("startingOffsets")
def test_offsets_must_name_every_partition(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    with pytest.raises(Exception, match=f"{filled}-1 is missing"):
        ottla.batch(spark, subscribe=filled, startingOffsets=f'{{"{filled}":{{"0":3}}}}').count()
    with pytest.raises(Exception, match=f"{filled}-7 is not read"):
        ottla.batch(spark, subscribe=filled, endingOffsets=f'{{"{filled}":{{"0":3,"1":3,"7":3}}}}').count()
    with pytest.raises(Exception, match="the starting offset 30 is after the end 10"):
        ottla.batch(spark, subscribe=filled, startingOffsets=f'{{"{filled}":{{"0":30,"1":0}}}}').count()


@covers("startingTimestamp", "endingTimestamp")
def test_times_bound_a_batch(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create(retention_ms=FOREVER)
    topics.fill(name, numbers(0, 10), timestamps=[HOUR_MS * each for each in range(10)])
    options = {"subscribe": name, "startingTimestamp": 3 * HOUR_MS - 1, "endingTimestamp": 6 * HOUR_MS}
    assert numbers(3, 6) == values_of(topics.batch(spark, **options).collect())


@covers("startingOffsetsByTimestamp", "endingOffsetsByTimestamp")
def test_times_by_partition_bound_a_batch(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    options = {
        "subscribe": filled,
        "startingOffsetsByTimestamp": f'{{"{filled}":{{"0":{8 * HOUR_MS},"1":0}}}}',
        "endingOffsetsByTimestamp": f'{{"{filled}":{{"0":{99 * HOUR_MS},"1":{HOUR_MS}}}}}',
        # What has less precedence may say what it likes.
        "startingOffsets": "earliest",
        "endingOffsets": f'{{"{filled}":{{"0":1,"1":1}}}}',
    }
    assert [*numbers(8, 10), *numbers(10, 11)] == values_of(ottla.batch(spark, **options).collect())


@covers("startingTimestamp", "startingOffsetsByTimestampStrategy")
def test_a_time_that_nothing_has_is_an_error_or_the_end(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create(retention_ms=FOREVER)
    topics.fill(name, numbers(0, 2), timestamps=[1000, 2000])
    late = int(time() * 1000) + HOUR_MS
    with pytest.raises(Exception, match=f"no record at or after timestamp {late}"):
        topics.batch(spark, subscribe=name, startingTimestamp=late).count()
    options = {"subscribe": name, "startingTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"}
    assert [] == run_available(topics.stream(spark, **options), tmp_path).values
    topics.fill(name, numbers(2, 4), timestamps=[3000, 4000])
    assert numbers(2, 4) == run_available(topics.stream(spark, **options), tmp_path).values


# How much at a time


@covers("maxOffsetsPerTrigger")
def test_maxoffsetspertrigger_is_shared_in_proportion(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, numbers(0, 30))
    topics.fill(name, numbers(30, 40), partition=1)
    stream = topics.stream(spark, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    found = run_available(stream, tmp_path)
    assert [20, 20] == found.sizes
    assert {"0": 15, "1": 5} == offset_in(tmp_path, 0)[name]
    assert sorted(numbers(0, 40)) == sorted(found.values)


@covers("minOffsetsPerTrigger", "maxTriggerDelay")
def test_a_batch_waits_for_minoffsetspertrigger_or_the_delay(
    spark: "SparkSession", ottla: Topics, tmp_path: Path
) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 1))
    options = {"subscribe": name, "startingOffsets": "earliest", "minOffsetsPerTrigger": "5"}
    found = Batches()
    with running(ottla.stream(spark, **options, maxTriggerDelay="1h"), tmp_path / "one", found) as query:
        # The first batch comes at once, as the connector's does; the next when there is enough.
        wait_for("the first batch", query, lambda: found.sizes == [1])
        ottla.fill(name, numbers(1, 5))
        ottla.fill(name, numbers(5, 7))
        wait_for("the second batch", query, lambda: len(found.sizes) > 1)
        assert found.sizes[1] >= 5
    soon = Batches()
    with running(ottla.stream(spark, **options, maxTriggerDelay="200ms"), tmp_path / "two", soon) as query:
        wait_for("the first batch", query, lambda: len(soon.values) == 7)
        ottla.fill(name, numbers(7, 8))
        wait_for("the delay is over", query, lambda: soon.values == numbers(0, 8))


@covers("bytesPerTrigger")
def test_bytespertrigger_bounds_a_batch_about(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=2)
    for partition in (0, 1):
        topics.fill(name, [b"x" * 1000] * 100, partition)
    stream = topics.stream(spark, subscribe=name, startingOffsets="earliest", bytesPerTrigger="50000")
    found = run_available(stream, tmp_path)
    assert 200 == sum(found.sizes)
    assert all(40 <= size <= 52 for size in found.sizes[:-1]), found.sizes


# How it is cut into tasks


@covers("minPartitions")
def test_minpartitions_cuts_partitions(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    found = ottla.batch(spark, subscribe=filled, minPartitions="5")
    assert found.rdd.getNumPartitions() in (4, 5, 6)
    assert numbers(0, 20) == values_of(found.collect())


@covers("maxRecordsPerPartition")
def test_maxrecordsperpartition_bounds_a_task(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    found = ottla.batch(spark, subscribe=filled, maxRecordsPerPartition="4")
    sizes = [len(each) for each in found.select("offset").rdd.glom().collect()]
    assert [3, 3, 4, 3, 3, 4] == sizes


@covers("maxBytesPerPartition")
def test_maxbytesperpartition_bounds_a_task_about(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, [b"x" * 1000] * 100)
    found = topics.batch(spark, subscribe=name, maxBytesPerPartition="30000")
    assert 4 == found.rdd.getNumPartitions()
    assert 100 == found.count()


# The rest


@covers("failOnDataLoss")
def test_failondataloss_decides_about_records_that_are_gone(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 6))
    ottla.truncate(name, before=4)
    options = {"subscribe": name, "startingOffsets": f'{{"{name}":{{"0":1}}}}'}
    with pytest.raises(Exception, match="offsets 1 to 5 are to be read, but the log has 4 to 5"):
        ottla.batch(spark, **options).collect()
    assert numbers(4, 6) == values_of(ottla.batch(spark, **options, failOnDataLoss="false").collect())


@covers("includeHeaders")
def test_includeheaders_adds_a_column(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    ottla.fill(name, [b"1"], headers=[("a", b"b")])
    (row,) = ottla.batch(spark, subscribe=name, includeHeaders="true").select("headers").collect()
    assert [("a", b"b")] == [(each.key, each.value) for each in row.headers]
    assert "headers" not in ottla.batch(spark, subscribe=name).columns


@covers("groupId")
def test_groupid_is_where_a_query_begins(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    ottla.admin.alter_consumer_group_offsets("reader-of-filled", {TopicPartition(filled, 1): 8})
    found = ottla.batch(spark, subscribe=filled, groupId="reader-of-filled")
    assert [*numbers(0, 10), *numbers(18, 20)] == values_of(found.collect())


@covers("kafka.isolation.level")
def test_kafka_isolation_level_leaves_out_open_transactions(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create()
    topics.fill(name, numbers(0, 2))
    with Producer(bootstrap_servers=topics.bootstrap, transactional_id=f"open-{name}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"open", partition=0)
        producer.flush()
        committed = topics.batch(spark, subscribe=name, kafka_isolation_level="read_committed")
        assert numbers(0, 2) == values_of(committed.collect())
        assert [*numbers(0, 2), b"open"] == values_of(topics.batch(spark, subscribe=name).collect())
        producer.abort_transaction()


@covers("kafkaConsumer.pollTimeoutMs")
def test_polltimeoutms_bounds_the_wait_for_records(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 2))
    # An offset that nobody has written yet, as after a log was cut short.
    options = {
        "subscribe": name,
        "endingOffsets": f'{{"{name}":{{"0":5}}}}',
        "kafkaConsumer_pollTimeoutMs": "700",
    }
    with pytest.raises(Exception, match=r"no records arrived at offset 2 for 700 ms"):
        ottla.batch(spark, **options).collect()


@covers("groupIdPrefix", "kafka.group.id", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
@covers("partition.metadata.cache.ttl.ms", "kafka.…")
def test_options_about_the_connection_are_taken(spark: "SparkSession", ottla: Topics, filled: str) -> None:
    found = ottla.batch(
        spark,
        subscribe=filled,
        groupIdPrefix="mine",
        kafka_group_id="readers",
        fetchOffset_numRetries="2",
        fetchOffset_retryIntervalMs="5",
        partition_metadata_cache_ttl_ms="500",
        kafka_request_timeout_ms="20000",
        kafka_receive_buffer_bytes="65536",
        kafka_max_partition_fetch_bytes="4096",
        kafka_session_timeout_ms="6000",
    )
    assert numbers(0, 20) == values_of(found.collect())


@covers("fetchOffset.numRetries")
def test_a_broker_that_is_not_there_is_told(spark: "SparkSession") -> None:
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a", "fetchOffset.numRetries": "2"}
    with pytest.raises(Exception, match=r"cannot reach any broker of 127\.0\.0\.1:1"):
        spark.read.format("ottla").options(**nobody).load().count()


@covers("segments")
def test_segments_never_changes_what_is_read(spark: "SparkSession", topics: Topics) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, numbers(0, 20))
    topics.fill(name, numbers(20, 40), partition=1)
    for choice in ("auto", "never", "always"):
        found = topics.batch(spark, subscribe=name, segments=choice, maxRecordsPerPartition="7")
        assert numbers(0, 40) == values_of(found.collect()), choice


@covers("segments")
def test_files_do_not_bring_back_deleted_records(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 6))
    ottla.truncate(name, before=4)
    start = f'{{"{name}":{{"0":1}}}}'
    options = {"subscribe": name, "startingOffsets": start, "failOnDataLoss": "false"}
    assert numbers(4, 6) == values_of(ottla.batch(spark, **options).collect())
    with pytest.raises(Exception, match="segments=always"):
        ottla.batch(spark, **options, segments="always").collect()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign and subscribe are set"),
        ({"subscribe": "a", "kafka_auto_offset_reset": "earliest"}, "set startingOffsets"),
        ({"subscribe": "a", "kafka_bootstap_servers": "x"}, "did you mean kafka.bootstrap.servers?"),
    ],
)
def test_wrong_options_are_refused_with_what_to_do(
    spark: "SparkSession", ottla: Topics, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match="OptionError") as refusal:
        ottla.batch(spark, **options).count()
    assert words in str(refusal.value)


# The connector's documented examples, with another name of the format


def test_documented_batch_examples(spark: "SparkSession", ottla: Topics) -> None:
    for name in ("topic1", "topic2"):
        ottla.create(name=name, partitions=2 if name == "topic1" else 1)
        for partition in range(2 if name == "topic1" else 1):
            ottla.fill(name, numbers(0, 60), partition, keys=numbers(0, 60))

    df = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", ottla.bootstrap)
        .option("subscribe", "topic1,topic2")
        .option("startingOffsets", """{"topic1":{"0":23,"1":-2},"topic2":{"0":-2}}""")
        .option("endingOffsets", """{"topic1":{"0":50,"1":-1},"topic2":{"0":-1}}""")
        .load()
    )
    texts = df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    assert 27 + 60 + 60 == texts.count()

    df = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", ottla.bootstrap)
        .option("subscribePattern", "topic[12]")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    assert 180 == df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)").count()


def test_documented_stream_example_counts_words(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    from pyspark.sql.functions import explode, split

    name = ottla.create()
    ottla.fill(name, [b"to be or", b"not to be"])
    lines = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", ottla.bootstrap)
        .option("subscribe", name)
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(value AS STRING)", "headers")
    )
    counts = lines.select(explode(split(lines.value, " ")).alias("word")).groupBy("word").count()
    query = (
        counts.writeStream.outputMode("complete")
        .format("memory")
        .queryName("word_counts")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(90)
    found = {row["word"]: row["count"] for row in spark.table("word_counts").collect()}
    assert {"to": 2, "be": 2, "or": 1, "not": 1} == found


def test_every_option_has_a_test() -> None:
    kafka = {"kafka.bootstrap.servers", "kafka.group.id", "kafka.isolation.level", "kafka.…"}
    assert {*CONNECTOR_OPTIONS, *OWN_OPTIONS, *kafka} == set(COVERED)
