"""Group commit: who waits for a flush, how many syncs that costs, and what a failing disk does to all who wait."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterator

import pytest

from ottla.model.errors import StorageError
from ottla.model.ids import Offset
from ottla.sim.disk import Moment, SimDisk
from ottla.storage.log_config import LogConfig
from tests.state.log_rig import ModelledLog, Wish


@pytest.fixture
def rig() -> Iterator[ModelledLog]:
    made = ModelledLog(SimDisk(), LogConfig())
    made.append([Wish()])
    made.flush()  # From here on a flush syncs the active segment and nothing else.
    yield made
    made.close_loop()


def disk_of(rig: ModelledLog) -> SimDisk:
    assert isinstance(rig.disk, SimDisk)
    return rig.disk


def syncs(rig: ModelledLog) -> list[str]:
    """The log files that were synced so far, in order."""
    return [each.path for each in disk_of(rig).trace if each.name == "sync" and each.path.endswith(".log")]


def run(rig: ModelledLog, work: Callable[[], Awaitable[None]]) -> None:
    rig.loop.run_until_complete(asyncio.wait_for(work(), timeout=20))


def fail_next_sync(rig: ModelledLog) -> None:
    error = OSError(errno.EIO, os.strerror(errno.EIO))
    disk_of(rig).fail_at(disk_of(rig).operation_count, error, Moment.MIDDLE)


def test_all_who_wait_share_one_sync(rig: ModelledLog) -> None:
    rig.append([Wish()] * 20)
    before = len(syncs(rig))

    async def wait() -> None:
        await asyncio.gather(*(rig.log.wait_flushed(Offset(end)) for end in range(2, 22)))

    run(rig, wait)
    assert 1 == len(syncs(rig)) - before
    assert 21 == rig.log.recovery_point


def test_what_is_flushed_already_waits_for_nothing(rig: ModelledLog) -> None:
    before = disk_of(rig).operation_count
    run(rig, lambda: rig.log.wait_flushed(Offset(1)))
    assert before == disk_of(rig).operation_count


def test_who_comes_during_a_sync_shares_the_next_one(rig: ModelledLog) -> None:
    """An append that was not there when the sync began is not covered by it."""
    before = len(syncs(rig))
    seen: list[tuple[int, int]] = []

    async def wait(end: int) -> None:
        await rig.log.wait_flushed(Offset(end))
        seen.append((end, len(syncs(rig)) - before))

    async def work() -> None:
        rig.append([Wish()])
        first = asyncio.ensure_future(wait(2))
        # The flush has begun once the first waiter has run; what comes now is behind it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rig.append([Wish()] * 3)
        await asyncio.gather(first, wait(3), wait(4), wait(5))

    run(rig, work)
    assert [(2, 1), (3, 2), (4, 2), (5, 2)] == sorted(seen)


def test_flushed_records_survive_a_power_cut(rig: ModelledLog) -> None:
    for seed in range(20):
        rig.append([Wish(value_bytes=600)] * 3)
        run(rig, lambda: rig.log.wait_flushed(rig.log.end_offset))
        rig.flushed_end = rig.model.end
        rig.append([Wish(value_bytes=600)])
        rig.crash(seed)
        rig.check()


def test_a_failed_sync_takes_the_log_offline_for_all_who_wait(rig: ModelledLog) -> None:
    rig.append([Wish()] * 5)
    fail_next_sync(rig)
    answers: list[BaseException | None] = []

    async def work() -> None:
        answers.extend(
            await asyncio.gather(*(rig.log.wait_flushed(Offset(end)) for end in range(2, 7)), return_exceptions=True)
        )

    run(rig, work)
    assert [StorageError] * 5 == [type(answer) for answer in answers]
    assert 1 == rig.log.recovery_point
    with pytest.raises(StorageError):
        rig.append([Wish()])
    with pytest.raises(StorageError):
        rig.log.read(Offset(0), 100)
    # The disk would sync gladly now, but has forgotten what it failed to write: nobody may be told otherwise.
    with pytest.raises(StorageError):
        run(rig, lambda: rig.log.wait_flushed(Offset(6)))


def test_a_waiter_that_is_cancelled_leaves_the_others_their_sync(rig: ModelledLog) -> None:
    rig.append([Wish()] * 3)
    before = len(syncs(rig))

    async def work() -> None:
        waiters = [asyncio.ensure_future(rig.log.wait_flushed(Offset(4))) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        answers = await asyncio.gather(*waiters, return_exceptions=True)
        assert [asyncio.CancelledError, type(None), type(None)] == [type(answer) for answer in answers]

    run(rig, work)
    assert 1 == len(syncs(rig)) - before
    assert 4 == rig.log.recovery_point


def test_a_flush_goes_on_when_all_who_waited_are_cancelled(rig: ModelledLog) -> None:
    rig.append([Wish()] * 3)

    async def work() -> None:
        waiter = asyncio.ensure_future(rig.log.wait_flushed(Offset(4)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        await rig.log.wait_flushed(Offset(4))

    run(rig, work)
    assert 4 == rig.log.recovery_point


def test_who_waits_for_what_is_truncated_gets_an_error(rig: ModelledLog) -> None:
    rig.append([Wish()] * 4)

    async def work() -> None:
        waiters = [asyncio.ensure_future(rig.log.wait_flushed(Offset(end))) for end in (3, 5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rig.truncate_to(3)
        answers = await asyncio.gather(*waiters, return_exceptions=True)
        assert StorageError is type(answers[1])

    run(rig, work)
    assert rig.log.recovery_point <= rig.log.end_offset


def test_a_sync_does_not_count_for_what_replaced_the_truncated(rig: ModelledLog) -> None:
    """The offset is the same, the record is another: whoever waited for the first must not be told that it is safe."""
    rig.append([Wish()] * 4)

    async def work() -> None:
        waiter = asyncio.ensure_future(rig.log.wait_flushed(Offset(5)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        rig.truncate_to(2)
        rig.append([Wish()] * 3, new_epoch=True)
        answers = await asyncio.gather(waiter, return_exceptions=True)
        assert StorageError is type(answers[0])
        assert rig.log.recovery_point <= 2
        await rig.log.wait_flushed(Offset(5))

    run(rig, work)
    assert 5 == rig.log.recovery_point
    rig.flushed_end = 5
    rig.crash(3)
    rig.inspect()


def test_rolled_segments_are_synced_with_the_active_one() -> None:
    rig = ModelledLog(SimDisk(), LogConfig(segment_bytes=700))
    rig.append([Wish(value_bytes=400)] * 4)
    run(rig, lambda: rig.log.wait_flushed(Offset(4)))
    expected = [f"{rig.log.folder}/{base:020d}.log" for base in range(4)]
    assert expected == syncs(rig)
    rig.flushed_end = 4
    for seed in range(10):
        rig.crash(seed)
        rig.inspect()
    rig.close_loop()
