"""Stream writes: batches in order, output modes, several batches with the same workers, sinks that cannot be shared."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.committed_records import committed_records, committed_values, open_transactions
from tests.spark.topics import Topics, numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_available(rows: "DataFrame", topics: Topics, checkpoint: Path, mode: str = "append", **options: Any) -> None:
    """Writes all there is, and ends."""
    query = (
        rows.writeStream.format("ottla")
        .options(**topics.options(**options))
        .option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120), "the query did not end"
    finally:
        query.stop()


@pytest.mark.parametrize("delivery", ["exactly-once", "at-least-once"])
def test_batches_follow_each_other(spark: "SparkSession", topics: Topics, tmp_path: Path, delivery: str) -> None:
    source, output = topics.create(), topics.create()
    topics.fill(source, numbers(0, 500))
    stream = topics.stream(spark, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=100)
    write_available(stream.select("value"), topics, tmp_path, topic=output, delivery=delivery)
    topics.fill(source, numbers(500, 600))
    write_available(stream.select("value"), topics, tmp_path, topic=output, delivery=delivery)
    assert numbers(0, 600) == [each.value for each in committed_records(topics.bootstrap, output)]
    assert [] == open_transactions(topics.bootstrap)
    ids = [each.transactional_id for each in topics.admin.list_transactions() if ".task-" in each.transactional_id]
    assert (0 if delivery == "at-least-once" else 1) <= len(ids)


def test_workers_use_their_ids_again(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    source, output = ottla.create(), ottla.create()
    ottla.fill(source, numbers(0, 200))
    stream = ottla.stream(spark, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    write_available(stream.select("value"), ottla, tmp_path, topic=output, sinkId=f"sink-{output}")
    assert 200 == len(committed_values(ottla.bootstrap, output))
    prefix = f"ottla-spark-sink-{output}.task-"
    ids = [
        each.transactional_id for each in ottla.admin.list_transactions() if each.transactional_id.startswith(prefix)
    ]
    assert len(ids) <= 2, "ten batches of one task, with two workers to run it"


def test_an_aggregate_is_written_anew_in_complete_mode(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    source, output = ottla.create(), ottla.create()
    ottla.fill(source, [b"a", b"b", b"a"])
    stream = ottla.stream(spark, subscribe=source, startingOffsets="earliest")
    counts = stream.groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    write_available(counts, ottla, tmp_path, "complete", topic=output)
    ottla.fill(source, [b"b"])
    write_available(counts, ottla, tmp_path, "complete", topic=output)
    found = [(each.key, each.value) for each in committed_records(ottla.bootstrap, output)]
    assert [(b"a", b"2"), (b"b", b"1")] == sorted(found[:2])
    assert [(b"a", b"2"), (b"b", b"2")] == sorted(found[2:])


def test_another_checkpoint_cannot_go_on_with_a_sink(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    source, output = ottla.create(), ottla.create()
    ottla.fill(source, numbers(0, 10))
    stream = ottla.stream(spark, subscribe=source, startingOffsets="earliest").select("value")
    write_available(stream, ottla, tmp_path / "one", topic=output, sinkId="the-only-one")
    with pytest.raises(Exception, match="sink the-only-one belongs to the query"):
        write_available(stream, ottla, tmp_path / "two", topic=output, sinkId="the-only-one")
    assert sorted(numbers(0, 10)) == committed_values(ottla.bootstrap, output)
    assert [] == open_transactions(ottla.bootstrap)


def test_wrong_columns_stop_the_query_before_it_writes(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    source, output = ottla.create(), ottla.create()
    ottla.fill(source, numbers(0, 10))
    stream = ottla.stream(spark, subscribe=source, startingOffsets="earliest").selectExpr("offset AS value")
    with pytest.raises(Exception, match="column value must be of type string or binary, not bigint"):
        write_available(stream, ottla, tmp_path, topic=output)
    assert [] == committed_values(ottla.bootstrap, output)
