"""Moving a log between data dirs: what the copy has, what readers and writers notice, and every crash on the way."""

import asyncio
import errno
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from ottla.model.errors import StorageError
from ottla.model.ids import LeaderEpoch, Offset, ProducerId, TimestampMs
from ottla.records.layout import Marker
from ottla.sim.disk import Moment, SimDisk
from ottla.sim.disk_faults import SimulatedCrash
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from ottla.storage.log_store import LogStore
from tests.unit.storage.rig import (
    CONFIG,
    DATA,
    EPOCH,
    NOW,
    P0,
    P1,
    append,
    batch,
    close,
    fill,
    mark,
    open_store,
    run,
    values,
)

OTHER = "/other"
DIRS = [DATA, OTHER]
RECORDS = 30


def numbered(count: int) -> list[bytes | None]:
    return [b"value %04d" % number for number in range(count)]


def new_store(disk: SimDisk) -> LogStore:
    """P0 in the first data dir with records in several segments, and P1 in the other."""
    store = open_store(disk, DIRS)
    log = store.create(P0, "topic-id")
    fill(log, RECORDS)
    fill(store.create(P1, "topic-id"), 3)
    log.flush()
    store.get(P1).flush()
    store.checkpoints.save()
    assert [DATA, OTHER] == [store.dir_of(each).path for each in (P0, P1)]
    return store


async def copy_all(store: LogStore, bytes_max: int = 200) -> None:
    future = store.futures[P0]
    while await future.copy_some(bytes_max, TimestampMs(NOW)):
        pass
    await future.flush()


def begin(store: LogStore) -> None:
    store.get(P0).is_moving = True
    store.begin_move(P0, store.dirs[1])


def move(disk: SimDisk, store: LogStore) -> Log:
    begin(store)
    run(disk, copy_all(store))
    store.complete_move(P0)
    return store.get(P0)


def folders(disk: SimDisk, path: str) -> list[str]:
    """The folders of partitions, whatever they are called."""
    return [name for name in disk.list_dir(path) if disk.is_dir(f"{path}/{name}")]


def test_a_moved_log_is_the_same_log_in_another_folder() -> None:
    disk = SimDisk()
    store = new_store(disk)
    log = store.get(P0)
    bounds = log.start_offset, log.high_watermark, log.end_offset, log.epochs.starts
    moved = move(disk, store)
    assert moved is log
    assert (f"{OTHER}/t-0", OTHER, {}) == (log.folder, store.dir_of(P0).path, store.futures)
    assert bounds == (log.start_offset, log.high_watermark, log.end_offset, log.epochs.starts)
    assert numbered(RECORDS) == values(log)
    fill(log, 5, first=RECORDS)
    assert numbered(RECORDS + 5) == values(log)
    assert ["t-0", "t-1"] == folders(disk, OTHER)
    (doomed,) = folders(disk, DATA)
    assert names.is_doomed(doomed)
    assert not disk.exists(f"{OTHER}/t-0/{names.MOVED}")
    close(store)
    again = open_store(disk, DIRS)
    assert (OTHER, numbered(RECORDS + 5)) == (again.dir_of(P0).path, values(again.get(P0)))
    assert ({}, {}, {}) == (again.offline, again.shortfalls, again.interrupted_moves)
    assert [] == folders(disk, DATA)


def test_records_that_come_meanwhile_are_moved_too() -> None:
    disk = SimDisk()
    store = new_store(disk)
    begin(store)
    future = store.futures[P0]
    assert (RECORDS, 0, False) == (future.lag, future.size_bytes, future.is_nearly_complete)
    run(disk, copy_all(store))
    assert (0, True) == (future.lag, future.is_nearly_complete)
    fill(store.get(P0), 4, first=RECORDS)
    assert (4, True) == (future.lag, future.is_nearly_complete)
    store.complete_move(P0)
    assert numbered(RECORDS + 4) == values(store.get(P0))


def test_the_start_the_producers_and_the_aborted_transactions_are_kept() -> None:
    disk = SimDisk()
    store = new_store(disk)
    log = store.get(P0)
    append(log, batch(b"idempotent", producer_id=7, epoch=2, sequence=0))
    append(log, batch(b"aborted", producer_id=8, epoch=0, sequence=0, transactional=True))
    mark(log, Marker.ABORT, 8)
    append(log, batch(b"open", producer_id=9, epoch=0, sequence=0, transactional=True))
    log.advance_high_watermark(log.end_offset)
    log.advance_start(Offset(6))
    # Epochs without records, as a leader has them that was just elected.
    log.epochs.assign(LeaderEpoch(EPOCH + 4), log.end_offset)
    known = [log.producers.get(ProducerId(number)) for number in (7, 8, 9)]
    aborted = log.aborted_transactions(Offset(6), log.end_offset)
    before = log.start_offset, log.last_stable_offset, log.epochs.starts
    moved = move(disk, store)
    assert before == (moved.start_offset, moved.last_stable_offset, moved.epochs.starts)
    assert known == [moved.producers.get(ProducerId(number)) for number in (7, 8, 9)]
    assert aborted == moved.aborted_transactions(Offset(6), moved.end_offset)
    assert 1 == len(aborted)
    close(store)
    again = open_store(disk, DIRS).get(P0)
    assert before[:2] == (again.start_offset, again.last_stable_offset)
    assert aborted == again.aborted_transactions(Offset(6), again.end_offset)


