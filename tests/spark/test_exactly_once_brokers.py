"""Exactly once when the broker dies at each point of the commit protocol, and when transactions outlive their time."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest

from ottla.testing import ProcessBroker
from tests.spark.committed_records import open_transactions
from tests.spark.killing_source import POINTS, KillingSource
from tests.spark.test_exactly_once_kills import COUNT, check_once, run_until_it_dies, start
from tests.spark.topics import Topics, numbers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


QUICK = ("mid-write", "before-decision", "half-committed")
"""The others take as long again, and are run when there is time."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessBroker]:
    with ProcessBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def topics(broker: ProcessBroker) -> Iterator[Topics]:
    with Topics(broker.bootstrap) as topics:
        yield topics


@pytest.fixture
def source(spark: "SparkSession", topics: Topics) -> str:
    spark.dataSource.register(KillingSource)
    topic = topics.create(2)
    topics.fill(topic, numbers(0, COUNT // 2), 0)
    topics.fill(topic, numbers(COUNT // 2, COUNT), 1)
    return topic


@pytest.mark.parametrize(
    "point", [each if each in QUICK else pytest.param(each, marks=pytest.mark.long) for each in POINTS]
)
def test_the_broker_is_killed_there_and_comes_back(
    spark: "SparkSession", broker: ProcessBroker, topics: Topics, source: str, tmp_path: Path, point: str
) -> None:
    """The query does not even notice, but for the time that it takes."""
    output = topics.create(2)
    (tmp_path / "broker").write_text(str(broker.pid))
    is_over = Event()

    def revive() -> None:
        wait_until(lambda: is_over.is_set() or not broker.is_running, "the broker is killed")
        if not broker.is_running:
            broker.kill()
            broker.start()

    reviving = Thread(target=revive)
    reviving.start()
    try:
        query = start(spark, topics, source, output, tmp_path, killAt=point, killHow="broker")
        assert query.awaitTermination(120)
    finally:
        is_over.set()
        reviving.join()
    assert (tmp_path / f"{point}-happened").exists()
    check_once(topics, output)


@pytest.mark.parametrize("point", ["after-decision", "half-committed"])
def test_the_time_of_transactions_is_over_before_the_query_is_back(
    spark: "SparkSession", topics: Topics, source: str, tmp_path: Path, point: str
) -> None:
    """What the decision names is aborted then, all of it or a part: the next run puts its own in the place of that."""
    output = topics.create(2)
    run_until_it_dies(start(spark, topics, source, output, tmp_path, killAt=point, transactionTimeoutMs="2000"))
    wait_until(lambda: not open_transactions(topics.bootstrap), "the broker aborts what takes too long")
    assert start(spark, topics, source, output, tmp_path).awaitTermination(120)
    check_once(topics, output)
