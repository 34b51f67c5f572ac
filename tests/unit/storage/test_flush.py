"""Group commit: one fsync for all waiting appends, the next for those that arrive during it; and what a flush
covers."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from ottla.model.errors import StorageError
from ottla.model.ids import LeaderEpoch, Offset
from ottla.sim.disk import SimDisk
from ottla.sim.random import SimRandom
from ottla.storage.log import Log
from tests.unit.storage.rig import NOW, P0, append, batch, fill, open_store, values
from tests.waiting import settle


class SlowDisk(SimDisk):
    """Background work waits until the test releases it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.jobs = 0

    async def in_background(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.jobs += 1
        await self.gate.wait()
        return function(*args, **kwargs)


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def log(disk: SlowDisk) -> Log:
    disk.gate.set()
    log = open_store(disk).create(P0)
    disk.gate.clear()
    disk.jobs = 0
    return log


def syncs(disk: SimDisk) -> int:
    return sum(1 for each in disk.trace if each.name == "sync" and each.path.endswith(".log"))


async def test_many_share_one_sync_and_late_ones_the_next(disk: SlowDisk, log: Log) -> None:
    before = syncs(disk)
    append(log, batch(), batch())
    early = [asyncio.ensure_future(log.wait_flushed(Offset(2))) for _ in range(20)]
    await settle()
    append(log, batch())
    late = [asyncio.ensure_future(log.wait_flushed(Offset(3))) for _ in range(20)]
    await settle()
    assert (1, 0) == (disk.jobs, log.recovery_point)
    disk.gate.set()
    await asyncio.gather(*early, *late)
    assert (2, 2, 3) == (disk.jobs, syncs(disk) - before, log.recovery_point)
    await log.wait_flushed(Offset(3))
    assert 2 == disk.jobs


async def test_one_who_gives_up_does_not_stop_the_others(disk: SlowDisk, log: Log) -> None:
    append(log, batch())
    first = asyncio.ensure_future(log.wait_flushed(Offset(1)))
    second = asyncio.ensure_future(log.wait_flushed(Offset(1)))
    await settle()
    first.cancel()
    await settle()
    disk.gate.set()
    await second
    assert first.cancelled()
    assert 1 == log.recovery_point


async def test_a_cut_while_flushing(disk: SlowDisk, log: Log) -> None:
    """The flush's result is ignored then; appends that wait for truncated records fail, even if the log has grown
    again."""
    append(log, batch(b"a"), batch(b"b"))
    waiter = asyncio.ensure_future(log.wait_flushed(Offset(2)))
    await settle()
    log.truncate_to(Offset(1), now=NOW)
    append(log, batch(b"c"))
    disk.gate.set()
    with pytest.raises(StorageError, match="offset 2 was truncated before it was flushed"):
        await waiter
    await log.wait_flushed(Offset(2))
    assert [b"a", b"c"] == values(log)


def test_what_was_flushed_survives_every_crash() -> None:
    for seed in range(20):
        disk = SimDisk(seed)
        store = open_store(disk)
        log = store.create(P0)
        for number in range(4):
            fill(log, 3, first=3 * number, epoch=LeaderEpoch(number))
        log.flush()
        store.checkpoints.save()
        fill(log, 3, first=12)
        again = open_store(disk.crash(SimRandom(seed))).get(P0)
        assert [b"value %04d" % number for number in range(12)] == values(again)[:12]
        assert {0: 0, 1: 3, 2: 6, 3: 9} == again.epochs.starts


def test_the_epochs_are_written_once() -> None:
    disk = SimDisk()
    log = open_store(disk).create(P0)
    fill(log, 1)
    assert log.begin_flush().epochs is not None
    log.flush()
    fill(log, 1)
    assert log.begin_flush().epochs is None


def test_a_full_disk_that_refuses_the_epochs_leaves_the_log_sound() -> None:
    """The segments are flushed before the leader epochs are written, so that nothing is unknown about them."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(P0)
    fill(log, 3, epoch=LeaderEpoch(1))
    disk.capacity = disk.used_bytes()
    with pytest.raises(StorageError, match="leader-epoch-checkpoint: cannot write: No space left on device"):
        asyncio.run(log.wait_flushed(Offset(3)))
    with pytest.raises(StorageError, match="leader-epoch-checkpoint: cannot write: No space left on device"):
        log.flush()
    assert (None, True) == (log.failure, log.health.refusal is not None)
    assert 0 == log.recovery_point
    disk.capacity = None
    again = open_store(disk.crash(SimRandom(1))).get(P0)
    assert [b"value %04d" % number for number in range(3)] == values(again), "they survive a power cut"
    again.flush()
    assert 3 == again.recovery_point


def test_a_sync_that_a_full_disk_refuses_fails_the_log() -> None:
    disk = SimDisk()
    log = open_store(disk).create(P0)
    fill(log, 3)
    disk.fail_at(disk.operation_count, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(StorageError, match="cannot flush"):
        log.flush()
    assert log.failure is not None