def test_a_log_that_is_truncated_meanwhile_is_copied_again() -> None:
    disk = SimDisk()
    store = new_store(disk)
    begin(store)
    run(disk, copy_all(store))
    log = store.get(P0)
    log.truncate_to(Offset(20), now=TimestampMs(NOW))
    fill(log, 15, first=500, epoch=LeaderEpoch(EPOCH + 1))
    assert not store.futures[P0].is_nearly_complete
    run(disk, copy_all(store))
    store.complete_move(P0)
    assert [*numbered(20), *(b"value %04d" % (500 + number) for number in range(15))] == values(store.get(P0))


def test_a_log_that_ends_with_a_gap() -> None:
    disk = SimDisk()
    store = open_store(disk, DIRS)
    log = store.create(P0, "topic-id")
    fill(log, 3)
    log.roll(TimestampMs(NOW), base_offset=Offset(50))
    begin(store)
    run(disk, copy_all(store))
    store.complete_move(P0)
    assert (50, numbered(3)) == (store.get(P0).end_offset, values(store.get(P0)))


def test_an_empty_log() -> None:
    disk = SimDisk()
    store = open_store(disk, DIRS)
    store.create(P0, "topic-id").truncate_fully(Offset(9), now=TimestampMs(NOW))
    moved = move(disk, store)
    assert (9, 9) == (moved.start_offset, moved.end_offset)
    fill(moved, 1)
    assert numbered(1) == values(moved)


def test_a_move_that_is_given_up_leaves_nothing() -> None:
    disk = SimDisk()
    store = new_store(disk)
    begin(store)
    run(disk, copy_all(store))
    store.cancel_move(P0)
    assert ({}, ["t-1"], False) == (store.futures, folders(disk, OTHER), store.get(P0).is_moving)
    assert numbered(RECORDS) == values(store.get(P0))


def test_deleting_the_partition_removes_its_copy() -> None:
    disk = SimDisk()
    store = new_store(disk)
    begin(store)
    store.delete(P0)
    assert ({}, ["t-1"]) == (store.futures, folders(disk, OTHER))


def test_bytes_that_a_recovery_put_aside_stay_with_the_log() -> None:
    disk = SimDisk()
    store = new_store(disk)
    kept = f"{0:020}.log{names.ASIDE}"
    file = disk.open(f"{DATA}/t-0/{kept}", create=True)
    file.write_at(0, [b"removed bytes"])
    file.close()
    move(disk, store)
    assert b"removed bytes" == disk.read(f"{OTHER}/t-0/{kept}")


def test_a_data_dir_that_cannot_be_written_keeps_the_log_where_it_is() -> None:
    """An error at any operation of the move: the log is as before, or moved, and the same after a restart."""
    for number in range(operations_of_a_move()):
        disk = SimDisk()
        store = new_store(disk)
        disk.fail_at(disk.operation_count + number, OSError(errno.EIO, "input/output error"))
        with suppress(StorageError, OSError):
            move(disk, store)
        if P0 not in store.offline and store.get(P0).failure is None:
            fill(store.get(P0), 2, first=RECORDS)
            assert numbered(RECORDS + 2) == values(store.get(P0)), f"operation {number}"
        again = open_store(disk.kill(), DIRS)
        assert numbered(RECORDS) == values(again.get(P0))[:RECORDS], f"operation {number}"
        assert {} == again.offline


# Crashes

STEPS: dict[str, Callable[[str, str], bool]] = {
    "the copy is created": lambda name, path: name == "make_dir" and path.endswith("-future"),
    "the copy is synced": lambda name, path: name == "sync_dir" and path.endswith("-future"),
    "the mark is written": lambda name, path: name == "sync" and path.endswith(f"-future/{names.MOVED}"),
    "the checkpoints name the copy": lambda name, path: name == "rename" and path.endswith(names.HIGH_WATERMARKS),
    "the copy becomes the log": lambda name, path: name == "rename" and path.endswith(f"-future -> {OTHER}/t-0"),
    "the old folder is renamed": lambda name, path: name == "rename" and path.startswith(f"{DATA}/t-0 -> "),
    "the mark is removed": lambda name, path: name == "remove" and path.endswith(f"t-0/{names.MOVED}"),
}
"""The last operation of a move that is of this kind."""


