"""Problems of a log are recorded and reported; a failed log is opened again, a damaged one is set aside."""

import asyncio
from collections.abc import Callable

import pytest

from ottla.model.errors import CorruptError, OttlaError, StorageError
from ottla.model.ids import Offset
from ottla.sim.disk import SimDisk
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from ottla.storage.log_health import LogHealth
from ottla.storage.log_store import LogStore
from tests.unit.storage.rig import (
    DATA,
    NOW,
    P0,
    P1,
    append,
    batch,
    close,
    disk_of,
    fill,
    flipped,
    image_of,
    open_store,
    put,
    values,
)

FIRST = f"{DATA}/t-0/{0:020}.log"


def numbered(count: int) -> list[bytes | None]:
    return [b"value %04d" % number for number in range(count)]


def a_store(disk: SimDisk) -> tuple[LogStore, list[str]]:
    told: list[str] = []
    return open_store(disk, on_trouble=lambda: told.append("trouble")), told


@pytest.mark.parametrize("batches", [1, 2])
def test_a_write_that_is_refused_is_told_once_and_forgotten_when_one_succeeds(batches: int) -> None:
    disk = SimDisk()
    store, told = a_store(disk)
    log = store.create(P0)
    fill(log, 2)
    disk.make_read_only()
    for _ in range(3):
        refused = [batch(b"x") for _ in range(batches)]
        outcome, *others = log.append(refused, leader_epoch=log.epochs.latest, now=store._clock.now_ms())
        assert isinstance(outcome, StorageError)
        assert [outcome] * (batches - 1) == others
    assert (["trouble"], True) == (told, log.health.is_sound)
    assert str(outcome) == str(log.health.trouble)
    assert log.health.refusal is not None
    assert log.health.refusal.__traceback__ is None, "it would keep files open"
    disk.heal()
    append(log, *(batch(b"value %04d" % number) for number in range(2, 2 + batches)))
    assert log.health.trouble is None
    assert numbered(2 + batches) == values(log)


def test_a_followers_write_that_is_refused_is_told_and_forgotten_in_the_same_way() -> None:
    disk = SimDisk()
    store, told = a_store(disk)
    log = store.create(P0)
    run = memoryview(bytes(batch(b"value 0000", leader_epoch=3).buffer))
    disk.make_read_only()
    for _ in range(3):
        with pytest.raises(StorageError):
            log.append_as_follower(run, now=NOW)
    assert (["trouble"], True, True) == (told, log.health.is_sound, log.health.refusal is not None)
    disk.heal()
    log.append_as_follower(run, now=NOW)
    assert (log.health.trouble, 1) == (None, log.end_offset)


def test_the_worst_is_told_and_only_what_can_be_read_is_sound() -> None:
    health = LogHealth(lambda: None)
    assert (None, True) == (health.trouble, health.is_sound)
    health.note_refusal(StorageError("no room"))
    assert ("no room", True) == (str(health.trouble), health.is_sound)
    health.note_damage(CorruptError("rotten"))
    assert ("rotten", False) == (str(health.trouble), health.is_sound)
    health.fail(StorageError("dead"))
    assert ("dead", False) == (str(health.trouble), health.is_sound)
    failed = LogHealth(lambda: None)
    failed.fail(StorageError("dead"))
    assert not failed.is_sound


def test_what_the_opening_came_across_is_damage_from_the_beginning() -> None:
    disk = SimDisk()
    store = open_store(disk)
    fill(store.create(P0), 8)
    for log in store:
        log.flush()
    store.checkpoints.save()
    image = image_of(disk)
    # Without a clean shutdown the last segment is scanned; all of it had been flushed.
    last = f"{DATA}/t-0/{4:020}.log"
    store, _ = a_store(disk_of({**image, last: flipped(image[last], 70, 0)}))
    log = store.get(P0)
    assert (False, False) == (log.health.is_sound, store.is_intact)
    assert f"{last}, byte 0" in str(log.health.trouble)


