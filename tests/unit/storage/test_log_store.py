"""Many logs over several data dirs: opening in parallel, creating, deleting, and putting aside what is broken."""

import asyncio

import pytest

from ottla.env.real_disk import RealDisk
from ottla.model.errors import StorageError, UnknownPartitionError
from ottla.model.ids import Offset, TimestampMs, TopicPartition
from ottla.sim.clock import SimClock
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import read_offsets
from ottla.storage.log_store import OpeningProgress
from tests.unit.storage.rig import (
    DATA,
    NOW,
    P0,
    P1,
    close,
    disk_of,
    fill,
    flipped,
    image_of,
    make_store,
    open_store,
    put,
    values,
)

OTHER = "/other"


def numbered(count: int) -> list[bytes | None]:
    return [b"value %04d" % number for number in range(count)]


def test_creating_spreads_over_the_dirs() -> None:
    store = open_store(SimDisk(), [DATA, OTHER])
    for number in range(6):
        store.create(TopicPartition("t", number), "topic-id")
    assert [3, 3] == [sum(log.folder.startswith(path) for log in store) for path in (DATA, OTHER)]
    assert store.get(P0) is store.create(P0)
    assert ("topic-id", 6) == (store.identity(P0).topic_id, len(store))


def test_partitions_that_are_deleted_or_set_aside_are_forgotten() -> None:
    store = open_store(SimDisk())
    for _ in range(3):
        for partition in (P0, P1):
            store.create(partition, "topic-id")
        store.delete(P0)
        store.set_aside(P1)
    assert {} == store.dirs[0].identities


def test_unknown_partitions() -> None:
    with pytest.raises(UnknownPartitionError, match="t-0 has no log on this broker"):
        open_store(SimDisk()).get(P0)


def test_two_hundred_partitions_with_progress(tmp_path_factory: pytest.TempPathFactory) -> None:
    disk, path = RealDisk(), str(tmp_path_factory.mktemp("data"))
    store = open_store(disk, [path])
    for number in range(200):
        fill(store.create(TopicPartition("t", number)), 3)
    rotten = f"{store.get(P1).folder}/{0:020}.log"
    for log in store:
        log.flush()
    store.checkpoints.save()
    store.dirs[0].unlock()
    put(disk, rotten, flipped(disk.read(rotten), 8, 4))

    seen: list[OpeningProgress] = []
    store = make_store(disk, [path])
    asyncio.run(store.open(seen.append))
    assert list(range(1, 201)) == [progress.partitions_done for progress in seen]
    assert {200} == {progress.partitions_total for progress in seen}
    assert 200 * 237 - 79 == seen[-1].bytes_scanned
    assert {} == store.offline
    assert f"{rotten}, byte 0: " in str(store.get(P1).health.damage)
    assert [P1] == [log.partition for log in store if log.health.damage is not None]
    assert numbered(3) == values(store.get(TopicPartition("t", 199)))
    close(store)


def test_a_second_broker() -> None:
    disk = SimDisk()
    store = open_store(disk, [DATA, OTHER])
    with pytest.raises(StorageError, match=f"{OTHER} is in use by the first broker"):
        open_store(disk, ["/third", OTHER], owner="the second broker")
    close(store)
    close(open_store(disk, ["/third", OTHER], owner="the second broker"))


def test_a_store_that_could_not_be_opened_writes_nothing_when_it_is_closed() -> None:
    """The data dir belongs to the broker that has its lock: a clean-shutdown mark would be a lie, and empty checkpoints
    would take its log start offsets away."""
    disk = SimDisk()
    first = open_store(disk)
    fill(first.create(P0), 10)
    first.checkpoints.save()
    before = image_of(disk)
    second = make_store(disk, owner="the second broker")
    with pytest.raises(StorageError, match=f"{DATA} is in use"):
        asyncio.run(second.open())
    close(second)
    assert before == image_of(disk)
    with pytest.raises(StorageError, match=f"{DATA} is in use"):
        open_store(disk, owner="the third broker")


def test_a_store_of_which_a_part_was_opened_keeps_the_checkpoints_of_all_logs() -> None:
    disk = SimDisk()
    store = open_store(disk)
    for partition in (P0, P1):
        fill(store.create(partition), 10)
    close(store)
    checkpoints = {path: content for path, content in image_of(disk).items() if path.endswith("-checkpoint")}

    def stop(progress: OpeningProgress) -> None:
        raise RuntimeError("stopped")

    store = make_store(disk)
    with pytest.raises(RuntimeError, match="stopped"):
        asyncio.run(store.open(stop))
    close(store)
    after = image_of(disk)
    assert checkpoints == {path: content for path, content in after.items() if path.endswith("-checkpoint")}
    assert f"{DATA}/{names.CLEAN_SHUTDOWN}" not in after
    store = open_store(disk)
    assert [10, 10] == [store.get(each).end_offset for each in (P0, P1)]


