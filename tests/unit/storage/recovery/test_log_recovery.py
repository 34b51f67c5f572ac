"""Opening what a kill, a crash or a clean shutdown left."""

import asyncio

import pytest

from ottla.model.errors import CorruptError
from ottla.model.ids import LeaderEpoch, Offset, TimestampMs
from ottla.records.layout import Marker
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from ottla.storage.log_store import OpeningProgress
from tests.unit.storage.rig import (
    DATA,
    NOW,
    P0,
    Image,
    append,
    batch,
    close,
    disk_of,
    fill,
    image_of,
    make_store,
    mark,
    open_store,
    put,
    put_checkpoint,
    read_all,
    values,
)

FOLDER = f"{DATA}/t-0"


def numbered(count: int) -> list[bytes | None]:
    return [b"value %04d" % number for number in range(count)]


def killed(count: int = 10, flush_at: int | None = None) -> SimDisk:
    """A disk whose broker was killed after that many batches."""
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(P0)
    fill(log, count if flush_at is None else flush_at)
    if flush_at is not None:
        log.flush()
        store.checkpoints.save()
        fill(log, count - flush_at, first=flush_at)
    return disk.kill()


def logs_of(image: Image) -> list[str]:
    return sorted(path for path in image if path.endswith(names.LOG))


def test_a_kill_loses_nothing() -> None:
    for flush_at in (None, 0, 5, 10):
        log = open_store(killed(10, flush_at)).get(P0)
        assert numbered(10) == values(log)
        assert (NOW + 90, 9) == log.largest_timestamp()
        assert [0, 4, 8] == [segment.base_offset for segment in log.segments]
        fill(log, 3, first=10)
        assert numbered(13) == values(log)


def test_a_clean_shutdown_scans_nothing() -> None:
    disk = SimDisk()
    store = open_store(disk)
    fill(store.create(P0), 10)
    close(store)
    seen: list[OpeningProgress] = []
    store = make_store(disk)
    asyncio.run(store.open(seen.append))
    assert [OpeningProgress(partitions_done=1, partitions_total=1, bytes_scanned=0)] == seen
    log = store.get(P0)
    assert (10, 10, 10) == (log.end_offset, log.recovery_point, log.high_watermark)
    assert numbered(10) == values(log)


