"""Parked records that are released or cancelled by their offset, on one broker, over real sockets and files."""

import asyncio
from pathlib import Path

import pytest

from ottla import AsyncProducer
from ottla.broker.broker import Broker
from ottla.model.queue_names import CANCEL, DELAY_CANCEL, DELAY_ID, DELAY_MS, RELEASE, RETRY_REASON
from ottla.protocol.answer_errors import AnswerError
from tests.broker.inside import unserved
from tests.broker.queues.test_delayed_delivery import SOON_SECONDS, read, send, serving_queue, shard_of
from tests.broker.running_broker import make_topic, running
from tests.waiting import until

HOUR = {DELAY_MS: b"3600000"}


async def instruct(broker: Broker, *headers: tuple[str, bytes], topic: str = "t.delayed") -> None:
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
        for header in headers:
            await producer.send_and_wait(topic, None, partition=0, headers=[header])


async def parked(broker: Broker, *values: bytes, topic: str = "t.delayed", keys: bytes = b"") -> list[bytes]:
    """Parks records for long; their offsets, as text. Progress may be noted between them."""
    async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
        return [
            b"%d"
            % (
                await producer.send_and_wait(
                    topic, value, partition=0, key=keys[at : at + 1] or None, headers=list(HOUR.items())
                )
            ).offset
            for at, value in enumerate(values)
        ]


async def values(broker: Broker, count: int, topic: str = "t") -> list[bytes | None]:
    return [record.value for record, _ in await read(broker, count, topic)]


async def test_a_released_record_is_delivered_now_and_once_and_a_cancelled_one_never(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        at = await parked(broker, b"0", b"1", b"2", b"3")
        await instruct(broker, (RELEASE, at[2]), (RELEASE, at[2]), (CANCEL, at[1]))
        assert [b"2"] == await values(broker, 1)
        await until(lambda: shard_of(broker).parked == 2)
        assert 1 == shard_of(broker).counts.dropped
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await until(lambda: shard_of(broker).is_loaded)
        assert 2 == shard_of(broker).parked
        await instruct(broker, *((RELEASE, at[number]) for number in (2, 1, 3, 0)))
        assert [b"2", b"3", b"0"] == await values(broker, 3)
        await until(lambda: shard_of(broker).parked == 0)
        (target,) = broker.partitions.of_topic("t")
        assert 3 == target.end_offset


async def test_what_was_released_before_a_restart_is_due_after_it(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        _, released, cancelled = await parked(broker, b"held", b"released", b"cancelled")
        # Nothing can be delivered before the restart.
        with unserved(broker, "t"):
            await instruct(broker, (CANCEL, cancelled), (RELEASE, released))
            await until(lambda: shard_of(broker).counts.failed_attempts >= 1)
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        assert [b"released"] == await values(broker, 1)
        await until(lambda: shard_of(broker).parked == 1)


async def test_a_due_record_that_waits_for_its_partition_is_not_delivered_twice_or_after_its_cancel(
    tmp_path: Path,
) -> None:
    async with serving_queue(tmp_path) as broker:
        # With a cancel each record is looked at, so that due records are taken although their partition is busy.
        await send(broker, (b"later", HOUR), (b"", {DELAY_CANCEL: b"other"}))
        with unserved(broker, "t"):
            await send(broker, (b"first", {}))
            await until(lambda: shard_of(broker).counts.failed_attempts >= 1)
            first = broker.partitions.of_topic("t.delayed")[0].end_offset
            await send(broker, (b"released", {}), (b"cancelled", {}))
            await until(lambda: shard_of(broker).due == 2)
            await instruct(broker, (RELEASE, b"%d" % first), (CANCEL, b"%d" % (first + 1)))
            await until(lambda: shard_of(broker).parked == 2)
        assert [b"first", b"released"] == await values(broker, 2)
        await until(lambda: shard_of(broker).parked == 1)
        await send(broker, (b"last", {}))
        assert [b"first", b"released", b"last"] == await values(broker, 3)
        assert (0, 1) == (shard_of(broker).due, shard_of(broker).parked)


async def test_a_record_that_was_handed_back_returns_now(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        configs = {"ottla_retry_enable": "true", "ottla_retry_backoff_ms": "300000", "ottla_retry_order": "key"}
        await make_topic(broker, "t", 1, **configs)
        await make_topic(broker, "t.g.retry")
        at = await parked(broker, b"0", b"1", b"2", b"3", topic="t.g.retry", keys=b"abca")
        # 3 stays behind 0, which has the same key.
        await instruct(broker, (RELEASE, at[3]), (RELEASE, at[1]), (CANCEL, at[2]), topic="t.g.retry")
        assert [b"1"] == await values(broker, 1, "t.g.redelivery")
        await until(lambda: shard_of(broker, "t.g.retry").parked == 2)
        await instruct(broker, (RELEASE, at[0]), (RELEASE, at[3]), topic="t.g.retry")
        assert [b"1", b"0", b"3"] == await values(broker, 3, "t.g.redelivery")


@pytest.mark.parametrize(
    ("value", "headers", "why"),
    [
        (None, {RELEASE: b"x"}, "header ottla.release: 'x' is not an offset"),
        (None, {RELEASE: b"-1"}, "header ottla.release: '-1' is not an offset"),
        (None, {CANCEL: b"9" * 20}, "is not an offset"),
        (None, {CANCEL: b""}, "header ottla.cancel: '' is not an offset"),
        (None, {RELEASE: b"0"}, "header ottla.release: offset 0 is not in the log, which ends at 0"),
        (None, {CANCEL: b"7"}, "header ottla.cancel: offset 7 is not in the log"),
        (b"v", {RELEASE: b"0"}, "header ottla.release: the record must not have a value"),
        (b"v", {CANCEL: b"0"}, "header ottla.cancel: the record must not have a value"),
        (None, {RELEASE: b"0", CANCEL: b"0"}, "headers ottla.release and ottla.cancel contradict"),
        (None, {RELEASE: b"0", DELAY_MS: b"5"}, "headers ottla.release and ottla.delay-ms contradict"),
        (None, {CANCEL: b"0", DELAY_ID: b"5"}, "headers ottla.cancel and ottla.delay.id contradict"),
        (None, {CANCEL: b"0", RETRY_REASON: b"5"}, "headers ottla.cancel and ottla.retry.reason contradict"),
    ],
)
async def test_instructions_that_make_no_sense_are_refused(
    tmp_path: Path, value: bytes | None, headers: dict[str, bytes], why: str
) -> None:
    topic = "t.g.retry" if RETRY_REASON in headers else "t.delayed"
    async with serving_queue(tmp_path, ottla_retry_enable="true") as broker:
        if topic != "t.delayed":
            await make_topic(broker, topic)
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            with pytest.raises(AnswerError, match="INVALID_RECORD") as refused:
                await producer.send_and_wait(topic, value, partition=0, headers=list(headers.items()))
        assert why in str(refused.value)
        assert 0 == broker.partitions.of_topic(topic)[0].end_offset
