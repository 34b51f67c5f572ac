"""Groups that follow streams, and what progress events tell: with real queries, and brokers that go away."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla import TopicPartition
from ottla.spark import FollowGroups, follow_groups, stream_progress
from ottla.testing import ProcessBroker
from tests.processes import OTTLA, run
from tests.spark.streams import Batches, run_available, running, wait_for
from tests.spark.topics import Topics, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def follower(spark: "SparkSession") -> Iterator[FollowGroups]:
    found = follow_groups(spark)
    yield found
    spark.streams.removeListener(found)
    found.close()


def test_the_group_has_the_last_batch_of_a_stream_that_ended(
    spark: "SparkSession", topics: Topics, follower: FollowGroups, tmp_path: Path
) -> None:
    name, group = topics.create(partitions=2), f"follows-{tmp_path.name}"
    topics.fill(name, numbers(0, 30), 0)
    topics.fill(name, numbers(30, 40), 1)
    stream = topics.stream(spark, subscribe=name, startingOffsets="earliest", groupId=group, maxOffsetsPerTrigger=15)
    found = run_available(stream, tmp_path)
    assert 40 == len(found.values)
    assert follower.settle(spark)
    assert {TopicPartition(name, 0): 30, TopicPartition(name, 1): 10} == topics.committed(group)
    topics.fill(name, numbers(40, 45), 1)
    run_available(stream, tmp_path)
    assert follower.settle(spark)
    assert {TopicPartition(name, 0): 30, TopicPartition(name, 1): 15} == topics.committed(group)


def test_the_command_line_shows_the_lag(
    spark: "SparkSession", ottla: Topics, follower: FollowGroups, tmp_path: Path
) -> None:
    name, group = ottla.create(), f"lag-{tmp_path.name}"
    ottla.fill(name, numbers(0, 30))
    stream = ottla.stream(spark, subscribe=name, startingOffsets="earliest", groupId=group)
    run_available(stream, tmp_path)
    assert follower.settle(spark)
    ottla.fill(name, numbers(0, 12))
    shown = run([*OTTLA, "groups", "describe", group, "--bootstrap", ottla.bootstrap, "--json"]).stdout
    assert '"lag": 12' in shown or '"lag":12' in shown, shown


def test_a_group_never_goes_back(spark: "SparkSession", ottla: Topics) -> None:
    name = ottla.create(partitions=2)
    zero, one = TopicPartition(name, 0), TopicPartition(name, 1)
    ottla.admin.alter_consumer_group_offsets("further", {zero: 500})
    follower = FollowGroups()
    follower.onQueryProgress(progress(ottla, "further", {name: {"0": 35, "1": 5}}))
    follower.onQueryTerminated(_Event({}))
    assert follower.settle(spark)
    assert {zero: 500, one: 5} == ottla.committed("further")
    follower.close()


def test_progress_tells_rates_and_distance(spark: "SparkSession", ottla: Topics, tmp_path: Path) -> None:
    name = ottla.create()
    ottla.fill(name, [b"x" * 1000] * 90)
    stream = ottla.stream(spark, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    found: Any = Batches()
    query = (
        stream.writeStream.foreachBatch(found)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    told = [stream_progress(each) for each in query.recentProgress]
    told = [each for each in told if each.rows]
    assert [40, 40, 10] == [each.rows for each in told]
    assert [0, 1, 2] == [each.batch_id for each in told]
    assert [40, 40, 10] == [each.topics[name].offsets_read for each in told]
    assert [50, 10, 0] == [each.offsets_behind for each in told]
    for each in told:
        assert each.batch_ms >= each.phases_ms["addBatch"] > 0
        assert each.rows_processed_per_second > 0
        assert each.bytes_per_second is not None
        bytes_read = each.bytes_per_second * each.batch_ms / 1000
        assert 900 * each.rows < bytes_read < 1500 * each.rows
    assert stream_progress(query.lastProgress).run_id == str(query.runId)


def test_an_outage_delays_the_group(spark: "SparkSession", tmp_path: Path) -> None:
    with ProcessBroker(tmp_path / "away") as away:
        away.kill()
        follower = FollowGroups()
        follower.onQueryProgress(progress(away, "g", {"orders": {"0": 7}}))
        assert not follower.settle(spark, timeout_s=0.5)
        away.start()
        away.create_topic("orders")
        follower.onQueryTerminated(_Event({}))
        assert follower.settle(spark, timeout_s=60)
        with Topics(away.bootstrap) as there:
            assert {TopicPartition("orders", 0): 7} == there.committed("g")
        follower.close()


class _Event:
    """As Spark's listener gets it."""

    runId = "r"

    def __init__(self, progress: Any) -> None:
        self.progress = progress


def progress(broker: Any, group: str, offsets: dict[str, dict[str, int]]) -> _Event:
    """A batch of a stream that a group on this broker follows."""
    end = {**offsets, "@ottla": {"group": group, "bootstrap": broker.bootstrap}}
    source = {"startOffset": None, "endOffset": end, "latestOffset": None}
    return _Event({"id": "q", "runId": "r", "timestamp": "", "batchId": 0, "durationMs": {}, "sources": [source]})


def test_a_running_stream_is_followed(
    spark: "SparkSession", ottla: Topics, follower: FollowGroups, tmp_path: Path
) -> None:
    name, group = ottla.create(), f"runs-{tmp_path.name}"
    stream = ottla.stream(spark, subscribe=name, startingOffsets="earliest", groupId=group)
    with running(stream, tmp_path, Batches()) as query:
        for end in (10, 20):
            ottla.fill(name, numbers(0, 10))
            wait_for("the group follows", query, lambda end=end: end in ottla.committed(group).values())  # type: ignore[misc]
