"""Sequences, epochs and transactions of producers: what is refused, what is a retry, what stays open."""

import pytest

from ottla.model.errors import (
    CoordinatorFencedError,
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
)
from ottla.model.ids import Offset, ProducerId, TimestampMs
from ottla.model.invariants import InvariantViolation
from ottla.records.layout import Marker
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.producer_state import Appends, ProducerStates
from tests.unit.storage.rig import NOW, batch

LAST_SEQUENCE = 2**31 - 1


class Log:
    """Producers, and the offset that the next record gets."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.end = 0

    def write(
        self, sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 7, transactional: bool = False
    ) -> int:
        made = batch(
            *[b"v"] * count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=transactional
        )
        pending = Appends()
        earlier = self.producers.duplicate_of(made, pending)
        if earlier is not None:
            return earlier.first_offset
        self.producers.prepare(made, pending, Offset(self.end), check=True)
        self.producers.apply(pending)
        self.producers.check()
        self.end += count
        return self.end - count

    def mark(
        self,
        marker: Marker,
        *,
        epoch: int = 0,
        producer_id: int = 7,
        coordinator_epoch: int = 1,
        must_exceed_epoch: bool = False,
    ) -> None:
        made = batch(producer_id=producer_id, epoch=epoch, transactional=True, control=True)
        pending = Appends()
        self.producers.prepare_marker(
            made,
            marker,
            coordinator_epoch,
            pending,
            Offset(self.end),
            check=True,
            must_exceed_epoch=must_exceed_epoch,
        )
        self.producers.apply(pending)
        self.producers.check()
        self.end += 1


@pytest.fixture
def log() -> Log:
    return Log()


class TestSequences:
    def test_in_order(self, log: Log) -> None:
        assert [0, 3, 4] == [log.write(0, count=3), log.write(3), log.write(4)]

    def test_a_producer_nobody_knows_may_begin_anywhere(self, log: Log) -> None:
        assert 0 == log.write(500)
        assert 1 == log.write(501)

    @pytest.mark.parametrize("sequence", [0, 1, 3, 9])
    def test_a_gap_or_a_step_back(self, log: Log, sequence: int) -> None:
        for number in range(8, 10):
            log.write(number - 8)
        with pytest.raises(OutOfOrderSequenceError, match=f"sent sequence {sequence + 10} instead of 2"):
            log.write(sequence + 10)

    def test_the_last_five_are_recognised(self, log: Log) -> None:
        for number in range(6):
            log.write(number)
        assert [1, 2, 3, 4, 5] == [log.write(number) for number in range(1, 6)]
        assert 6 == log.end
        with pytest.raises(OutOfOrderSequenceError):
            log.write(0)

    def test_a_retry_of_another_length_is_none(self, log: Log) -> None:
        log.write(0, count=2)
        with pytest.raises(OutOfOrderSequenceError):
            log.write(0, count=3)
        with pytest.raises(OutOfOrderSequenceError):
            log.write(0)

    def test_wrapping(self, log: Log) -> None:
        log.write(LAST_SEQUENCE - 1, count=2)
        assert 2 == log.write(0)
        wrapping = Log()
        wrapping.write(LAST_SEQUENCE, count=2)
        assert 0 == wrapping.write(LAST_SEQUENCE, count=2)
        assert 2 == wrapping.write(1)

    def test_epochs(self, log: Log) -> None:
        log.write(0)
        with pytest.raises(OutOfOrderSequenceError):
            log.write(1, epoch=1)
        assert 1 == log.write(0, epoch=1)
        with pytest.raises(InvalidProducerEpochError, match="epoch 1 has replaced it"):
            log.write(1, epoch=0)

    def test_within_one_group(self) -> None:
        producers, pending = ProducerStates(), Appends()
        producers.prepare(batch(producer_id=1, sequence=0), pending, Offset(0), check=True)
        again = producers.duplicate_of(batch(producer_id=1, sequence=0), pending)
        assert again is not None
        assert 0 == again.first_offset
        producers.prepare(batch(producer_id=1, sequence=1), pending, Offset(1), check=True)
        assert 0 == len(producers)
        producers.apply(pending)
        entry = producers.get(ProducerId(1))
        assert entry is not None
        assert 1 == entry.last_sequence


class TestTransactions:
    def test_open_until_marked_and_replicated(self, log: Log) -> None:
        log.write(0)
        log.write(0, producer_id=8, transactional=True)
        log.write(0, producer_id=9, transactional=True)
        assert 1 == log.producers.first_unstable_offset
        log.mark(Marker.COMMIT, producer_id=8)
        assert 1 == log.producers.first_unstable_offset
        log.producers.on_high_watermark(Offset(3))
        assert 1 == log.producers.first_unstable_offset
        log.producers.on_high_watermark(Offset(4))
        assert 2 == log.producers.first_unstable_offset
        log.mark(Marker.ABORT, producer_id=9)
        log.producers.on_high_watermark(Offset(5))
        assert log.producers.first_unstable_offset is None

    def test_a_write_outside_it(self, log: Log) -> None:
        log.write(0, transactional=True)
        with pytest.raises(InvalidTransactionStateError, match="open transaction since offset 0"):
            log.write(1)
        log.mark(Marker.COMMIT)
        assert 2 == log.write(1)

    def test_a_marker_without_a_transaction_completes_none(self) -> None:
        pending = Appends()
        producers = ProducerStates()
        made = batch(producer_id=1, transactional=True, control=True)
        producers.prepare_marker(made, Marker.ABORT, 3, pending, Offset(0), check=True)
        assert [] == pending.completed

    def test_fencing(self, log: Log) -> None:
        log.write(0, epoch=2, transactional=True)
        with pytest.raises(InvalidProducerEpochError):
            log.mark(Marker.COMMIT, epoch=1)
        log.mark(Marker.COMMIT, epoch=2, coordinator_epoch=5)
        with pytest.raises(CoordinatorFencedError, match="epoch 5 has taken over"):
            log.mark(Marker.ABORT, epoch=2, coordinator_epoch=4)

    def test_a_late_marker_does_not_end_the_next_transaction_of_a_producer_whose_epoch_grows(self, log: Log) -> None:
        log.write(0, epoch=2, transactional=True)
        log.mark(Marker.COMMIT, epoch=3, must_exceed_epoch=True)
        log.mark(Marker.COMMIT, epoch=3, must_exceed_epoch=True)
        log.write(0, epoch=3, transactional=True)
        with pytest.raises(InvalidProducerEpochError, match="begun another"):
            log.mark(Marker.COMMIT, epoch=3, must_exceed_epoch=True)
        log.producers.on_high_watermark(Offset(log.end))
        assert log.end - 1 == log.producers.first_unstable_offset
        log.mark(Marker.COMMIT, epoch=4, must_exceed_epoch=True)
        log.producers.on_high_watermark(Offset(log.end))
        assert log.producers.first_unstable_offset is None

    def test_a_marker_of_a_new_epoch_resets_the_sequence(self, log: Log) -> None:
        log.write(0, transactional=True)
        log.mark(Marker.ABORT, epoch=1)
        assert 2 == log.write(0, epoch=1, transactional=True)


class TestExpiry:
    def test_silent_ones_go_unless_a_transaction_is_open(self, log: Log) -> None:
        log.write(0)
        log.write(0, producer_id=8, transactional=True)
        assert 0 == log.producers.expire(TimestampMs(NOW + 99), 100)
        assert 1 == log.producers.expire(TimestampMs(NOW + 100), 100)
        assert [8] == [entry.producer_id for entry in log.producers]


def test_a_broken_invariant_is_told(log: Log) -> None:
    log.write(0, transactional=True)
    log.producers._open.clear()
    with pytest.raises(InvariantViolation, match="open transactions"):
        log.producers.check()


def test_a_snapshot_keeps_what_counts(log: Log) -> None:
    for number in range(3):
        log.write(number, epoch=4)
    log.write(0, count=2, producer_id=8, transactional=True)
    log.mark(Marker.COMMIT, producer_id=9, coordinator_epoch=6)
    again = ProducerStates(decode_snapshot("s", encode_snapshot(log.producers)))
    again.check()
    assert 3 == again.first_unstable_offset
    summary = [(e.producer_id, e.epoch, e.last_sequence, e.coordinator_epoch, e.transaction_start) for e in again]
    assert [(7, 4, 2, -1, None), (8, 0, 1, -1, 3), (9, 0, -1, 6, None)] == summary
    assert 2 == Log.write(_continued(again, log.end), 2, epoch=4)


def _continued(producers: ProducerStates, end: int) -> Log:
    log = Log()
    log.producers, log.end = producers, end
    return log
