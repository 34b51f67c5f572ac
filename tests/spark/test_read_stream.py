"""Streams of records: from checkpoint to checkpoint, while topics grow, shrink, vanish and brokers go away."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.model.ids import TopicPartition
from ottla.testing import ProcessBroker
from tests.spark.streams import Batches, offset_in, run_available, running, wait_for
from tests.spark.topics import Topics, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_goes_on_where_its_checkpoint_ends(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create(partitions=2)
    topics.fill(name, numbers(0, 30))
    topics.fill(name, numbers(30, 40), partition=1)
    stream = topics.stream(spark, subscribe=name, startingOffsets="earliest")
    assert numbers(0, 40) == run_available(stream, tmp_path).values
    assert [] == run_available(stream, tmp_path).values
    topics.fill(name, numbers(40, 45))
    assert numbers(40, 45) == run_available(stream, tmp_path).values
    written = offset_in(tmp_path, 0)
    assert {"0": 30, "1": 10} == written[name]
    assert {"0": 35, "1": 10} == offset_in(tmp_path, 1)[name]


def test_latest_is_where_the_query_first_began(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 5))
    stream = ottla.stream(spark, subscribe=name)
    assert [] == run_available(stream, tmp_path).values
    # The query was away when these came, and had not read a single record before.
    ottla.fill(name, numbers(5, 9))
    assert numbers(5, 9) == run_available(stream, tmp_path).values


def test_a_first_batch_that_is_run_again_is_the_same(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 5))
    found = Batches()
    with running(ottla.stream(spark, subscribe=name), tmp_path, found) as query:
        wait_for("the start is written down", query, lambda: 0 in found.rows)
        ottla.fill(name, numbers(5, 9))
        wait_for("records are read", query, lambda: len(found.values) == 4)
    # As after a crash between the batches' work and Spark's note that it is done.
    shutil.rmtree(tmp_path / "commits")
    for later in (tmp_path / "offsets").iterdir():
        if later.name not in ("0", ".0.crc"):
            later.unlink()
    ottla.fill(name, numbers(9, 12))
    assert numbers(5, 12) == run_available(ottla.stream(spark, subscribe=name), tmp_path).values


def test_new_partitions_are_read_from_their_first_record(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 3))
    found = Batches()
    with running(ottla.stream(spark, subscribe=name), tmp_path, found) as query:
        wait_for("the start is written down", query, lambda: 0 in found.rows)
        ottla.grow(name, 3)
        ottla.fill(name, numbers(3, 6), partition=2)
        wait_for("the new partition is read", query, lambda: found.values == numbers(3, 6))
        ottla.fill(name, numbers(6, 8), partition=1)
        wait_for("the other new one is read", query, lambda: found.values == numbers(3, 8))


def test_a_topic_that_comes_to_match_is_read(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    first = ottla.create(name="match-a")
    ottla.fill(first, numbers(0, 2))
    stream = ottla.stream(spark, subscribePattern="match-.", startingOffsets="earliest")
    assert numbers(0, 2) == run_available(stream, tmp_path).values
    second = ottla.create(name="match-b")
    ottla.create(name="match-none")
    ottla.fill(second, numbers(2, 5))
    assert numbers(2, 5) == run_available(stream, tmp_path).values


@pytest.mark.parametrize("fails", [True, False])
def test_retention_overtakes_a_slow_query(spark: "SparkSession", ottla: Topics, tmp_path: Path, fails: bool) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 4))
    stream = ottla.stream(spark, subscribe=name, startingOffsets="earliest", failOnDataLoss=fails)
    assert numbers(0, 4) == run_available(stream, tmp_path).values
    ottla.fill(name, numbers(4, 10))
    ottla.truncate(name, before=7)
    if fails:
        with pytest.raises(Exception, match=r"offsets 4 to 9 are to be read, but the log has 7 to 9.*failOnDataLoss"):
            run_available(stream, tmp_path)
    else:
        assert numbers(7, 10) == run_available(stream, tmp_path).values


def test_a_deleted_topic_is_data_loss(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    gone, kept = topics.create(), topics.create()
    topics.fill(gone, numbers(0, 2))
    topics.fill(kept, numbers(2, 4))
    options = {"subscribe": f"{gone},{kept}", "startingOffsets": "earliest"}
    assert numbers(0, 4) == sorted(run_available(topics.stream(spark, **options), tmp_path).values)
    topics.delete(gone)
    topics.fill(kept, numbers(4, 6))
    with pytest.raises(Exception, match=f"{gone}-0 was deleted"):
        run_available(topics.stream(spark, **options), tmp_path)
    found = run_available(topics.stream(spark, **options, failOnDataLoss="false"), tmp_path)
    assert numbers(4, 6) == found.values


def test_a_topic_made_anew_is_data_loss_though_it_is_longer(
    spark: "SparkSession", ottla: Topics, tmp_path: Path
) -> None:
    name = ottla.create()
    ottla.fill(name, numbers(0, 2))
    options = {"subscribe": name, "startingOffsets": "earliest"}
    assert numbers(0, 2) == run_available(ottla.stream(spark, **options), tmp_path).values
    ottla.delete(name)
    ottla.create(name=name)
    ottla.fill(name, numbers(100, 105))
    with pytest.raises(Exception, match=f"topic {name} was deleted and recreated"):
        run_available(ottla.stream(spark, **options), tmp_path)
    found = run_available(ottla.stream(spark, **options, failOnDataLoss="false"), tmp_path)
    assert numbers(100, 105) == found.values


def test_a_checkpoint_of_another_query_is_refused(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    mine, other = ottla.create(), ottla.create()
    ottla.fill(mine, numbers(0, 2))
    ottla.fill(other, numbers(0, 2))
    run_available(ottla.stream(spark, subscribe=mine, startingOffsets="earliest"), tmp_path)
    with pytest.raises(Exception, match=f"reads {mine}, but this query reads {other}.*checkpointLocation"):
        run_available(ottla.stream(spark, subscribe=other, startingOffsets="earliest"), tmp_path)


def test_a_missing_topic_is_told_with_what_to_do(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"has no topic not-there; .*ottla topics list"):
        run_available(topics.stream(spark, subscribe="not-there"), tmp_path)
    with pytest.raises(Exception, match="has no topic not-there"):
        topics.batch(spark, subscribe="not-there").count()
    name = topics.create()
    with pytest.raises(Exception, match=f"has no partition {name}-7"):
        topics.batch(spark, assign=f'{{"{name}":[0,7]}}').count()


def test_aborted_and_committed_transactions_are_no_loss(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create()
    options = {"subscribe": name, "startingOffsets": "earliest", "kafka_isolation_level": "read_committed"}
    expected = []
    for begin in range(0, 12, 3):
        topics.transaction(name, numbers(begin, begin + 3), commits=begin % 2 == 0)
        expected += numbers(begin, begin + 3) if begin % 2 == 0 else []
    # One offset at a time: many batches have nothing but markers, or records that nobody may see.
    found = run_available(topics.stream(spark, **options, maxOffsetsPerTrigger="5"), tmp_path)
    assert expected == found.values
    assert topics.end(name) == offset_in(tmp_path, max(found.rows))[name]["0"]


def test_the_group_follows_the_stream(spark: "SparkSession", topics: Topics, tmp_path: Path) -> None:
    name = topics.create()
    topics.fill(name, numbers(0, 10))
    group = f"follower-of-{name}"
    options = {"subscribe": name, "startingOffsets": "earliest", "groupId": group, "maxOffsetsPerTrigger": "4"}
    assert numbers(0, 10) == run_available(topics.stream(spark, **options), tmp_path / "one").values
    # A batch's end is committed when the next one begins.
    assert {TopicPartition(name, 0): 8} == topics.committed(group)
    # A new query of the group, with no checkpoint, begins where the group is.
    assert numbers(8, 10) == run_available(topics.stream(spark, **options), tmp_path / "two").values


def test_a_broker_goes_away_in_the_middle_and_returns(spark: "SparkSession", tmp_path: Path) -> None:
    with ProcessBroker(tmp_path / "broker") as broker, Topics(broker.bootstrap) as topics:
        name = topics.create(partitions=2)
        topics.fill(name, numbers(0, 50))
        found = Batches()
        stream = topics.stream(spark, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="5")
        with running(stream, tmp_path / "checkpoint", found) as query:
            wait_for("some is read", query, lambda: len(found.values) >= 10)
            broker.kill()
            during = len(found.rows)
            broker.start()
            wait_for("reading goes on", query, lambda: len(found.rows) > during + 1)
            topics.fill(name, numbers(50, 60), partition=1)
            wait_for("all is read", query, lambda: len(found.values) == 60)
        assert sorted(numbers(0, 60)) == sorted(found.values)
