"""The cancels that a delay queue remembers: those that can still be about a record, and no others."""

from array import array

import pytest

from ottla.model.errors import CancelledIdsError
from ottla.model.ids import TimestampMs, TopicPartition
from ottla.model.queue_names import DELAY_CANCEL, DELAY_ID, DELAY_MS, DELAY_REPLACE
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.gate import Gate
from ottla.queues.kinds.delay_admission import DelayAdmission
from ottla.queues.kinds.delay_queue import Cancel, DelayQueue
from ottla.queues.kinds.kind import Deliver, Drop, Found
from ottla.queues.settled_offsets import SettledOffsets
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.record import Headers, Record

TARGET = TopicPartition("orders", 3)
NOW = TimestampMs(1_000_000)
NONE: "array[int]" = array("q")


def queue(start: int = 0) -> tuple[DelayQueue, SettledOffsets]:
    kind = DelayQueue(TARGET, lambda: DeadLetterPlace(TopicPartition("dlq.orders", 3)))
    settled = SettledOffsets(start)
    kind.begin(settled)
    return kind, settled


def cancel(kind: DelayQueue, *cancels: Cancel) -> None:
    kind.apply(Found(NONE, NONE, cancels))


def record(offset: int, id: bytes) -> Record:
    return Record(offset, NOW, b"key", b"value", ((DELAY_ID, id),))


def test_a_cancel_without_an_owed_record_before_it_is_not_remembered() -> None:
    kind, settled = queue()
    settled.settle(0, 10)
    cancel(kind, Cancel(b"a", 9), Cancel(b"b", 10))
    assert (0, Deliver(TARGET)) == (kind.cancel_count, kind.uniform_verdict())
    # Offset 10 is owed from now on.
    cancel(kind, Cancel(b"a", 11))
    assert (1, None) == (kind.cancel_count, kind.uniform_verdict())
    assert (Drop(), Deliver(TARGET)) == (kind.verdict(record(10, b"a"), NOW), kind.verdict(record(10, b"b"), NOW))


def test_cancels_about_settled_records_are_forgotten_while_others_are_added() -> None:
    kind, settled = queue()
    for offset in range(1, 1_000):
        cancel(kind, Cancel(b"%d" % offset, offset), Cancel(b"again", offset))
        if offset % 100 == 0:
            settled.settle(offset - 100, 100)
        assert kind.cancel_count <= 102
    assert Drop() == kind.verdict(record(998, b"999"), NOW)
    assert (Drop(), Deliver(TARGET)) == (
        kind.verdict(record(998, b"again"), NOW),
        kind.verdict(record(999, b"again"), NOW),
    )
    assert kind.is_full(100)
    settled.settle(900, 99)
    # Room is made when it is needed.
    assert not kind.is_full(100)
    assert 0 == kind.cancel_count


def gated(rules: DelayAdmission, *headers: Headers) -> Batch:
    records = [Record(at, NOW, b"key", b"value", each) for at, each in enumerate(headers)]
    return Gate(rules.admit).admit(Batch(bytearray(build_batch(records))), NOW)


def test_the_gate_asks_before_another_id_is_cancelled_or_replaced() -> None:
    asked: list[bytes] = []

    def check(id: bytes) -> None:
        asked.append(id)
        if id == b"full":
            raise CancelledIdsError("full")

    rules = DelayAdmission(delay_ms=0, delay_max_ms=10_000, check_cancel=check)
    gated(
        rules,
        ((DELAY_CANCEL, b"a"),),
        ((DELAY_ID, b"b"), (DELAY_REPLACE, b"true"), (DELAY_MS, b"1")),
        ((DELAY_ID, b"c"), (DELAY_REPLACE, b"false")),
        ((DELAY_ID, b"d"),),
        (),
    )
    assert [b"a", b"b"] == asked
    with pytest.raises(CancelledIdsError):
        gated(rules, ((DELAY_CANCEL, b"full"),))
