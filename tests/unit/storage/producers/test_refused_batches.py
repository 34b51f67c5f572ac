"""A batch behind one that the disk refused gets the same error, until the first is written or given up."""

import dataclasses

import pytest

from ottla.model.errors import InvalidProducerEpochError, NotEnoughReplicasError, OutOfOrderSequenceError, StorageError
from ottla.model.ids import TimestampMs
from ottla.sim.disk import SimDisk
from ottla.storage.log import Appended, Log
from ottla.storage.producers.refused_batches import PRODUCERS_MAX, REMEMBERED_MS
from ottla.storage.segments.scanner import DamagedSegmentError
from tests.unit.storage.rig import CONFIG, EPOCH, NOW, batch, new_log

LAST_SEQUENCE = 2**31 - 1


class RefusingLog:
    """A log on a disk that refuses writes when it is told to."""

    def __init__(self, segment_bytes: int = CONFIG.segment_bytes) -> None:
        self.disk = SimDisk()
        self.log: Log = new_log(self.disk, dataclasses.replace(CONFIG, segment_bytes=segment_bytes))

    def write(self, *sequences: int, producer_id: int = 7, epoch: int = 0, after_ms: int = 0) -> list[int | type]:
        """Appends a batch with each of these sequences at once; the offset of each, or the kind of its error."""
        batches = [batch(producer_id=producer_id, epoch=epoch, sequence=each) for each in sequences]
        outcomes = self.log.append(batches, leader_epoch=EPOCH, now=TimestampMs(NOW + after_ms))
        return [each.base_offset if isinstance(each, Appended) else type(each) for each in outcomes]

    def write_in_vain(self, *sequences: int, producer_id: int = 7, epoch: int = 0, after_ms: int = 0) -> None:
        self.disk.make_read_only()
        told = self.write(*sequences, producer_id=producer_id, epoch=epoch, after_ms=after_ms)
        self.disk.heal()
        assert [StorageError] * len(sequences) == told


@pytest.fixture
def rig() -> RefusingLog:
    return RefusingLog()


def test_a_gap_behind_a_refused_batch(rig: RefusingLog) -> None:
    assert [0, 1, 2] == rig.write(424, 425, 426)
    rig.write_in_vain(427)
    assert [StorageError, StorageError] == rig.write(428, 429)
    assert [0] == rig.write(424), "a repeated batch is recognised"
    assert [3, 4, 5] == rig.write(427, 428, 429)
    assert [OutOfOrderSequenceError] == rig.write(431)


def test_what_others_write_meanwhile_changes_nothing(rig: RefusingLog) -> None:
    assert [0] == rig.write(0)
    rig.write_in_vain(1)
    assert [1] == rig.write(0, producer_id=8)
    assert [OutOfOrderSequenceError, StorageError] == [*rig.write(2, producer_id=8), *rig.write(2)]
    assert [2, 3] == rig.write(1, 2)


def test_the_first_batch_of_a_producer(rig: RefusingLog) -> None:
    """The log does not know the producer yet, and would take any sequence for its first one."""
    rig.write_in_vain(0)
    assert [StorageError] == rig.write(1)
    assert [0, 1] == rig.write(0, 1)


def test_the_first_refused_batch_counts(rig: RefusingLog) -> None:
    assert [0] == rig.write(0)
    rig.write_in_vain(1, 2)
    rig.write_in_vain(3)
    assert [StorageError, 1, 2, 3] == rig.write(2, 1, 2, 3)


def test_a_segment_that_cannot_be_started(rig: RefusingLog) -> None:
    rig = RefusingLog(segment_bytes=100)
    assert [0] == rig.write(0)
    rig.write_in_vain(1)
    assert [StorageError] == rig.write(2)
    assert [1, 2] == rig.write(1, 2)


def test_a_new_epoch_begins_again(rig: RefusingLog) -> None:
    assert [0] == rig.write(0)
    rig.write_in_vain(1)
    assert [OutOfOrderSequenceError] == rig.write(2, epoch=1)
    assert [1] == rig.write(0, epoch=1)
    assert [InvalidProducerEpochError] == rig.write(1)
    assert [2] == rig.write(1, epoch=1)


def test_sequences_that_wrap_around(rig: RefusingLog) -> None:
    assert [0] == rig.write(LAST_SEQUENCE - 1)
    rig.write_in_vain(LAST_SEQUENCE)
    assert [StorageError, StorageError] == rig.write(0, 1)
    assert [1, 2, 3] == rig.write(LAST_SEQUENCE, 0, 1)
    rig.write_in_vain(2)
    assert [StorageError] == rig.write(3)


def test_a_batch_that_was_given_up_is_a_gap(rig: RefusingLog) -> None:
    assert [0] == rig.write(0)
    rig.write_in_vain(1)
    assert [StorageError] == rig.write(2, after_ms=REMEMBERED_MS)
    assert [OutOfOrderSequenceError] == rig.write(2, after_ms=REMEMBERED_MS + 1)
    assert {} == rig.log.refused.by_producer


def test_a_clock_that_is_set_back_does_not_keep_it(rig: RefusingLog) -> None:
    assert [0] == rig.write(0)
    rig.write_in_vain(1, after_ms=10 * REMEMBERED_MS)
    assert [OutOfOrderSequenceError] == rig.write(2)


def test_another_kind_of_refusal(rig: RefusingLog) -> None:
    assert [0] == rig.write(0)
    rig.log.refused.note(batch(producer_id=7, sequence=1), NotEnoughReplicasError("too few replicas"), NOW)
    assert [NotEnoughReplicasError, 1, 2] == rig.write(2, 1, 2)


def test_a_write_that_meets_damage(rig: RefusingLog) -> None:
    assert [0] == rig.write(0)
    rig.log.refused.note(batch(producer_id=7, sequence=1), DamagedSegmentError("/data/t-0/0.log", 7, "no batch"), NOW)
    assert [StorageError, 1, 2] == rig.write(2, 1, 2)


def test_producers_without_sequences_are_not_remembered(rig: RefusingLog) -> None:
    rig.disk.make_read_only()
    rig.log.append([batch(), batch()], leader_epoch=EPOCH, now=NOW)
    assert {} == rig.log.refused.by_producer


def test_memory_is_bounded_by_what_was_refused_lately(rig: RefusingLog) -> None:
    for producer_id in range(100):
        rig.write_in_vain(0, producer_id=producer_id, after_ms=producer_id * 1000)
    assert REMEMBERED_MS // 1000 + 1 == len(rig.log.refused.by_producer)


def test_memory_is_bounded_by_a_number_of_producers(rig: RefusingLog) -> None:
    rig.write_in_vain(0, producer_id=0)
    for producer_id in range(1, PRODUCERS_MAX + 1):
        rig.write_in_vain(0, producer_id=producer_id)
    assert [*range(1, PRODUCERS_MAX + 1)] == list(rig.log.refused.by_producer)
