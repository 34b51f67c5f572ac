"""The same protocol on Apache Kafka: a kill in the middle of a commit, and a decision about a thousand tasks."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.client.admin.options import AdminConfig
from ottla.spark.sink.broker_requests import SinkBroker
from ottla.spark.sink.decision import CommitDecision, FirstOffset, TaskTransaction
from ottla.spark.sink.names import task_id
from tests.spark.killing_source import KillingSource
from tests.spark.test_exactly_once_kills import COUNT, check_once, run_until_it_dies, start
from tests.spark.topics import Topics, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_killed_half_committed_on_kafka(spark: "SparkSession", kafka: Topics, tmp_path: Path) -> None:
    spark.dataSource.register(KillingSource)
    source, output = kafka.create(2), kafka.create(2)
    kafka.fill(source, numbers(0, COUNT // 2), 0)
    kafka.fill(source, numbers(COUNT // 2, COUNT), 1)
    run_until_it_dies(start(spark, kafka, source, output, tmp_path, killAt="half-committed"))
    assert start(spark, kafka, source, output, tmp_path).awaitTermination(90)
    check_once(kafka, output)


def test_a_decision_about_a_thousand_tasks_is_kept_by_kafka(kafka: Topics) -> None:
    decision = CommitDecision(
        owner="query",
        batch_id=7,
        transactions=tuple(
            TaskTransaction(
                task=task,
                transactional_id=task_id("large", f"{task * 0x9E3779B97F4A7C15 % 2**64:016x}"),
                producer_id=task,
                epoch=0,
                row_count=task * 104_729 % 50_000,
                byte_count=task * 1_299_709 % 9_999_991,
                first_offsets=(FirstOffset("topic", task % 17, task * 15_485_863 % 2**40),),
            )
            for task in range(1_000)
        ),
    )

    async def keep() -> CommitDecision | None:
        async with AdminConfig(bootstrap_servers=kafka.bootstrap).cluster() as cluster:
            first = SinkBroker(cluster, "large", timeout_ms=60_000)
            await first.take_fence()
            await first.store(decision)
            second = SinkBroker(cluster, "large", timeout_ms=60_000)
            await second.take_fence()
            return await second.read()

    assert decision == asyncio.run(keep())
