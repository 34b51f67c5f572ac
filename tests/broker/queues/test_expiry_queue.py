"""Expired records are counted, and moved to the dead-letter topic once."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla import AsyncConsumer, AsyncProducer, ConsumerRecord
from ottla.broker.broker import Broker
from ottla.client.admin.async_admin import AsyncAdmin
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource
from ottla.client.consumer.blocking_consumer import Consumer
from ottla.client.producer.blocking_producer import Producer
from ottla.model.dead_letters import read_dead_letter
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import TTL_MS
from ottla.queues.sinks import Delivery, Outcome, Sinks
from ottla.replication.partition import Partition
from ottla.testing import InProcessBroker
from tests.broker.inside import queue_shard
from tests.broker.running_broker import make_topic, running
from tests.waiting import PATIENCE_SECONDS, until, wait_until

SOON_SECONDS = PATIENCE_SECONDS


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Broker]:
    async with running(folder) as broker, asyncio.timeout(SOON_SECONDS):
        yield broker


async def send(broker: Broker, value: bytes, ttl_ms: int | None = None, age_ms: int = 0) -> None:
    headers = [("colour", b"red")] if ttl_ms is None else [("colour", b"red"), (TTL_MS, str(ttl_ms).encode())]
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
        timestamp_ms = time.time_ns() // 1_000_000 - age_ms
        await (await producer.send("t", value, key=b"k", partition=0, headers=headers, timestamp_ms=timestamp_ms))


async def read(broker: Broker, topic: str, count: int) -> list[ConsumerRecord]:
    """The first records of a topic."""
    found: list[ConsumerRecord] = []
    async with AsyncConsumer(
        topic, bootstrap_servers=f"127.0.0.1:{broker.port}", group_id=None, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            found.append(record)
            if len(found) == count:
                break
    return found


async def test_expired_records_are_moved_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await make_topic(broker, "t", ottla_ttl_enable="true", errors_deadletterqueue_topic_name="dead")
        await send(broker, b"a", 1000, age_ms=10_000)
        await send(broker, b"b")
        await send(broker, b"c", 300)
        found = await read(broker, "dead", 2)
        assert [b"a", b"c"] == [record.value for record in found]
        for record, offset in zip(found, (0, 2), strict=True):
            headers = dict(record.headers)
            assert (b"k", b"red") == (record.key, headers["colour"])
            assert TTL_MS not in headers
            letter = read_dead_letter(record.headers)
            assert letter is not None
            # The broker writes progress into the topic's log, so that offsets are not those of a count of records.
            assert ("t", 0, "expired") == (letter.origin.topic, letter.origin.partition, letter.reason)
            assert letter.origin.offset is not None
            assert letter.origin.offset >= offset
        assert [b"b"] == [record.value for record in await read(broker, "t", 1)]
        assert 2 == broker.partitions.find("t", 0).expired_records
        assert 0 == broker.partitions.find("t", 0).start_offset
    async with serving(tmp_path) as broker:
        await send(broker, b"d", 0)
        assert [b"a", b"c", b"d"] == [record.value for record in await read(broker, "dead", 3)]
        assert 3 == broker.partitions.find("dead", 0).end_offset
        assert 1 == broker.partitions.find("t", 0).expired_records


async def test_without_a_dead_letter_topic_they_are_counted_and_nothing_is_written(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await make_topic(broker, "t", ottla_ttl_ms="300")
        await send(broker, b"a")
        await send(broker, b"b", 3_600_000)
        partition = broker.partitions.find("t", 0)
        await until(lambda: partition.expired_records == 1)
        assert 2 == partition.end_offset
    async with serving(tmp_path) as broker:
        """What expired before is not counted again."""
        await send(broker, b"c", 1)
        partition = broker.partitions.find("t", 0)
        await until(lambda: partition.expired_records > 0)
        assert (1, 3) == (partition.expired_records, partition.end_offset)


def wait_end_offset(partition: Partition, offset: int) -> None:
    wait_until(lambda: partition.end_offset >= offset, lambda: f"{partition.end_offset} >= {offset}")


@pytest.mark.parametrize("number", range(3))
def test_a_broker_that_is_killed_moves_each_expired_record_once(tmp_path: Path, number: int) -> None:
    """Killed at different moments: while records expire, are planned, and are appended to the dead-letter topic."""
    total = 600
    with InProcessBroker(tmp_path) as broker:
        broker.create_topic("t", configs={"ottla.ttl.enable": "true", "errors.deadletterqueue.topic.name": "dead"})
        with Producer(bootstrap_servers=broker.bootstrap, linger_ms=0, batch_size=2000) as producer:
            for at in range(total):
                producer.send("t", b"%d" % at, headers=((TTL_MS, b"%d" % (at % 300)),))
        for round_ in range(3):
            partition = broker.broker.partitions.find("dead", 0)
            wait_end_offset(partition, (number + 1) * (round_ + 1) * 30)
            broker.kill()
            broker.start()
        with Consumer(
            "dead",
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=SOON_SECONDS * 1000,
        ) as consumer:
            seen = sorted(int(record.value) for _, record in zip(range(total), consumer, strict=False))
            assert list(range(total)) == seen
            assert {} == consumer.poll(1000), "moved twice"


@pytest.mark.parametrize("was_sent", [False, True], ids=["not sent", "sent"])
@pytest.mark.parametrize("deleted", ["some", "all"])
async def test_planned_records_that_are_deleted_do_not_hold_up_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: str, was_sent: bool
) -> None:
    """The broker ends between a plan and its delivery, or before the delivery is noted; then records are deleted."""
    real_append = Sinks.append
    is_ended = False

    async def append(sinks: Sinks, sink: TopicPartition, batch: bytearray) -> Delivery:
        if is_ended:
            return await real_append(sinks, sink, batch)
        if was_sent and (delivery := await real_append(sinks, sink, batch)).outcome is Outcome.REFUSED:
            return delivery  # The question before the first delivery.
        return Delivery(Outcome.FAILED, "the broker is about to end")

    monkeypatch.setattr(Sinks, "append", append)
    async with serving(tmp_path) as broker:
        await make_topic(broker, "t", ottla_ttl_enable="true", errors_deadletterqueue_topic_name="dead")
        timestamp_ms = time.time_ns() // 1_000_000 - 10_000
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", linger_ms=50) as producer:
            sends = [
                await producer.send("t", value, partition=0, headers=[(TTL_MS, b"1")], timestamp_ms=timestamp_ms)
                for value in (b"a", b"b", b"c")
            ]
            await asyncio.gather(*sends)
        (partition,) = broker.partitions.of_topic("t")
        # The producer id, and the plan.
        await until(lambda: partition.high_watermark == 5)
        if was_sent:
            (dead,) = broker.partitions.of_topic("dead")
            await until(lambda: dead.high_watermark == 3)
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.delete_records({TopicPartition("t", 0): 2 if deleted == "some" else 3})
    is_ended = True
    expected = [b"a", b"b", b"c"] if was_sent else [b"c"] if deleted == "some" else []
    async with serving(tmp_path) as broker:
        await send(broker, b"d", 1, age_ms=10_000)
        found = await read(broker, "dead", len(expected) + 1)
        assert [*expected, b"d"] == [record.value for record in found]
    async with serving(tmp_path) as broker:
        await send(broker, b"e", 1, age_ms=10_000)
        found = await read(broker, "dead", len(expected) + 2)
        assert [*expected, b"d", b"e"] == [record.value for record in found]


async def test_records_that_are_deleted_before_they_expire_do_not_stop_the_queue(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as broker:
        await make_topic(broker, "t", ottla_ttl_enable="true", errors_deadletterqueue_topic_name="dead")
        (partition,) = broker.partitions.of_topic("t")
        await send(broker, b"a", 4_000)
        await send(broker, b"b", 4_000)
        end = partition.high_watermark
        await send(broker, b"c", 4_000)
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            await admin.delete_records({TopicPartition("t", 0): end})
        assert [b"c"] == [record.value for record in await read(broker, "dead", 1)]
        assert 0 == queue_shard(broker, "t").parked
    assert [] == [each.message for each in caplog.records if each.levelname == "ERROR"]


async def test_a_delivery_is_completed_after_the_dead_letter_topic_was_removed_from_the_configs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real_append = Sinks.append
    outcomes = [Delivery(Outcome.FAILED, "not now")]

    async def append(sinks: Sinks, sink: TopicPartition, batch: bytearray) -> Delivery:
        return outcomes[0] if outcomes else await real_append(sinks, sink, batch)

    monkeypatch.setattr(Sinks, "append", append)
    async with serving(tmp_path) as broker:
        await make_topic(broker, "t", ottla_ttl_enable="true", errors_deadletterqueue_topic_name="dead")
        await send(broker, b"a", 1, age_ms=10_000)
        (partition,) = broker.partitions.of_topic("t")
        # The producer id, and the plan.
        await until(lambda: partition.high_watermark == 3)
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            name = "errors.deadletterqueue.topic.name"
            await admin.alter_configs([ConfigResource(ResourceType.TOPIC, "t", {name: ""})])
        outcomes.clear()
        assert [b"a"] == [record.value for record in await read(broker, "dead", 1)]
    assert not [each for each in caplog.records if each.levelname == "ERROR"]