@pytest.mark.parametrize(
    "come_across",
    [
        lambda log: log.read(log.start_offset, 1000),
        lambda log: log.find_timestamp(NOW),
        lambda log: (log.advance_start(Offset(1)), log.largest_timestamp(), log.find_timestamp(NOW)),
    ],
    ids=["read", "search", "search behind the start"],
)
def test_a_batch_that_has_rotten_is_noted_by_whoever_comes_across_it(come_across: Callable[[Log], object]) -> None:
    disk = SimDisk()
    store = open_store(disk)
    fill(store.create(P0), 8)
    store.note_intact()
    close(store)
    rotten = bytearray(disk.read(FIRST))
    for place in range(70, 300, 80):
        rotten[place] ^= 1
    put(disk, FIRST, bytes(rotten))
    store, told = a_store(disk)
    log = store.get(P0)
    assert (None, True) == (log.health.damage, store.is_intact), "after a clean shutdown nothing is scanned"
    with pytest.raises(CorruptError) as raised:
        come_across(log)
    assert (["trouble"], False, False) == (told, log.health.is_sound, store.is_intact)
    assert str(log.health.trouble).startswith(f"{raised.value}; offsets ")
    with pytest.raises(CorruptError):
        come_across(log)
    assert ["trouble"] == told, "what is known is not told again"


def test_one_that_could_not_be_opened_is_set_aside_and_begun_anew() -> None:
    disk = SimDisk()
    store = open_store(disk)
    fill(store.create(P0), 8)
    fill(store.create(P1), 3)
    for log in store:
        log.flush()
    store.checkpoints.save()
    image = image_of(disk)
    last = max(path for path in image if path.startswith(f"{DATA}/t-0/") and path.endswith(".log"))
    disk = disk_of(image)
    disk.break_path(last)
    store, _ = a_store(disk)
    assert ({P0}, False) == (set(store.offline), store.is_intact)
    kept = store.set_aside(P0)
    assert names.is_doomed(kept) is False
    assert kept.endswith("-stray")
    log = store.create(P0)
    assert ({}, 0, 3) == (store.offline, log.end_offset, store.get(P1).end_offset)
    fill(log, 2)
    close(store)


def test_one_that_failed_is_read_anew_up_to_where_it_was_flushed() -> None:
    disk = SimDisk()
    store, told = a_store(disk)
    log = store.create(P0)
    fill(log, 5)
    log.flush()
    fill(log, 4, first=5)
    log.fail(OSError(5, "Input/output error", FIRST), "flush")
    assert ["trouble"] == told
    with pytest.raises(OttlaError, match="the partition is offline"):
        fill(log, 1)
    again = asyncio.run(store.reopen(P0))
    assert (again, 1, 5, 5) == (store.get(P0), len(store), again.end_offset, again.high_watermark)
    assert numbered(5) == values(again)
    fill(again, 2, first=5)
    close(store)
    store = open_store(disk)
    assert numbered(7) == values(store.get(P0))


def test_one_that_cannot_be_read_anew_stays_as_it_is() -> None:
    disk = SimDisk()
    store, _ = a_store(disk)
    log = store.create(P0)
    fill(log, 5)
    log.flush()
    log.fail(OSError(5, "Input/output error", FIRST), "flush")
    disk.remove(max(f"{DATA}/t-0/{name}" for name in disk.list_dir(f"{DATA}/t-0") if name.endswith(".log")))
    with pytest.raises(OttlaError):
        asyncio.run(store.reopen(P0))
    assert log is store.find(P0)
    assert store.set_aside(P0).endswith("-stray")
    assert 0 == store.create(P0).end_offset


@pytest.mark.parametrize("content", ["garbage", "torn"])
def test_what_is_cut_off_at_the_start_counts_as_lost_until_it_is_no_longer_missed(content: str) -> None:
    disk = SimDisk()
    store = open_store(disk)
    fill(store.create(P0), 3)
    fill(store.create(P1), 3)
    store.note_intact()
    whole = disk.read(FIRST)
    put(disk, FIRST, whole + b"\x02" * 99 if content == "garbage" else whole[:-5])
    disk = disk.kill()
    store = open_store(disk)
    assert (3 if content == "garbage" else 2, 3) == (store.get(P0).end_offset, store.get(P1).end_offset)
    assert (True, False) == (store.has_lost, store.is_intact)
    disk = disk.kill()
    store = open_store(disk)
    assert not store.is_intact, "the next start finds nothing wrong, and yet something is missing"
    store.note_intact()
    assert open_store(disk.kill()).is_intact


def test_a_log_that_is_whole_after_a_kill_has_lost_nothing() -> None:
    disk = SimDisk()
    store = open_store(disk)
    fill(store.create(P0), 6)
    store.note_intact()
    store = open_store(disk.kill())
    assert (numbered(6), True) == (values(store.get(P0)), store.is_intact)
