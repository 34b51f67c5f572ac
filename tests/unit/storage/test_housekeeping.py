"""The recurring work, driven by a clock that the test moves."""

import asyncio
import dataclasses
import gc
import logging
from collections.abc import Awaitable, Callable
from weakref import ref

import pytest

from ottla.model.ids import Offset, TimestampMs
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.housekeeping import Housekeeping, HousekeepingConfig
from ottla.storage.log_config import LogConfig
from ottla.storage.log_store import LogStore
from tests.unit.storage.rig import CONFIG, DATA, P0, P1, append, batch, fill, housekeeping, open_store, values

Work = Callable[[Housekeeping, TimestampMs], Awaitable[None]]


class HousekeptStore:
    """A store with two logs and its housekeeping."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.disk, self.clock, self.config = SimDisk(), SimClock(), config
        self.open()

    def open(self) -> None:
        self.store: LogStore = open_store(self.disk, config=self.config, clock=self.clock)
        self.first, self.second = self.store.create(P0), self.store.create(P1)
        intervals = HousekeepingConfig(
            retention_check_interval_ms=5_000, flush_checkpoint_interval_ms=2_000, idle_handles_interval_ms=3_000
        )
        self.work: Housekeeping = housekeeping(self.store, self.disk, self.clock, intervals)

    def pass_seconds(self, seconds: int) -> None:
        """Lets the loop run that long."""
        asyncio.run(self._pass_seconds(seconds))

    async def _pass_seconds(self, seconds: int) -> None:
        running = asyncio.ensure_future(self.work.run())
        for _ in range(seconds):
            for _ in range(50):
                await asyncio.sleep(0)
            self.clock.advance(1)
        for _ in range(50):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_retention_and_unlinking() -> None:
    rig = HousekeptStore(dataclasses.replace(CONFIG, retention_ms=3_000))
    fill(rig.first, 10)
    rig.pass_seconds(4)
    assert 0 == rig.first.start_offset
    rig.pass_seconds(6)
    assert (10, 1) == (rig.first.start_offset, len(rig.first.segments))
    rig.pass_seconds(2)
    assert not [name for name in rig.disk.list_dir(f"{DATA}/t-0") if name.endswith(names.DELETED)]


def test_checkpoints_flush_what_is_sealed() -> None:
    rig = HousekeptStore()
    fill(rig.first, 10)
    rig.pass_seconds(3)
    assert rig.first.recovery_point >= 8
    assert f"t 0 {rig.first.recovery_point}\n".encode() in rig.disk.read(f"{DATA}/{names.RECOVERY_POINTS}")
    assert b"t 0 10\n" in rig.disk.read(f"{DATA}/{names.HIGH_WATERMARKS}")


def test_flushing_by_time() -> None:
    rig = HousekeptStore(LogConfig(flush_ms=2_000))
    append(rig.first, batch())
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    rig.clock.advance(1.5)
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    assert 0 == rig.first.recovery_point
    append(rig.first, batch())
    rig.clock.advance(0.5)
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    assert 2 == rig.first.recovery_point
    append(rig.first, batch())
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    rig.clock.advance(1)
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    assert 2 == rig.first.recovery_point


def test_deleted_logs_are_forgotten() -> None:
    rig = HousekeptStore(LogConfig(flush_ms=2_000))
    append(rig.first, batch())
    append(rig.second, batch())
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    deleted = ref(rig.first)
    rig.store.delete(P0)
    del rig.first
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    gc.collect()
    assert deleted() is None
    rig.clock.advance(2)
    asyncio.run(rig.work.flush_by_time(rig.clock.now_ms()))
    assert 1 == rig.second.recovery_point


def test_one_broken_log_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    rig = HousekeptStore(dataclasses.replace(CONFIG, retention_ms=1_000))
    fill(rig.first, 10)
    fill(rig.second, 10)
    asyncio.run(rig.store.close())
    rig.open()  # So that the segments' ages must be read from disk.
    rig.disk.break_path(f"{DATA}/t-0")
    asyncio.run(rig.work.expire(TimestampMs(rig.clock.now_ms() + 60_000)))
    assert (0, 10) == (rig.first.start_offset, rig.second.start_offset)
    assert f"{DATA}/t-0" in caplog.text


@pytest.mark.parametrize("turns", range(5))
def test_topics_that_are_deleted_meanwhile_are_no_errors(caplog: pytest.LogCaptureFixture, turns: int) -> None:
    """A topic may be deleted while its log is flushed or its segments expire."""
    for work in (Housekeeping.flush_by_time, Housekeeping.checkpoint, Housekeeping.expire):
        rig = HousekeptStore(dataclasses.replace(CONFIG, flush_ms=0, retention_ms=1_000))
        fill(rig.first, 10)
        fill(rig.second, 10)

        async def delete_meanwhile(rig: HousekeptStore = rig, work: Work = work) -> None:
            running = asyncio.ensure_future(work(rig.work, TimestampMs(rig.clock.now_ms() + 60_000)))
            for _ in range(turns):
                await asyncio.sleep(0)
            for partition in (P0, P1):
                rig.store.delete(partition)
            await running

        asyncio.run(delete_meanwhile())
        assert [] == [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]


def test_silent_producers_are_forgotten() -> None:
    rig = HousekeptStore(dataclasses.replace(CONFIG, producer_id_expiration_ms=2_000))
    append(rig.first, batch(producer_id=1, sequence=0))
    rig.pass_seconds(6)
    assert 0 == len(rig.first.producers)


def test_idle_handles_are_given_back() -> None:
    rig = HousekeptStore()
    fill(rig.first, 10)
    rig.first.read(Offset(0), 1)
    rig.pass_seconds(7)
    assert [None, None] == [segment._file for segment in list(rig.first.segments)[:2]]
    assert rig.first.read(Offset(0), 1) is not None


def test_compaction_runs_by_itself_and_is_remembered() -> None:
    rig = HousekeptStore(dataclasses.replace(CONFIG, cleanup_compact=True, cleanup_delete=False))
    fill(rig.first, 20)
    active = rig.first.segments.active.base_offset
    kept = [b"value %04d" % number for number in range(active - 1, 20)]
    rig.pass_seconds(1)
    assert kept == [value for value in values(rig.first) if value is not None]
    assert active == rig.first.cleaned_offset
    assert rig.first.recovery_point >= active
    assert f"t 0 {active}\n".encode() in rig.disk.read(f"{DATA}/{names.CLEANER_OFFSETS}")
    rig.disk = rig.disk.crash()
    rig.open()
    assert (active, 20) == (rig.first.cleaned_offset, rig.first.end_offset)
    assert kept == [value for value in values(rig.first) if value is not None]


@pytest.fixture
def rig() -> HousekeptStore:
    return HousekeptStore()


async def test_a_slow_checkpoint_does_not_replace_a_newer_one(rig: HousekeptStore) -> None:
    fill(rig.first, 10)
    rig.first.flush()
    folder = rig.store.dirs[0]
    slow = asyncio.ensure_future(folder.write_checkpoint_in_background(names.RECOVERY_POINTS, {P0: 10}))
    await asyncio.sleep(0)
    rig.first.truncate_to(Offset(4), now=rig.clock.now_ms())
    assert await slow is False
    assert b"t 0 4\n" in rig.disk.read(f"{DATA}/{names.RECOVERY_POINTS}")
    assert not [name for name in rig.disk.list_dir(DATA) if name.endswith(".tmp")]