def test_an_abandoned_store_can_be_opened_again_and_is_recovered() -> None:
    disk = SimDisk()
    store = open_store(disk)
    fill(store.create(P0), 10)
    store.abandon()
    assert f"{DATA}/{names.CLEAN_SHUTDOWN}" not in image_of(disk)
    store = open_store(disk, owner="the next broker")
    assert (False, 10) == (store.dirs[0].is_clean, store.get(P0).end_offset)


def test_an_offline_partition_keeps_its_recovery_point() -> None:
    """Or the damage below it would be cut at the next start, as if it had never been flushed."""
    disk = SimDisk()
    store = open_store(disk)
    for partition in (P0, P1):
        fill(store.create(partition), 10)
        store.get(partition).flush()
    store.checkpoints.save()
    image = image_of(disk)
    path = max(path for path in image if path.startswith(f"{DATA}/t-0/") and path.endswith(names.LOG))
    disk = disk_of(image)
    disk.break_path(path)
    for _ in range(3):
        store = open_store(disk)
        assert [P0] == list(store.offline)
        store.checkpoints.save()
        close(store)
        assert {P0: 10, P1: 10} == read_offsets(disk, f"{DATA}/{names.RECOVERY_POINTS}")
        assert not disk.exists(f"{DATA}/{names.CLEAN_SHUTDOWN}")
    disk.heal(path)
    assert numbered(10) == values(open_store(disk).get(P0))


class TestDeleting:
    def test_renamed_at_once_and_unlinked_later(self) -> None:
        disk, clock = SimDisk(), SimClock()
        store = open_store(disk, clock=clock)
        log = store.create(P0)
        fill(log, 3)
        found = log.read(Offset(0), 10**6)
        store.delete(P0)
        assert found is not None
        assert found.size == len(found.file.read_at(0, found.size))
        with pytest.raises(UnknownPartitionError):
            store.get(P0)
        (doomed,) = (name for name in disk.list_dir(DATA) if names.is_doomed(name))
        assert 0 == store.trash.sweep(clock.now_ms())
        assert 1 == store.trash.sweep(TimestampMs(clock.now_ms() + 1000))
        assert doomed not in disk.list_dir(DATA)

    def test_a_restart_unlinks_too(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 1)
        store.delete(P0)
        open_store(disk := disk.kill())
        assert not [name for name in disk.list_dir(DATA) if names.is_doomed(name)]

    def test_a_new_one_of_the_same_name_begins_at_zero(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 10)
        store.get(P0).advance_start(Offset(6))
        store.get(P0).flush()
        store.checkpoints.save()
        store.delete(P0)
        assert 0 == store.create(P0).end_offset
        again = open_store(disk.kill())
        assert ({}, 0, 0) == (again.offline, again.get(P0).start_offset, again.get(P0).end_offset)

    def test_a_disk_that_refuses(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        store.create(P0)
        disk.make_read_only()
        with pytest.raises(StorageError, match=f"{DATA}/t-0: cannot rename: Read-only"):
            store.delete(P0)


class TestShuttingDown:
    def test_clean(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 10)
        close(store)
        again = open_store(disk)
        assert again.dirs[0].is_clean
        assert 10 == again.get(P0).high_watermark

    def test_a_log_that_failed_costs_the_mark(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 2)
        fill(store.create(P1), 2)
        store.get(P0).fail(OSError(5, "Input/output error", "x.log"), "flush")
        close(store)
        assert not disk.exists(f"{DATA}/{names.CLEAN_SHUTDOWN}")
        again = open_store(disk)
        assert numbered(2) == values(again.get(P0)) == values(again.get(P1))

    def test_a_high_watermark_within_the_log(self) -> None:
        disk = SimDisk()
        store = open_store(disk)
        fill(store.create(P0), 4)
        close(store)
        for checkpointed, expected in ((2, 2), (400, 4)):
            put(disk, f"{DATA}/{names.HIGH_WATERMARKS}", b"0\n1\nt 0 %d\n" % checkpointed)
            assert expected == open_store(disk_of(image_of(disk))).get(P0).high_watermark


def test_time_is_the_clocks() -> None:
    store = open_store(SimDisk())
    assert NOW == store.create(P0).segments.active.created_ms