def operations_of_a_move() -> int:
    disk = SimDisk()
    store = new_store(disk)
    before = disk.operation_count
    move(disk, store)
    return disk.operation_count - before


def crashed_move(number: int, moment: Moment) -> SimDisk:
    """A disk on which a move was interrupted at an operation, counted from its beginning."""
    disk = SimDisk()
    store = new_store(disk)
    disk.fail_at(disk.operation_count + number, SimulatedCrash, moment)
    with pytest.raises(SimulatedCrash):
        move(disk, store)
    return disk


def check_one_log(disk: SimDisk) -> None:
    """After a restart the partition has one folder and all its records; a second restart finds the same."""
    store = open_store(disk, DIRS)
    assert numbered(RECORDS) == values(store.get(P0))
    assert numbered(3) == values(store.get(P1))
    assert ({}, {}) == (store.offline, store.shortfalls)
    place = store.dir_of(P0).path
    assert [place] == [path for path in DIRS if "t-0" in folders(disk, path)]
    assert [] == [name for path in DIRS for name in folders(disk, path) if name not in ("t-0", "t-1")]
    assert not disk.exists(f"{place}/t-0/{names.MOVED}")
    assert set(store.interrupted_moves) <= {P0}
    fill(store.get(P0), 1, first=RECORDS)
    again = open_store(disk.kill(), DIRS)
    assert (place, numbered(RECORDS + 1)) == (again.dir_of(P0).path, values(again.get(P0)))


@pytest.mark.parametrize("moment", list(Moment), ids=lambda moment: moment.value)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_power_cut", [False, True], ids=["kill", "power cut"])
def test_a_crash_at_each_step(step: str, moment: Moment, is_power_cut: bool) -> None:
    disk = SimDisk()
    store = new_store(disk)
    first = disk.operation_count
    move(disk, store)
    found = [each for each in range(first, disk.operation_count) if STEPS[step](*_named(disk, each))]
    assert found
    crashed = crashed_move(found[-1] - first, moment)
    check_one_log(crashed.crash() if is_power_cut else crashed.kill())


@pytest.mark.slow
def test_a_crash_at_every_operation() -> None:
    for number in range(operations_of_a_move()):
        for moment in Moment:
            for is_power_cut in (False, True):
                crashed = crashed_move(number, moment)
                try:
                    check_one_log(crashed.crash() if is_power_cut else crashed.kill())
                except BaseException as error:
                    error.add_note(f"crashed {moment.value} operation {number}, power cut: {is_power_cut}")
                    raise


def test_an_old_folder_that_returns_with_its_data_dir() -> None:
    """The move was interrupted when both folders had the partition's name; then the old data dir was missing."""
    disk = SimDisk()
    store = new_store(disk)
    first = disk.operation_count
    move(disk, store)
    (renamed,) = [
        each for each in range(first, disk.operation_count) if STEPS["the old folder is renamed"](*_named(disk, each))
    ]
    crashed = crashed_move(renamed - first, Moment.BEFORE).kill()
    crashed.break_path(DATA)
    alone = open_store(crashed, DIRS)
    fill(alone.get(P0), 2, first=RECORDS)
    alone.get(P0).flush()
    crashed.heal(DATA)
    both = open_store(crashed.kill(), DIRS)
    assert (OTHER, numbered(RECORDS + 2)) == (both.dir_of(P0).path, values(both.get(P0)))


def test_a_preferred_data_dir() -> None:
    disk = SimDisk()
    store = open_store(disk, DIRS)
    store.prefer(P0, store.dirs[1])
    assert f"{OTHER}/t-0" == store.create(P0).folder


def test_a_log_is_not_compacted_while_it_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.sim.clock import SimClock
    from tests.unit.storage.rig import housekeeping

    disk = SimDisk()
    config = replace(CONFIG, cleanup_compact=True, cleanup_delete=False, min_cleanable_dirty_ratio=0.0)
    store = open_store(disk, DIRS, config)
    fill(store.create(P0, "topic-id"), RECORDS)
    work = housekeeping(store, disk, SimClock())
    begin(store)

    async def cleaned() -> bool:
        return await work.clean_one()

    assert not asyncio.run(cleaned())
    store.cancel_move(P0)
    assert asyncio.run(cleaned())


def _named(disk: SimDisk, number: int) -> tuple[str, str]:
    operation = disk.trace[number]
    return operation.name, operation.path
