"""Exactly once through every kill point of the commit protocol: the process that is there dies by SIGKILL.

Here the query runs in the tests' session, and what dies is the worker process in which Spark runs the step; "as if the
driver had died" means that nothing is called afterwards, either. The query is then started again from its checkpoint.
`test_exactly_once_drivers.py` kills whole drivers.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.committed_records import committed_values, open_transactions
from tests.spark.killing_source import POINTS, KillingSource
from tests.spark.topics import Topics, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

COUNT = 2_000


@pytest.fixture
def source(spark: "SparkSession", ottla: Topics) -> str:
    spark.dataSource.register(KillingSource)
    topic = ottla.create(2)
    ottla.fill(topic, numbers(0, COUNT // 2), 0)
    ottla.fill(topic, numbers(COUNT // 2, COUNT), 1)
    return topic


def start(
    spark: "SparkSession", topics: Topics, source: str, output: str, folder: Path, **options: str
) -> "StreamingQuery":
    stream = topics.stream(spark, subscribe=source, startingOffsets="earliest")
    return (
        stream.selectExpr("key", "value")
        .writeStream.format("ottla_killing")
        .options(**topics.options(topic=output, killFolder=folder, **options))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def run_until_it_dies(query: "StreamingQuery") -> str:
    with pytest.raises(Exception) as died:  # noqa: PT011  # whatever Spark makes of it
        query.awaitTermination(90)
    return str(died.value)


def check_once(topics: Topics, output: str) -> None:
    assert [] == open_transactions(topics.bootstrap)
    assert sorted(numbers(0, COUNT)) == committed_values(topics.bootstrap, output)


@pytest.mark.parametrize("point", POINTS)
def test_killed_there_and_nothing_called_after(
    spark: "SparkSession", ottla: Topics, source: str, tmp_path: Path, point: str
) -> None:
    output = ottla.create(2)
    run_until_it_dies(start(spark, ottla, source, output, tmp_path, killAt=point))
    assert (tmp_path / f"{point}-happened").exists()
    assert start(spark, ottla, source, output, tmp_path).awaitTermination(90)
    check_once(ottla, output)


@pytest.mark.parametrize("how", ["worker", "raise"])
@pytest.mark.parametrize("point", ["before-decision", "half-committed", "after-done"])
def test_a_commit_that_fails_is_followed_by_an_abort(
    spark: "SparkSession", ottla: Topics, source: str, tmp_path: Path, point: str, how: str
) -> None:
    output = ottla.create(2)
    words = run_until_it_dies(start(spark, ottla, source, output, tmp_path, killAt=point, killHow=how))
    assert how != "raise" or f"told to fail at {point}" in words
    expected = {"before-decision": 0, "half-committed": None, "after-done": COUNT}[point]
    if expected is not None:
        assert expected == len(committed_values(ottla.bootstrap, output)), "abort must not undo, nor do, a commit"
    assert start(spark, ottla, source, output, tmp_path).awaitTermination(90)
    check_once(ottla, output)


def test_a_task_that_fails_leaves_nothing_open(
    spark: "SparkSession", ottla: Topics, source: str, tmp_path: Path
) -> None:
    output = ottla.create(2)
    run_until_it_dies(start(spark, ottla, source, output, tmp_path, killAt="mid-write", killHow="raise"))
    assert [] == committed_values(ottla.bootstrap, output)
    assert start(spark, ottla, source, output, tmp_path).awaitTermination(90)
    check_once(ottla, output)
