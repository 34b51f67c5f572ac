"""Records that were due and are not due any more when the clock is set back, before they are planned."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.world import real_world
from ottla.model.ids import TimestampMs
from ottla.model.queue_names import DELAY_CANCEL, DELAY_MS, DELIVER_AT_MS
from tests.broker.inside import unserved
from tests.broker.queues.test_delayed_delivery import SOON_SECONDS, send, shard_of
from tests.broker.running_broker import make_topic
from tests.waiting import until

HOUR_MS = 3_600_000
QUIET_SECONDS = 1.0
"""In which what is not due any more would be delivered."""


class SetClock(RealClock):
    ahead_ms = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(super().now_ms() + self.ahead_ms)


class SlowDisk(RealDisk):
    """Work in the background waits until `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def in_background(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await super().in_background(function, *args, **kwargs)


async def test_while_they_wait_for_their_partition(tmp_path: Path) -> None:
    clock = SetClock()
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    world = replace(real_world(), clock=clock)
    async with Broker(BrokerConfig.parse(settings=settings), world=world) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        (target,) = broker.partitions.of_topic("t")
        # With a cancel each record is looked at, so that due records are taken although their partition is busy.
        await send(broker, (b"in a day", {DELAY_MS: b"%d" % (24 * HOUR_MS)}), (b"", {DELAY_CANCEL: b"other"}))
        with unserved(broker, "t"):
            await send(broker, (b"now", {}))
            await until(lambda: shard_of(broker).counts.failed_attempts >= 1)
            await send(broker, (b"in an hour", {DELAY_MS: b"%d" % HOUR_MS}))
            clock.ahead_ms = HOUR_MS
            await until(lambda: shard_of(broker).due == 1)
            clock.ahead_ms = 0
        await until(lambda: target.end_offset >= 1)
        await asyncio.sleep(QUIET_SECONDS)
        # It may be reading its log again.
        await until(lambda: shard_of(broker).parked == 2)
        assert 1 == target.end_offset


@pytest.mark.parametrize("is_each_looked_at", [False, True])
async def test_while_they_are_read(tmp_path: Path, is_each_looked_at: bool) -> None:
    clock, disk = SetClock(), SlowDisk()
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    world = replace(real_world(), clock=clock, disk=disk)
    async with Broker(BrokerConfig.parse(settings=settings), world=world) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        (target,) = broker.partitions.of_topic("t")
        if is_each_looked_at:
            await send(broker, (b"", {DELAY_CANCEL: b"other"}))
        await send(broker, (b"now", {}), (b"in an hour", {DELAY_MS: b"%d" % HOUR_MS}))
        await until(lambda: target.end_offset == 1 and shard_of(broker).parked == 1)
        shard_of(broker)._parked.forget_below(1 << 40)
        disk.gate.clear()
        clock.ahead_ms = HOUR_MS
        await until(lambda: disk.waiting > 0 and shard_of(broker)._index.next_due() is None)
        clock.ahead_ms = 0
        disk.gate.set()
        await asyncio.sleep(QUIET_SECONDS)
        await until(lambda: shard_of(broker).parked == 1)
        assert 1 == target.end_offset
        clock.ahead_ms = HOUR_MS
        await until(lambda: target.end_offset == 2)


async def test_by_a_moment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are delivered when the clock gets there again, and the log is not read again."""
    clock, disk = SetClock(), SlowDisk()
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    world = replace(real_world(), clock=clock, disk=disk)
    async with Broker(BrokerConfig.parse(settings=settings), world=world) as broker, asyncio.timeout(SOON_SECONDS):
        await make_topic(broker, "t", ottla_delay_enable="true")
        (target,) = broker.partitions.of_topic("t")
        due_ms = clock.now_ms() + HOUR_MS
        await send(broker, (b"now", {}), (b"in an hour", {DELIVER_AT_MS: b"%d" % due_ms}))
        await until(lambda: target.end_offset == 1 and shard_of(broker).parked == 1)
        shard_of(broker)._parked.forget_below(1 << 40)
        disk.gate.clear()
        clock.ahead_ms = due_ms - clock.now_ms()
        await until(lambda: shard_of(broker)._ready_count == 1)
        clock.ahead_ms -= 500
        disk.gate.set()
        await until(lambda: target.end_offset == 2)
        assert clock.now_ms() >= due_ms
    assert "reading the log again" not in caplog.text