@pytest.mark.parametrize("left", range(0, 158, 13))
def test_a_torn_tail_is_cut(left: int) -> None:
    image = image_of(killed(10, 8))
    path = logs_of(image)[-1]
    log = open_store(disk_of({**image, path: image[path][:left]})).get(P0)
    assert numbered(8 + left // 79) == values(log)
    fill(log, 1, first=log.end_offset)
    assert numbered(log.end_offset) == values(log)


def test_zeros_at_the_end_are_cut() -> None:
    image = image_of(killed(10))
    path = logs_of(image)[-1]
    disk = disk_of({**image, path: image[path] + bytes(5000)})
    assert numbered(10) == values(open_store(disk).get(P0))
    assert len(image[path]) == disk.size(path)


def test_segments_behind_a_hole_go_after_a_power_cut() -> None:
    image = image_of(killed(10))
    first = logs_of(image)[0]
    disk = disk_of({**image, first: image[first][:100]})
    disk.boot_id = "boot 1"
    log = open_store(disk).get(P0)
    assert (numbered(1), 1) == (values(log), len(log.segments))
    assert [first] == logs_of(image_of(disk))


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_older_epoch_behind_a_newer(is_killed: bool) -> None:
    """A power cut may bring back what had been truncated; after a kill the header of a batch is damaged."""
    disk = SimDisk()
    log = open_store(disk).create(P0)
    fill(log, 2, epoch=LeaderEpoch(5))
    log.flush()
    log._persist_bounds()
    stale = bytes(batch(b"value 0002", base_offset=2, leader_epoch=4).buffer)
    path = log.segments.active.log_path
    disk = disk.kill() if is_killed else disk.crash()
    put(disk, path, disk.read(path) + stale)
    log = open_store(disk).get(P0)
    assert (numbered(3 if is_killed else 2), {5: 0}) == (values(log), log.epochs.starts)


def test_producers_epochs_and_transactions_come_back() -> None:
    disk = SimDisk()
    store = open_store(disk)
    log = store.create(P0)
    append(log, batch(producer_id=5, sequence=0, transactional=True))
    fill(log, 5)
    mark(log, Marker.ABORT, 5)
    append(log, batch(producer_id=6, sequence=3, transactional=True), epoch=LeaderEpoch(7))
    before = summary(log)
    image = image_of(disk)
    killed_disk, closed_disk = disk_of(image), disk_of(image)
    close(open_store(closed_disk))
    assert before == summary(open_store(killed_disk).get(P0))
    again = open_store(closed_disk)
    assert again.dirs[0].is_clean
    assert before == summary(again.get(P0))


def summary(log: Log) -> object:
    aborted = log.aborted_transactions(Offset(0), Offset(99))
    producers = {(entry.producer_id, entry.last_sequence, entry.transaction_start) for entry in log.producers}
    return aborted, producers, log.epochs.starts, log.end_offset, read_all(log)


class TestBounds:
    def test_a_log_that_lost_what_was_flushed_goes_on_behind_it(self) -> None:
        image = image_of(killed(10, 10))
        path = logs_of(image)[-1]
        log = open_store(disk_of({**image, path: image[path][:79]})).get(P0)
        assert (numbered(9), 10) == (values(log), log.end_offset)
        assert isinstance(log.health.damage, CorruptError)
        assert "ends at offset 9, but was flushed up to 10 according to recovery-point-offset-checkpoint" in str(
            log.health.damage
        )

    def test_a_start_behind_a_lost_tail(self) -> None:
        """Offsets that were given out stay given out."""
        image = image_of(killed(10, 4))
        path = logs_of(image)[1]
        for lost in logs_of(image)[2:]:
            del image[lost]
        image[path] = b""
        disk = disk_of(image)
        put_checkpoint(disk, names.LOG_STARTS, {P0: 7})
        log = open_store(disk).get(P0)
        assert (7, 7, 7) == (log.start_offset, log.end_offset, log.high_watermark)
        fill(log, 1)
        assert [7] == [stored.base_offset for stored in read_all(log)]

    def test_an_empty_folder_begins_where_the_checkpoint_says(self) -> None:
        disk = killed(0)
        disk.remove(f"{FOLDER}/{0:020}.log")
        put(disk, f"{DATA}/{names.LOG_STARTS}", b"0\n1\nt 0 42\n")
        put(disk, f"{DATA}/{names.RECOVERY_POINTS}", b"0\n1\nt 0 42\n")
        assert 42 == open_store(disk).get(P0).end_offset


class TestTidying:
    def test_remains_go(self) -> None:
        disk = killed(5)
        remains = ["x.deleted", f"{2:020}.log.cleaned", f"{2:020}.index.swap", f"{names.EPOCHS}.tmp", f"{3:020}.index"]
        for name in remains:
            put(disk, f"{FOLDER}/{name}", b"")
        open_store(disk)
        assert set() == set(remains) & set(disk.list_dir(FOLDER))

    def test_snapshots_do_not_pile_up(self) -> None:
        disk = SimDisk()
        for life in range(6):
            store = open_store(disk)
            log = store.create(P0) if life == 0 else store.get(P0)
            fill(log, 1, first=log.end_offset)
            close(store)
        assert [f"{4:020}.snapshot", f"{5:020}.snapshot", f"{6:020}.snapshot"] == [
            name for name in disk.list_dir(FOLDER) if name.endswith(names.SNAPSHOT)
        ]

    def test_progress_counts_bytes(self) -> None:
        seen: list[OpeningProgress] = []
        asyncio.run(make_store(killed(10)).open(seen.append))
        assert [OpeningProgress(partitions_done=1, partitions_total=1, bytes_scanned=790)] == seen


def test_retention_needs_no_timestamps_file() -> None:
    disk = killed(10, 10)
    log = open_store(disk).get(P0)
    assert [TimestampMs(NOW + 30), TimestampMs(NOW + 70), TimestampMs(NOW + 90)] == [
        each.newest_ms for each in log.segments
    ]
