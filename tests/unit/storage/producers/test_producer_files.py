"""Bringing producers back from snapshots and batches."""

from ottla.model.ids import Offset
from ottla.records.layout import Marker
from ottla.sim.disk import SimDisk
from ottla.storage.log import Log
from ottla.storage.producers.producer_files import (
    load_producers,
    remove_snapshots_after,
    snapshot_offsets,
    write_snapshot,
)
from ottla.storage.producers.producer_state import ProducerStates
from tests.unit.storage.rig import DATA, P0, append, batch, close, mark, open_store, placed, put

FOLDER = f"{DATA}/t-0"


def written(disk: SimDisk) -> Log:
    """Ten idempotent batches with a transaction among them, in three segments."""
    log = open_store(disk).create(P0)
    for number in range(5):
        append(log, batch(producer_id=9, sequence=number))
    append(log, batch(producer_id=4, sequence=0, transactional=True))
    append(log, batch(producer_id=9, sequence=5))
    mark(log, Marker.ABORT, 4)
    append(log, batch(producer_id=4, sequence=1, transactional=True), batch(producer_id=9, sequence=6))
    return log


def summary(producers: ProducerStates) -> set[tuple[int, int, int | None]]:
    return {(entry.producer_id, entry.last_sequence, entry.transaction_start) for entry in producers}


def test_as_of_every_offset_with_and_without_snapshots() -> None:
    disk = SimDisk()
    log = written(disk)
    assert len(log.segments) > 2
    expected = []
    for end in range(11):
        producers = load_producers(disk, FOLDER, list(log.segments), Offset(end))
        producers.check()
        expected.append(summary(producers))
    assert set() == expected[0]
    assert {(9, 4, None), (4, 0, 5)} == expected[6]
    assert {(9, 6, None), (4, 1, 8)} == expected[10] == summary(log.producers)

    assert snapshot_offsets(disk, FOLDER)
    remove_snapshots_after(disk, FOLDER, Offset(-1))
    assert [] == snapshot_offsets(disk, FOLDER)
    assert expected == [summary(load_producers(disk, FOLDER, list(log.segments), Offset(end))) for end in range(11)]


def test_after_a_restart_a_retry_of_any_remembered_batch_is_known() -> None:
    disk = SimDisk()
    store = open_store(disk)
    append(store.create(P0), *(batch(producer_id=9, sequence=number) for number in range(7)))
    close(store)
    log = open_store(disk).get(P0)
    retries = [batch(producer_id=9, sequence=number) for number in range(2, 7)]
    assert [placed(at, at, is_duplicate=True) for at in range(2, 7)] == append(log, *retries)


def test_a_damaged_snapshot_is_passed_over_and_removed() -> None:
    disk = SimDisk()
    log = written(disk)
    newest = snapshot_offsets(disk, FOLDER)[-1]
    put(disk, f"{FOLDER}/{newest:020}.snapshot", b"rotten")
    assert summary(log.producers) == summary(load_producers(disk, FOLDER, list(log.segments), Offset(10)))
    assert newest not in snapshot_offsets(disk, FOLDER)


def test_snapshots_of_a_future_are_not_used() -> None:
    disk = SimDisk()
    log = written(disk)
    write_snapshot(disk, FOLDER, Offset(99), log.producers)
    assert set() == summary(load_producers(disk, FOLDER, list(log.segments), Offset(0)))
    remove_snapshots_after(disk, FOLDER, Offset(8))
    assert max(snapshot_offsets(disk, FOLDER)) <= 8
