"""Disks that are full, read-only, broken or missing, at every step of a log's life.

Each ends in a clear error that names the file; nothing is lost, and other partitions are served.
"""

import asyncio
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.env.ports import Disk
from ottla.env.real_disk import RealDisk
from ottla.model.errors import OttlaError, StorageError
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs
from ottla.records.layout import Marker
from ottla.sim.clock import SimClock
from ottla.sim.disk import Moment, SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.log import Appended, Log
from ottla.storage.log_config import LogConfig
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
    housekeeping,
    mark,
    open_store,
    read_all,
    values,
)

FOLDER = f"{DATA}/t-0"
OTHER = "/other"


def numbered(count: int) -> list[bytes | None]:
    return [b"value %04d" % number for number in range(count)]


def operation_of(disk: SimDisk, name: str, ending: str, since: int) -> int:
    """The index of the first operation of this name on a matching path."""
    return next(each.number for each in disk.trace[since:] if each.name == name and each.path.endswith(ending))


def try_append(log: Log, number: int) -> Appended | OttlaError:
    record = batch(b"value %04d" % number, timestamp=NOW + 10 * number)
    return log.append([record], leader_epoch=EPOCH, now=NOW)[0]


class TestFullAtEachStep:
    """The step fails once for want of room; the log stays whole, and the same append succeeds afterwards."""

    @pytest.mark.parametrize(
        ("operation", "ending"),
        [
            ("write", f"{0:020}.log"),
            ("create", f"{0:020}.index"),
            ("write", f"{0:020}.index"),
            ("create", f"{0:020}.timeindex"),
            ("write", f"{0:020}.timeindex"),
            ("create", f"{4:020}.snapshot"),
            ("write", f"{4:020}.snapshot"),
            ("create", f"{4:020}.log"),
            ("write", f"{4:020}.log"),
        ],
    )
    def test_an_append(self, operation: str, ending: str) -> None:
        """The fifth batch does not fit into the first segment: sealing it and making another come before."""
        for before_bytes in (True, False):
            rehearsal = SimDisk()
            log = open_store(rehearsal).create(P0)
            fill(log, 3)
            since = rehearsal.operation_count
            fill(log, 2, first=3)
            disk = SimDisk()
            store = open_store(disk)
            log, other = store.create(P0), store.create(P1)
            fill(log, 3)
            moved = disk.operation_count - since
            number = operation_of(rehearsal, operation, ending, since) + moved
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{FOLDER}/{ending}")
            disk.fail_at(number, full, Moment.BEFORE if before_bytes else Moment.MIDDLE)
            results = [try_append(log, 3)]
            if isinstance(results[0], Appended):
                results.append(try_append(log, 4))
            error = results[-1]
            assert isinstance(error, StorageError)
            assert ending in str(error)
            assert "No space left" in str(error)
            assert log.failure is None
            end = 2 + len(results)
            assert (end, numbered(end)) == (log.end_offset, values(log))

            fill(other, 2)
            fill(log, 7 - end, first=end)
            assert numbered(7) == values(log)
            assert numbered(2) == values(other)
            again = open_store(disk.kill())
            assert numbered(7) == values(again.get(P0))
            assert (NOW + 60, 6) == again.get(P0).largest_timestamp()

    def test_an_aborted_transaction(self) -> None:
        disk = SimDisk()
        log = open_store(disk).create(P0)
        fill(log, 1)
        append(log, batch(producer_id=5, sequence=0, transactional=True))
        disk.fail_at(disk.operation_count + 2, OSError(errno.ENOSPC, "full", "x.txnindex"))
        with pytest.raises(StorageError, match=r"index an aborted transaction"):
            mark(log, Marker.ABORT, 5)
        assert log.failure is None
        assert (2, [], 1) == (
            log.end_offset,
            log.aborted_transactions(Offset(0), Offset(9)),
            log.producers.first_unstable_offset,
        )

        assert 2 == mark(log, Marker.ABORT, 5).base_offset
        assert [(5, 1, 2)] == [each[:3] for each in log.aborted_transactions(Offset(0), Offset(9))]
        assert [(5, 1, 2)] == [
            each[:3] for each in open_store(disk.kill()).get(P0).aborted_transactions(Offset(0), Offset(9))
        ]

    @pytest.mark.parametrize("name", [names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS])
    def test_a_checkpoint(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        fill(log, 6)
        log.flush()
        store.checkpoints.save()
        kept = disk.read(f"{DATA}/{name}")
        since = disk.operation_count
        store.checkpoints.save()
        at = operation_of(disk, "write", f"{name}.tmp", since) - since
        fill(log, 2, first=6)
        log.flush()
        disk.fail_at(disk.operation_count + at, OSError(errno.ENOSPC, "No space left on device", "x"))
        store.checkpoints.save()
        assert f"{DATA}/{name}: cannot write: No space left on device" in caplog.messages
        assert kept == disk.read(f"{DATA}/{name}")
        assert store.dirs[0].failure is None

        store.checkpoints.save()
        assert (name == names.LOG_STARTS) == (kept == disk.read(f"{DATA}/{name}"))

    def test_the_leader_epochs(self) -> None:
        """A flush writes them after the records are durable: the log is sound, and its recovery point does not move."""
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        fill(log, 3)
        log.flush()
        fill(log, 1, first=3, epoch=LeaderEpoch(9))
        at = disk.operation_count + 3
        disk.fail_at(at, OSError(errno.ENOSPC, "No space left on device", f"{FOLDER}/{names.EPOCHS}.tmp"))
        with pytest.raises(StorageError, match=f"{names.EPOCHS}: cannot write: No space left"):
            log.flush()
        assert names.EPOCHS in disk.trace[at].path
        assert (None, 3, 4) == (log.failure, log.recovery_point, log.end_offset)
        assert log.health.refusal is not None
        log.flush()
        assert 4 == log.recovery_point
        assert {EPOCH: 0, 9: 3} == open_store(disk.kill()).get(P0).epochs.starts

    def test_the_leader_epochs_of_a_disk_that_fails(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log, other = store.create(P0), store.create(P1)
        fill(log, 3)
        log.flush()
        fill(log, 1, first=3, epoch=LeaderEpoch(9))
        at = disk.operation_count + 3
        disk.fail_at(at, OSError(errno.EIO, "Input/output error", f"{FOLDER}/{names.EPOCHS}.tmp"))
        with pytest.raises(StorageError, match=f"{names.EPOCHS}.tmp: cannot flush: Input/output error.*offline"):
            log.flush()
        assert names.EPOCHS in disk.trace[at].path
        with pytest.raises(StorageError, match="offline"):
            log.read(Offset(0), 1)
        fill(other, 1)
        assert {EPOCH: 0, 9: 3} == open_store(disk.kill()).get(P0).epochs.starts

    def test_a_truncation_that_cannot_be_noted(self) -> None:
        disk = SimDisk()
        log = open_store(disk).create(P0)
        fill(log, 6)
        log.flush()
        disk.make_read_only(f"{DATA}/{names.LOG_STARTS}.tmp")
        with pytest.raises(StorageError, match=names.LOG_STARTS):
            log.truncate_fully(Offset(40), now=NOW)
        assert (0, 6, 6) == (log.start_offset, log.high_watermark, log.end_offset)
        disk.heal(f"{DATA}/{names.LOG_STARTS}.tmp")
        disk.make_read_only(f"{DATA}/{names.RECOVERY_POINTS}.tmp")
        with pytest.raises(StorageError, match=names.RECOVERY_POINTS):
            log.truncate_to(Offset(2), now=NOW)
        assert numbered(6) == values(log)
        disk.heal(f"{DATA}/{names.RECOVERY_POINTS}.tmp")
        log.truncate_to(Offset(2), now=NOW)
        assert numbered(2) == values(log)

    def test_creating_a_partition(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 1)
        disk.make_read_only(DATA)
        with pytest.raises(StorageError, match=f"{DATA}/t-1: cannot create the partition: Read-only"):
            store.create(P1)
        disk.heal(DATA)
        fill(store.create(P1), 1)
        assert numbered(1) == values(store.get(P1))


class TestReadOnly:
    def test_what_is_there_stays_readable(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log = store.create(P0)
        fill(log, 6)
        disk.make_read_only("/")
        error = try_append(log, 6)
        assert isinstance(error, StorageError)
        assert f"{4:020}.log, byte 158: cannot append 79 bytes: Read-only file system" in str(
            error
        ) or "cannot undo" in str(error)
        log.segments.release()
        log.segments.release_idle()
        assert numbered(6) == values(log)
        assert (NOW + 50, 5) == log.largest_timestamp()
        store.checkpoints.save()
        assert store.dirs[0].failure is None
        disk.heal("/")
        fill(log, 1, first=6)
        assert numbered(7) == values(log)


class TestBroken:
    def test_a_read_names_the_file(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log, other = store.create(P0), store.create(P1)
        fill(log, 6)
        fill(other, 2)
        log.segments.release()
        path = f"{FOLDER}/{0:020}.log"
        disk.break_path(path)
        for read in (
            lambda: log.read(Offset(0), 1),
            lambda: log.find_timestamp(TimestampMs(NOW)),
            lambda: log.truncate_to(Offset(1), now=NOW),
        ):
            with pytest.raises(StorageError, match=f"{path}: cannot .*Input/output error"):
                read()
        assert numbered(2) == values(other)
        disk.heal(path)

    @pytest.mark.parametrize("waits", [True, False])
    def test_a_failed_sync_takes_the_partition_offline(self, waits: bool) -> None:
        disk = SimDisk()
        store = open_store(disk)
        log, other = store.create(P0), store.create(P1)
        fill(log, 6)
        fill(other, 2)
        disk.fail_at(disk.operation_count, OSError(errno.EIO, "Input/output error", f"{FOLDER}/{0:020}.log"))

        def flush() -> None:
            if waits:
                asyncio.run(log.wait_flushed(Offset(6)))
            else:
                log.flush()

        with pytest.raises(StorageError, match=f"{0:020}.log: cannot flush: Input/output error; the partition is off"):
            flush()
        assert 0 == log.recovery_point
        uses: list[Callable[[], object]] = [
            lambda: fill(log, 1),
            lambda: log.read(Offset(0), 1),
            log.flush,
            lambda: log.roll(NOW),
        ]
        for use in uses:
            with pytest.raises(StorageError, match="offline"):
                use()
        other.flush()
        assert 2 == other.recovery_point

        close(store)
        again = open_store(disk.kill())
        assert not again.dirs[0].is_clean
        assert {} == again.offline

    @pytest.mark.parametrize("waits", [True, False])
    def test_a_file_that_cannot_be_opened_is_flushed_later(self, waits: bool) -> None:
        """Nothing was synced and nothing was lost: the log stays as it is."""
        disk = SimDisk()
        log = open_store(disk).create(P0)
        fill(log, 6)
        log.segments.release()
        path = f"{FOLDER}/{0:020}.log"
        disk.break_path(path, errno.EMFILE)

        def flush() -> None:
            if waits:
                asyncio.run(log.wait_flushed(Offset(6)))
            else:
                log.flush()

        with pytest.raises(StorageError, match=f"{path}: cannot flush: Too many open files"):
            flush()
        assert (None, 0) == (log.failure, log.recovery_point)
        assert "Too many open files" in str(log.health.refusal)
        disk.heal(path)
        flush()
        assert 6 == log.recovery_point

    def test_a_log_that_cannot_be_opened_does_not_keep_the_others_from_being_closed(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = SimDisk()
        store = open_store(disk, [DATA, OTHER])
        logs = [store.create(partition) for partition in (P0, P1)]
        for log in logs:
            fill(log, 2)
            log.segments.release()
        disk.break_path(f"{logs[0].folder}/{0:020}.log")
        close(store)
        assert "partition t-0 was not closed cleanly" in caplog.text
        disk.heal(f"{logs[0].folder}/{0:020}.log")
        again = open_store(disk.kill(), [DATA, OTHER])
        assert [False, True] == [again.dir_of(partition).is_clean for partition in (P0, P1)]
        assert [2, 2] == [again.get(partition).end_offset for partition in (P0, P1)]

    @pytest.mark.parametrize("is_open", [True, False])
    def test_one_log_that_cannot_be_flushed_does_not_keep_the_others_from_it(self, is_open: bool) -> None:
        disk, clock = SimDisk(), SimClock()
        store = open_store(disk, config=LogConfig(flush_ms=10), clock=clock)
        for partition in (P0, P1):
            fill(store.create(partition), 1)
        work = housekeeping(store, disk, clock)
        asyncio.run(work.flush_by_time(clock.now_ms()))
        if not is_open:
            store.get(P0).segments.release()
        disk.break_path(f"{FOLDER}/{0:020}.log")
        clock.advance(1)
        asyncio.run(work.flush_by_time(clock.now_ms()))
        assert ["cannot flush" in str(log.health.trouble) for log in store] == [True, False]
        assert [0, 1] == [log.recovery_point for log in store]

    def test_a_log_that_cannot_be_flushed_now_is_compacted_later(self, caplog: pytest.LogCaptureFixture) -> None:
        disk, clock = SimDisk(), SimClock()
        store = open_store(disk, config=LogConfig(cleanup_compact=True, min_cleanable_dirty_ratio=0.01), clock=clock)
        log = store.create(P0)
        fill(log, 6)
        log.advance_high_watermark(log.end_offset)
        log.roll(clock.now_ms())
        log.segments.release()
        path = f"{FOLDER}/{6:020}.log"
        disk.break_path(path, errno.EMFILE)
        work = housekeeping(store, disk, clock)
        assert not asyncio.run(work.clean_one())
        assert f"partition t-0 was not cleaned: {path}: cannot flush: Too many open files" in caplog.text
        disk.heal(path)
        assert asyncio.run(work.clean_one())


class TestVanishing:
    def test_while_running(self) -> None:
        disk = SimDisk()
        store = open_store(disk, [DATA, OTHER])
        logs = {store.create(partition).folder.rpartition("/")[0]: store.get(partition) for partition in (P0, P1)}
        assert {DATA, OTHER} == set(logs)
        for log in logs.values():
            fill(log, 2)
        disk.vanish(OTHER)
        store.checkpoints.save()
        assert store.dirs[0].failure is None
        assert OTHER in str(store.dirs[1].failure)
        with pytest.raises(StorageError, match=f"the partitions in {OTHER} are offline"):
            logs[OTHER].read(Offset(0), 1)
        fill(logs[DATA], 3, first=2)
        assert numbered(5) == values(logs[DATA])
        close(store)
        assert numbered(5) == values(open_store(disk.kill()).get(logs[DATA].partition))

    def test_at_the_start(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 2)
        close(store)
        disk.break_path(OTHER)
        store = open_store(disk, [OTHER, DATA])
        assert numbered(2) == values(store.get(P0))
        assert f"{OTHER}: Input/output error; the partitions in {OTHER} are offline" == str(store.dirs[0].failure)
        fill(store.create(P1), 1)

    def test_all_of_them(self) -> None:
        disk = SimDisk()
        for path in (DATA, OTHER):
            disk.break_path(path)
        with pytest.raises(StorageError, match=f"{DATA}: Input/output error; .*{OTHER}: Input/output error"):
            open_store(disk, [DATA, OTHER])


class TestARealSmallDisk:
    """The same on a file system of 256 KiB."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Iterator[Path]:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip(f"this user may not mount a small file system: {mounted.stderr.decode().strip()}")
        yield tmp_path
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)

    @pytest.mark.parametrize("segment_bytes", [4 << 10, 1 << 20])
    def test_full(self, root: Path, segment_bytes: int) -> None:
        disk: Disk = RealDisk()
        config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=1, segment_index_bytes=16384)
        store = open_store(disk, [str(root / "data")], config)
        log, other = store.create(P0), store.create(P1)
        fill(other, 1)
        number = 0
        while isinstance(error := try_append(log, number), Appended):
            number += 1
        assert number > 100
        assert isinstance(error, StorageError)
        assert "No space left on device" in str(error)
        assert str(root) in str(error)
        del error  # Its traceback holds the file, and so the room that unlinking it is to give back.
        log.advance_high_watermark(log.end_offset)
        assert number == log.end_offset
        assert numbered(number) == values(log)
        assert numbered(1) == values(other)

        log.truncate_to(Offset(number // 2), now=NOW)
        store.trash.sweep(TimestampMs(NOW + 10**9))
        end = log.end_offset
        fill(log, 50, first=end)
        assert numbered(end + 50) == values(log)
        close(store)
        store = open_store(disk, [str(root / "data")], config)
        assert numbered(end + 50) == values(store.get(P0))
        close(store)

    def test_read_only(self, root: Path) -> None:
        disk: Disk = RealDisk()
        store = open_store(disk, [str(root / "data")], CONFIG)
        log = store.create(P0)
        fill(log, 10)
        log.segments.release()
        store.dirs[0].unlock()  # Its handle would keep the system from taking the right to write away.
        subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True)
        try:
            error = try_append(log, 10)
            assert isinstance(error, StorageError)
            assert str(root) in str(error)
            assert numbered(10) == values(log)
            assert (NOW + 90, 9) == log.largest_timestamp()
            assert 10 == len(read_all(log))
        finally:
            subprocess.run(["mount", "-o", "remount,rw", str(root)], check=True)
        fill(log, 1, first=10)
        assert numbered(11) == values(log)
        close(store)
