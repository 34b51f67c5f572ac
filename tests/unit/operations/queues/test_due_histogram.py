"""How many parked records are due how soon."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.operations.queues.due_histogram import Bucket, DueCounts, bar
from ottla.queues.owed_records import Owed

NOW = 1_000_000


def counted(owed: list[Owed]) -> DueCounts:
    counts = DueCounts(NOW)
    counts.add(owed)
    return counts


def test_buckets_up_to_the_last_record() -> None:
    owed = [Owed(due, 0) for due in (0, NOW, NOW + 1, NOW + 1000, NOW + 60_000)]
    assert [
        Bucket("due now", 0, 2),
        Bucket("within 1 s", 1000, 2),
        Bucket("within 10 s", 10_000, 0),
        Bucket("within 1 m", 60_000, 1),
    ] == counted(owed).buckets()


def test_facts() -> None:
    first, second = counted([Owed(NOW + 5, 7), Owed(NOW - 30, 9)]), counted([Owed(NOW + 1, 3)])
    assert (2, 1, 30, NOW - 30, 7) == (first.parked, first.due, first.late_ms, first.next_due_ms, first.first_offset)
    assert (1, 0, 0, NOW + 1, 3) == (second.parked, second.due, second.late_ms, second.next_due_ms, second.first_offset)
    every = DueCounts(NOW)
    for each in (second, first, DueCounts(NOW)):
        every.add_counts(each)
    assert (3, 1, 30, NOW - 30) == (every.parked, every.due, every.late_ms, every.next_due_ms)
    assert [1, 2] == [bucket.records for bucket in every.buckets()]


def test_nothing_parked() -> None:
    assert [Bucket("due now", 0, 0)] == counted([]).buckets()


@given(st.lists(st.integers(0, 2**62)))
def test_every_record_is_in_one_bucket(dues: list[int]) -> None:
    owed = [Owed(due, offset) for offset, due in enumerate(dues)]
    assert len(dues) == sum(bucket.records for bucket in counted(owed).buckets())


def test_bars() -> None:
    assert ["", "#", "#" * 20, "#" * 40] == [bar(count, 1000) for count in (0, 1, 500, 1000)]
    assert "" == bar(0, 0)
