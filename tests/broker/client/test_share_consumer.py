"""What a share consumer asks of its broker, seen between the two, and which of the records that it gets it returns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla import (
    AsyncAdmin,
    AsyncProducer,
    AsyncShareConsumer,
    ConfigResource,
    ResourceType,
    ShareRecord,
    TopicPartition,
)
from ottla.client.consumer.errors import UnreadableRecordError
from ottla.client.errors import ConnectionLostError, DeadlineError
from ottla.client.share.values import ShareRecords
from ottla.protocol.apis import ApiKey
from ottla.records.layout import MAGIC_AT
from tests.broker.client.holding_relay import HoldingRelay, holding_relay
from tests.broker.client.scripted_broker import request_message
from tests.broker.replicated import ReplicatedBrokers
from tests.broker.running_broker import dotted, make_topic, running
from tests.waiting import settle, until

SETTINGS = {
    "share_coordinator_state_topic_num_partitions": "1",
    "group_share_heartbeat_interval_ms": "300",
    "group_share_min_heartbeat_interval_ms": "300",
    "group_share_min_record_lock_duration_ms": "1000",
}
T0 = TopicPartition("t", 0)
FOREVER_MS = 180_000


@asynccontextmanager
async def consuming(
    folder: Path, *values: bytes, is_one_batch: bool = True, lock_ms: int = 60_000, **options: Any
) -> AsyncIterator[tuple[HoldingRelay, AsyncShareConsumer]]:
    """A share consumer of a topic with these values, which reaches its broker by a relay only."""
    async with running(folder, **SETTINGS) as broker, holding_relay(broker.port) as relay:
        bootstrap = f"127.0.0.1:{broker.port}"
        await make_topic(broker, "t")
        await start_at_earliest(bootstrap, **{"share.record.lock.duration.ms": str(lock_ms)})
        async with AsyncProducer(bootstrap_servers=bootstrap, linger_ms=10_000) as producer:
            for value in values:
                await producer.send("t", value=value)
                if not is_one_batch:
                    await producer.flush()
            await producer.flush()
        async with AsyncShareConsumer(
            "t", group_id="g", bootstrap_servers=f"127.0.0.1:{relay.port}", retry_backoff_ms=1, **options
        ) as consumer:
            yield relay, consumer


async def start_at_earliest(bootstrap: str, **configs: str) -> None:
    """Configures the share group."""
    async with AsyncAdmin(bootstrap_servers=bootstrap) as admin:
        await admin.alter_configs(
            [ConfigResource(ResourceType.GROUP, "g", {"share.auto.offset.reset": "earliest", **configs})]
        )


def fetches(relay: HoldingRelay) -> list[Any]:
    """The ShareFetch requests so far."""
    return [
        request_message(ApiKey.SHARE_FETCH, int.from_bytes(frame[6:8]), frame[12:])
        for frame in relay.frames
        if int.from_bytes(frame[4:6]) == ApiKey.SHARE_FETCH
    ]


def all_of(records: ShareRecords) -> list[ShareRecord]:
    return [record for some in records.values() for record in some]


def counted(records: ShareRecords) -> list[tuple[Any, int]]:
    """Values and delivery counts."""
    return [(record.value, record.delivery_count) for record in all_of(records)]


async def test_a_fetch_does_not_wait_longer_than_the_poll(tmp_path: Path) -> None:
    """Records that came later would be locked, and no poll would return them."""
    async with consuming(tmp_path, fetch_max_wait_ms=60_000) as (relay, consumer):

        async def poll() -> bool:
            assert {} == await consumer.poll(timeout_ms=300)
            return bool(fetches(relay))

        await until(poll)
        waits_ms = [fetch.max_wait.total_seconds() * 1000 for fetch in fetches(relay)]
        assert all(0 < wait_ms <= 300 for wait_ms in waits_ms), waits_ms


async def test_a_session_whose_connection_was_lost_is_opened_again_when_the_broker_may_have_noticed(
    tmp_path: Path,
) -> None:
    """A broker may notice only when it responds; until then the records of the lost session stay locked."""
    wait_ms = 1_000
    async with consuming(tmp_path, fetch_max_wait_ms=wait_ms) as (relay, consumer):
        polling = asyncio.create_task(consumer.poll(timeout_ms=FOREVER_MS))
        await until(lambda: len(fetches(relay)) > 1)
        before, now = len(fetches(relay)), asyncio.get_running_loop().time
        cut_at = now()
        relay.cut()
        await until(lambda: len(fetches(relay)) > before)
        assert now() - cut_at >= wait_ms / 1000
        assert 0 == fetches(relay)[before].share_session_epoch
        consumer.wakeup()
        await asyncio.gather(polling, return_exceptions=True)


async def test_no_further_records_are_fetched_while_the_program_works_on_some(tmp_path: Path) -> None:
    """Their locks would run meanwhile."""
    async with consuming(tmp_path, b"a", b"b", max_poll_records=1) as (relay, consumer):
        assert [(b"a", 1)] == counted(await consumer.poll(FOREVER_MS))
        count = relay.responded.count(ApiKey.SHARE_FETCH)
        assert [(b"b", 1)] == counted(await consumer.poll(FOREVER_MS))
    assert count == relay.asked.count(ApiKey.SHARE_FETCH)


async def test_records_whose_lock_timed_out_while_they_waited_are_not_returned(tmp_path: Path) -> None:
    async with consuming(tmp_path, b"a", b"b", lock_ms=1_000, max_poll_records=1) as (_, consumer):
        now = asyncio.get_running_loop().time
        ((value, count),) = counted(await consumer.poll(FOREVER_MS))
        deadline = now() + 1.0
        await until(lambda: now() > deadline)
        ((again, later_count),) = counted(await consumer.poll(FOREVER_MS))
        assert (b"a", b"a", True) == (value, again, later_count > count), "a stalled machine may lose more locks"


async def test_records_of_a_lost_session_are_not_returned(tmp_path: Path) -> None:
    async with consuming(
        tmp_path, b"a", b"b", max_poll_records=1, fetch_max_wait_ms=100, share_acknowledgement_mode="explicit"
    ) as (relay, consumer):
        (record,) = all_of(await consumer.poll(FOREVER_MS))
        assert (b"a", 1) == (record.value, record.delivery_count)
        relay.cut()
        await settle()
        consumer.acknowledge(record)
        ((_, error),) = (await consumer.commit()).items()
        assert isinstance(error, ConnectionLostError)
        assert ApiKey.SHARE_ACKNOWLEDGE not in relay.asked, "the session ended with its connection"
        assert [(b"a", 2)] == counted(await consumer.poll(FOREVER_MS))


async def test_a_commit_without_a_response_in_time_has_failed(tmp_path: Path) -> None:
    async with consuming(tmp_path, b"a") as (relay, consumer):
        assert [(b"a", 1)] == counted(await consumer.poll(FOREVER_MS))
        relay.held = ApiKey.SHARE_ACKNOWLEDGE
        results = await consumer.commit(timeout_ms=50)
        assert {T0: DeadlineError} == {partition: type(error) for partition, error in results.items()}
        assert str(results[T0]) == "acknowledgement of 1 records of t-0 was not answered in time"
        relay.release()


async def test_records_behind_damage_on_the_way_are_delivered_again(tmp_path: Path) -> None:
    """What the log has may be whole."""

    def damaged(api_key: ApiKey, frame: bytes) -> bytes:
        if api_key is not ApiKey.SHARE_FETCH or b"first" not in frame:
            return frame
        magic_at = frame.index((1).to_bytes(8), frame.index(b"first")) + MAGIC_AT
        return frame[:magic_at] + b"\x09" + frame[magic_at + 1 :]

    async with consuming(tmp_path, b"first", b"second", is_one_batch=False) as (relay, consumer):
        relay.edited = damaged
        assert [(b"first", 1)] == counted(await consumer.poll(FOREVER_MS))
        relay.edited = lambda api_key, frame: frame
        with pytest.raises(UnreadableRecordError, match=r"t-0 at offset 1: .*; released"):
            await consumer.poll(FOREVER_MS)
        assert [(b"second", 2)] == counted(await consumer.poll(FOREVER_MS))


async def test_a_record_limit_is_for_all_brokers(tmp_path: Path) -> None:
    """Only one of them is asked at a time: each could acquire as many records as are wanted of all."""
    settings = {
        "min.insync.replicas": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **dotted(SETTINGS),
    }
    async with ReplicatedBrokers(tmp_path, settings, count=2) as cluster:
        await cluster.make_topic("t", partitions=2, replicas=1)
        assert {0, 1} == {cluster.leader("t", index) for index in range(2)}
        await start_at_earliest(cluster.bootstrap[0])
        for index in range(2):
            await cluster.send("t", [b"%d" % index], index)
        options: dict[str, Any] = {"group_id": "g", "bootstrap_servers": cluster.bootstrap, "fetch_max_wait_ms": 100}
        async with AsyncShareConsumer("t", share_acquire_mode="record_limit", max_poll_records=1, **options) as first:
            ((value, count),) = counted(await first.poll(FOREVER_MS))
            await first.commit()
        async with AsyncShareConsumer("t", **options) as second:
            assert [(b"0" if value == b"1" else b"1", count)] == counted(await second.poll(FOREVER_MS))
