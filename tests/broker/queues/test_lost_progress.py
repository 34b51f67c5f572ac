"""The end of a companion's log is lost, or its start moves over what a sink refused: later records still arrive."""

import asyncio
from pathlib import Path

import pytest

from ottla import AsyncProducer
from ottla.broker.broker import Broker
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DELAY_CANCEL, DELAY_MS
from ottla.queues import queue_shard
from ottla.queues.sinks import Delivery
from tests.broker.queues.test_delayed_delivery import now_ms, read, send, shard_of
from tests.broker.running_broker import make_topic, running
from tests.waiting import PATIENCE_SECONDS, until

SOON_SECONDS = PATIENCE_SECONDS


async def values(broker: Broker, count: int) -> list[bytes]:
    return [record.value or b"" for record, _ in await read(broker, count)]


async def test_records_arrive_after_the_end_of_the_log_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "data" / "t.delayed-0" / f"{0:020}.log"
    kept = 0
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", 1, ottla_delay_enable="true")
        await send(broker, (b"first", {}))
        await read(broker, 1)
        await until(lambda: shard_of(broker)._note_at is None)
    for value in (b"second", b"third"):
        kept = kept or log.stat().st_size
        async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
            await send(broker, (value, {}))
            assert value in await values(broker, 2 if value == b"second" else 3)
            await until(lambda: shard_of(broker)._note_at is None)
        # As after a power cut: these bytes were not flushed.
        with log.open("r+b") as file:
            file.truncate(kept)
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await send(broker, (b"fourth", {}))
        assert [b"first", b"second", b"third", b"fourth"] == await values(broker, 4)
    assert "the end of this queue's log was lost" in caplog.text


async def test_records_arrive_after_the_log_start_moved_over_a_refused_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_shard, "_SNAPSHOT_OFFSETS", 20)
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", 1, ottla_delay_enable="true", message_timestamp_before_max_ms="3600000")
        await send(broker, (b"first", {}))
        await read(broker, 1)
        shard = shard_of(broker)
        await until(lambda: shard._note_at is None)
        append, may_answer = shard._sinks.append, asyncio.Event()

        async def slowly(sink: TopicPartition, batch: bytearray) -> Delivery:
            if sink.topic == "t":
                await may_answer.wait()
            return await append(sink, batch)

        monkeypatch.setattr(shard._sinks, "append", slowly)
        async with AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}") as producer:
            for number in range(30):
                headers = [(DELAY_CANCEL, b"%d" % number)]
                await producer.send_and_wait("t.delayed", None, partition=0, headers=headers)
            before = shard._state.snapshot_at
            old = now_ms() - 7_200_000
            headers = [(DELAY_MS, b"10")]
            await producer.send("t.delayed", b"refused", partition=0, timestamp_ms=old, headers=headers)
        await until(lambda: shard._state.snapshot_at != before and bool(shard._sends))
        may_answer.set()
        await until(lambda: shard.counts.dead == 1 and shard._note_at is None)
        assert shard.partition.start_offset > 30
    async with running(tmp_path) as broker, asyncio.timeout(SOON_SECONDS):
        await send(broker, (b"last", {}))
        assert [b"first", b"last"] == await values(broker, 2)
