"""Retention counts from the delivery of a record, however old its timestamp is by then."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ottla import AsyncProducer
from ottla.broker.broker import Broker
from ottla.client.admin.async_admin import AsyncAdmin, OffsetSpec
from ottla.client.admin.config_requests import ResourceType
from ottla.client.admin.values import ConfigResource
from ottla.env.world import real_world
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DELAY_MS, HALF_ID, HALF_STATE, RETRY_REJECT, TTL_MS
from tests.broker.queues.test_delayed_delivery import SetClock, read
from tests.broker.running_broker import broker_on, make_topic
from tests.waiting import until

DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
Headers = list[tuple[str, bytes | None]]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Broker, SetClock, AsyncProducer]]:
    """A broker that looks for expired segments all the time, and the topic `plain` without a queue."""
    clock = SetClock()
    settings = {"log.retention.check.interval.ms": "20"}
    async with broker_on(folder, settings, world=replace(real_world(), clock=clock)) as broker:
        await make_topic(broker, "plain")
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            yield broker, clock, producer


def start_of(broker: Broker, topic: str) -> int:
    (partition,) = broker.partitions.of_topic(topic)
    return partition.start_offset


def end_of(broker: Broker, topic: str) -> int:
    return sum(partition.high_watermark for partition in broker.partitions.of_topic(topic))


async def wait_retention(broker: Broker, producer: AsyncProducer, old_ms: int) -> None:
    """Returns once the broker has looked at all logs: plain records that are old are deleted meanwhile."""
    for _ in range(2):
        await producer.send_and_wait("plain", b"old", timestamp_ms=old_ms)
        await until(lambda: start_of(broker, "plain") == end_of(broker, "plain"))


async def test_a_record_that_was_delayed_for_longer_than_the_retention(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, clock, producer):
        await make_topic(broker, "t", ottla_delay_enable="true")
        parked_ms = clock.now_ms()
        await producer.send_and_wait("t.delayed", b"late", headers=[(DELAY_MS, b"%d" % (8 * DAY_MS))])
        clock.ahead_ms = 8 * DAY_MS
        ((record, _),) = await read(broker, 1)
        assert (b"late", 0) == (record.value, record.offset)
        assert parked_ms <= record.timestamp < parked_ms + DAY_MS, "the producer's time"
        await wait_retention(broker, producer, parked_ms)
        assert (0, 1) == (start_of(broker, "t"), end_of(broker, "t"))
        clock.ahead_ms += RETENTION_MS + DAY_MS
        await until(lambda: start_of(broker, "t") == 1)


@pytest.mark.parametrize(
    ("configs", "sent", "sink"),
    [
        ({"ottla_delay_enable": "true"}, [("t.delayed", [])], "t"),
        ({"ottla_retry_enable": "true", "ottla_retry_backoff_ms": "1"}, [("t.g.retry", [])], "t.g.redelivery"),
        ({"ottla_retry_enable": "true"}, [("t.g.retry", [(RETRY_REJECT, b"bad")])], "dlq.t"),
        (
            {"ottla_half_enable": "true"},
            [("t.half", [(HALF_ID, b"1"), (HALF_STATE, state)]) for state in (b"prepare", b"commit")],
            "t",
        ),
        (
            {"ottla_ttl_enable": "true", "errors_deadletterqueue_topic_name": "dlq.t"},
            [("t", [(TTL_MS, b"1")])],
            "dlq.t",
        ),
    ],
    ids=["delayed", "retry", "rejected", "half message", "expired"],
)
async def test_an_old_record_that_a_queue_delivers(
    tmp_path: Path, configs: dict[str, str], sent: list[tuple[str, Headers]], sink: str
) -> None:
    async with serving(tmp_path) as (broker, clock, producer):
        retention_ms = 30 * DAY_MS if sink == "dlq.t" else RETENTION_MS
        await make_topic(broker, "t", 1, **configs, retention_ms=str(retention_ms))
        if sink == "t.g.redelivery":
            await make_topic(broker, sink)
        elif sink == "dlq.t":
            async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
                limit = {"retention.ms": str(RETENTION_MS)}
                (await admin.alter_configs([ConfigResource(ResourceType.TOPIC, "dlq.t", limit)])).checked()
        old_ms = clock.now_ms() - 8 * DAY_MS
        for topic, headers in sent:
            await producer.send_and_wait(topic, b"late", headers=headers, timestamp_ms=old_ms)
        await until(lambda: end_of(broker, sink) == 1)
        await wait_retention(broker, producer, old_ms)
        assert (0, 1) == (start_of(broker, sink), end_of(broker, sink))
        ((record, _),) = await read(broker, 1, sink)
        assert (b"late", 0, old_ms) == (record.value, record.offset, record.timestamp)


async def test_searches_by_time_find_the_delivery(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, clock, producer):
        await make_topic(broker, "t", ottla_delay_enable="true")
        for _ in range(3):
            await producer.send_and_wait("t.delayed", b"late", headers=[(DELAY_MS, b"%d" % DAY_MS)])
        noon_ms = clock.now_ms() + DAY_MS // 2
        clock.ahead_ms = DAY_MS
        await until(lambda: end_of(broker, "t") == 3)
        await producer.send_and_wait("t", b"plain", timestamp_ms=noon_ms)
        partition = TopicPartition("t", 0)
        async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            at_noon = await admin.list_offsets({partition: noon_ms})
            newest = await admin.list_offsets({partition: OffsetSpec.MAX_TIMESTAMP})
        delivered_ms = at_noon[partition].timestamp
        assert 0 == at_noon[partition].offset
        assert noon_ms < delivered_ms <= clock.now_ms()
        assert newest[partition].offset in range(3)
        assert newest[partition].timestamp >= delivered_ms
