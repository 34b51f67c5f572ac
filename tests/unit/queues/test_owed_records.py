"""What a companion's partition owes, as a tool finds it that reads the log."""

import tracemalloc

import pytest

from ottla.model.ids import Offset
from ottla.model.queue_names import (
    CANCEL,
    DELAY_CANCEL,
    DELAY_ID,
    DELAY_REPLACE,
    DUE_MS,
    HALF_ID,
    HALF_STATE,
    RELEASE,
)
from ottla.queues.owed_records import Owed, OwedRecords
from ottla.queues.progress_records import Action, Done, Plan, ProgressRecord, SinkProgress, encode
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.control import marker_batch, progress_batch
from ottla.records.layout import Marker

Record = dict[str, str]


class Log:
    """Batches one behind the other, read as they come."""

    def __init__(self, start: int = 0) -> None:
        self.owed = OwedRecords(Offset(start))
        self._batches: list[Batch] = []
        self._end = start

    def park(self, *records: Record, producer_id: int = -1, timestamp: int = 5) -> "Log":
        builder = BatchBuilder(
            base_offset=self._end,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
        for headers in records:
            builder.append(timestamp, b"k", b"v", [(name, value.encode()) for name, value in headers.items()])
        return self._add(builder.build())

    def end(self, marker: Marker, producer_id: int) -> "Log":
        return self._add(
            marker_batch(
                marker,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp=5,
                base_offset=self._end,
            )
        )

    def note(self, *records: ProgressRecord) -> "Log":
        batch = Batch(progress_batch([encode(each) for each in records], 5))
        batch.stamp(Offset(self._end), 0)
        return self._add(batch.buffer)

    def _add(self, content: bytes | memoryview) -> "Log":
        batch = Batch(content)
        self.owed.on_batch(batch)
        self._batches.append(batch)
        self._end = int(batch.next_offset)
        return self

    @property
    def found(self) -> list[Owed]:
        return [each for batch in self._batches for each in self.owed.owed_in(batch)]

    @property
    def entries(self) -> list[tuple[int, int]]:
        return sorted((each.due_ms, each.offset) for each in self.found)


def due(due_ms: int, **others: str) -> Record:
    return {DUE_MS: str(due_ms), **others}


def plan(*offsets: int, action: Action = Action.DELIVER, again_ms: int = -1) -> Plan:
    runs = tuple(number for offset in offsets for number in (offset, 1))
    return Plan("t", 0, 7, 0, 0, runs, action, "", again_ms)


def test_parked_records_are_owed_in_the_order_of_delivery() -> None:
    assert [(10, 2), (20, 0), (20, 1)] == Log().park(due(20), due(20)).park(due(10)).entries


def test_what_is_planned_is_not_owed() -> None:
    log = Log().park(due(10), due(20), due(30)).note(plan(0, 2))
    assert [(20, 1)] == log.entries
    assert [(20, 1)] == log.note(Done((SinkProgress("t", 0, 7, 0, 2),))).entries


def test_a_question_leaves_its_record_owed_at_a_later_time() -> None:
    assert [(99, 0)] == Log().park(due(10)).note(plan(0, action=Action.ASK, again_ms=99)).entries


def test_transactions() -> None:
    log = Log().park(due(10), producer_id=1).park(due(20), producer_id=2).park(due(30), producer_id=3)
    assert [] == log.entries
    assert [(10, 0)] == log.end(Marker.COMMIT, 1).end(Marker.ABORT, 2).entries


def test_cancelled_records_are_not_owed() -> None:
    log = Log().park(due(10, **{DELAY_ID: "a"}), due(20, **{DELAY_ID: "b"}), due(30)).park({DELAY_CANCEL: "a"})
    assert [(20, 1), (30, 2)] == log.entries
    assert [(5, 4), (20, 1), (30, 2)] == log.park(due(5, **{DELAY_ID: "a"})).entries


def test_a_cancel_of_an_aborted_transaction_does_not_count() -> None:
    log = Log().park(due(10, **{DELAY_ID: "a"})).park({DELAY_CANCEL: "a"}, producer_id=1)
    assert [(10, 0)] == log.end(Marker.ABORT, 1).entries


def test_a_replacement_takes_the_place_of_earlier_records() -> None:
    log = Log().park(due(10, **{DELAY_ID: "a"})).park(due(20, **{DELAY_ID: "a", DELAY_REPLACE: "true"}))
    assert [(20, 1)] == log.entries
    assert [Owed(20, 1, b"a")] == log.found


def test_half_messages_that_were_rolled_back_are_not_owed() -> None:
    log = Log().park(due(10, **{HALF_ID: "a"}), due(20, **{HALF_ID: "b"}))
    assert [(20, 1)] == log.park({HALF_ID: "a", HALF_STATE: "rollback"}).entries


def test_other_control_batches_and_gaps_are_passed_over() -> None:
    log = Log(start=5).park(due(10))
    log._end = 9
    log.end(Marker.COMMIT, 4).park(due(20))
    assert [(10, 5), (20, 10)] == log.entries
    assert 11 == log.owed.next_offset


def test_batches_behind_what_was_read_first_and_delivered_ones_are_not_looked_into() -> None:
    log = Log().park(due(10), due(20)).note(plan(0)).park(due(30))
    later = Log(start=4).park(due(40))._batches[0]
    assert ([], 1, 4) == (log.owed.owed_in(later), log.owed.first_owed, log.owed.next_offset)
    log.note(plan(1))
    assert (3, [Owed(30, 3)]) == (log.owed.first_owed, log.found)


@pytest.mark.slow
def test_nothing_of_parked_records_is_kept() -> None:
    """One bit for each of 200,000 records with an id, and for each cancelled id what a broker would keep."""
    tracemalloc.start()
    try:
        log = Log()
        for base in range(0, 200_000, 1000):
            log.park(*(due(base + at, **{DELAY_ID: f"id-{base + at}"}) for at in range(1000)))
            log._batches.clear()
        # The first record stays owed; cancels behind it are remembered, up to the broker's limit.
        held, _ = tracemalloc.get_traced_memory()
        assert held < 1_000_000
    finally:
        tracemalloc.stop()


def test_released_records_are_due_when_they_were_released_and_cancelled_ones_are_not_owed() -> None:
    log = Log().park({DUE_MS: "90"}, {DUE_MS: "91"}, {DUE_MS: "92"}, {DUE_MS: "93"})
    log.park({DUE_MS: "40", RELEASE: "1"}, {CANCEL: "2"}, {DUE_MS: "40", RELEASE: "1"}, {DUE_MS: "93", RELEASE: "3"})
    assert [(40, 1), (90, 0), (93, 3)] == log.entries
    log.park({DUE_MS: "41", RELEASE: "2"}, {DUE_MS: "41", RELEASE: "5"}, {DUE_MS: "41", RELEASE: "77"})
    assert [(40, 1), (90, 0), (93, 3)] == log.entries, "they are cancelled, an instruction, and not there"


def test_instructions_of_a_transaction_count_when_it_is_committed() -> None:
    log = Log().park({DUE_MS: "90"}, {DUE_MS: "91"})
    log.park({DUE_MS: "40", RELEASE: "0"}, {CANCEL: "1"}, {DUE_MS: "95"}, producer_id=7)
    log.park({DUE_MS: "40", RELEASE: "4"})
    assert [(90, 0), (91, 1)] == log.entries, "nor can a record of an open transaction be released"
    assert [(40, 0), (95, 4)] == log.end(Marker.COMMIT, 7).entries


def test_a_log_may_start_within_a_batch() -> None:
    log = Log().park({DUE_MS: "90"}, {DUE_MS: "91"}, {DUE_MS: "92"})
    log.owed = OwedRecords(Offset(1))
    log._batches.clear()
    log._end = 0
    assert [(91, 1), (92, 2)] == log.park({DUE_MS: "90"}, {DUE_MS: "91"}, {DUE_MS: "92"}).entries
