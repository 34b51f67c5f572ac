"""What queues owe when topics are deleted: dead letters go where they belong now, and what is lost is logged."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla import AsyncAdmin, AsyncConsumer, AsyncProducer, ConfigResource, ResourceType
from ottla.broker.broker import Broker
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DELAY_MS, RETRY_REJECT, TTL_MS
from ottla.queues.sinks import Delivery, Outcome, Sinks
from tests.broker.inside import queue_shard
from tests.broker.metric_samples import samples_of
from tests.broker.running_broker import make_topic, running
from tests.waiting import PATIENCE_SECONDS, until

SOON_SECONDS = PATIENCE_SECONDS


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of topics to which queues cannot append for now, as if they had no leader."""
    names: set[str] = set()
    append = Sinks.append

    async def failing(sinks: Sinks, sink: TopicPartition, batch: bytearray) -> Delivery:
        return Delivery(Outcome.FAILED, "planted") if sink.topic in names else await append(sinks, sink, batch)

    monkeypatch.setattr(Sinks, "append", failing)
    return names


@asynccontextmanager
async def serving_admin(folder: Path) -> AsyncIterator[tuple[Broker, AsyncAdmin]]:
    async with (
        running(folder) as broker,
        asyncio.timeout(SOON_SECONDS),
        AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin,
    ):
        yield broker, admin


async def send(broker: Broker, topic: str, count: int, header: str, value: bytes, partition: int = 0) -> None:
    """Records whose values are their numbers."""
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=partition, headers=[(header, value)])


async def values(broker: Broker, topic: str, count: int) -> set[bytes | None]:
    """Of the first records of a topic."""
    found: list[bytes | None] = []
    async with AsyncConsumer(
        topic, bootstrap_servers=f"127.0.0.1:{broker.port}", group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
    assert count == len(set(found))
    return set(found)


async def configure(admin: AsyncAdmin, topic: str, **configs: str) -> None:
    wanted = {name.replace("_", "."): value for name, value in configs.items()}
    (await admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, wanted)])).checked()


def expected(count: int) -> set[bytes]:
    return {b"%d" % number for number in range(count)}


async def test_expired_records_on_their_way_to_a_deleted_topic_go_to_the_next_one(
    tmp_path: Path, unwritable: set[str]
) -> None:
    async with serving_admin(tmp_path) as (broker, admin):
        unwritable.add("first")
        await make_topic(broker, "t", ottla_ttl_enable="true", errors_deadletterqueue_topic_name="first")
        await send(broker, "t", 50, TTL_MS, b"0")
        await until(lambda: queue_shard(broker, "t").counts.failed_attempts > 0)
        await configure(admin, "t", errors_deadletterqueue_topic_name="second")
        (await admin.delete_topics(["first"])).checked()
        unwritable.clear()
        assert expected(50) == await values(broker, "second", 50)
        # Nothing is behind them.
        await send(broker, "t", 51, TTL_MS, b"0")
        await until(lambda: broker.partitions.find("second", 0).end_offset == 101)


async def test_dead_letters_find_a_topic_that_has_fewer_partitions_than_before(
    tmp_path: Path, unwritable: set[str]
) -> None:
    async with serving_admin(tmp_path) as (broker, admin):
        unwritable.add("dead")
        await make_topic(broker, "t", 2, ottla_retry_enable="true", errors_deadletterqueue_topic_name="dead")
        await make_topic(broker, "t.g.retry", 2)
        await send(broker, "t.g.retry", 20, RETRY_REJECT, b"never", 1)
        await until(lambda: queue_shard(broker, "t.g.retry", 1).counts.failed_attempts > 0)
        await configure(admin, "t", ottla_retry_enable="false", errors_deadletterqueue_topic_name="")
        (await admin.delete_topics(["dead"])).checked()
        await make_topic(broker, "dead")
        unwritable.clear()
        await configure(admin, "t", ottla_retry_enable="true", errors_deadletterqueue_topic_name="dead")
        assert expected(20) == await values(broker, "dead", 20)
        await until(lambda: queue_shard(broker, "t.g.retry", 1).parked == 0)


async def test_dead_letters_wait_for_a_topic_that_was_deleted(tmp_path: Path, unwritable: set[str]) -> None:
    async with serving_admin(tmp_path) as (broker, admin):
        await make_topic(broker, "t", ottla_retry_enable="true")
        await make_topic(broker, "t.g.retry")
        unwritable.add("dlq.t")
        await send(broker, "t.g.retry", 20, RETRY_REJECT, b"never")
        await until(lambda: queue_shard(broker, "t.g.retry").counts.failed_attempts > 0)
        await configure(admin, "t", ottla_retry_enable="false")
        (await admin.delete_topics(["dlq.t"])).checked()
        unwritable.clear()
        failed = queue_shard(broker, "t.g.retry").counts.failed_attempts
        await until(lambda: queue_shard(broker, "t.g.retry").counts.failed_attempts > failed + 1)
        await configure(admin, "t", ottla_retry_enable="true")
        assert expected(20) == await values(broker, "dlq.t", 20)


async def test_parked_records_that_are_deleted_with_their_topic_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with serving_admin(tmp_path) as (broker, admin):
        await make_topic(broker, "t", ottla_delay_enable="true")
        await make_topic(broker, "u", ottla_delay_enable="true")
        for topic in ("t", "u"):
            await send(broker, f"{topic}.delayed", 7, DELAY_MS, b"3600000")
        await until(lambda: {7} == {queue_shard(broker, f"{topic}.delayed").parked for topic in ("t", "u")})
        await configure(admin, "t", ottla_delay_enable="false")
        (await admin.delete_topics(["t.delayed", "u"])).checked()
        await until(lambda: "ottla_queue_parked_records" not in {name for name, _ in samples_of(broker)})
    told = [record.getMessage() for record in caplog.records if "deleted" in record.getMessage()]
    assert [
        "queue t.delayed-0: topic t.delayed was deleted with 7 parked records; 0 of them are on their way",
        "queue u.delayed-0: topic u.delayed was deleted with 7 parked records; 0 of them are on their way",
    ] == sorted(told)
