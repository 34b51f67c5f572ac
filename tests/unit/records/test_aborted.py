"""The rule of aborted transactions."""

from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.control import marker_batch
from ottla.records.layout import Marker
from ottla.records.record import Record


def data(offset: int, producer_id: int, *, transactional: bool = True) -> Batch:
    return Batch(build_batch([Record(offset, 0, None, b"")], producer_id=producer_id, transactional=transactional))


def marker(offset: int, producer_id: int, kind: Marker) -> Batch:
    return Batch(
        marker_batch(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=offset
        )
    )


def test_nothing_aborted() -> None:
    aborted = AbortedTransactions([])
    assert not aborted
    assert not aborted.covers(data(5, 1))


def test_from_the_first_offset_to_the_marker() -> None:
    aborted = AbortedTransactions([(1, 10)])
    seen = [data(9, 1), data(10, 1), data(11, 2), data(12, 1), marker(13, 1, Marker.ABORT), data(14, 1)]
    assert [False, True, False, True, False, False] == [aborted.covers(batch) for batch in seen]
    assert not aborted


def test_several_of_one_producer_in_any_order() -> None:
    aborted = AbortedTransactions([(1, 30), (1, 10)])
    seen = [data(10, 1), marker(11, 1, Marker.ABORT), data(20, 1), marker(21, 1, Marker.COMMIT), data(30, 1)]
    assert [True, False, False, False, True] == [aborted.covers(batch) for batch in seen]


def test_a_transaction_that_began_before_the_answer() -> None:
    assert AbortedTransactions([(1, 3)]).covers(data(100, 1))


def test_writes_outside_transactions_are_never_aborted() -> None:
    assert not AbortedTransactions([(1, 0)]).covers(data(5, 1, transactional=False))


def test_a_commit_marker_does_not_end_an_aborted_transaction() -> None:
    aborted = AbortedTransactions([(1, 0)])
    assert not aborted.covers(marker(5, 1, Marker.COMMIT))
    assert aborted.covers(data(6, 1))


def test_asking_twice_does_no_harm() -> None:
    aborted = AbortedTransactions([(1, 0), (2, 0)])
    for batch, covered in [(data(0, 1), True), (marker(1, 1, Marker.ABORT), False), (data(2, 2), True)]:
        assert covered == aborted.covers(batch) == aborted.covers(batch)
