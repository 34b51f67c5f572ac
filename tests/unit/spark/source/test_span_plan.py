"""Spans of offsets cut into tasks: nothing is lost or doubled, and the connector's numbers come out."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.spark.source.span_plan import OffsetSpan, SplitRules, spans_between, split_spans

A, B, C = (TopicPartition("t", index) for index in range(3))
MAYBE = st.none() | st.integers(1, 200)


def spans(*ends: int) -> list[OffsetSpan]:
    return [OffsetSpan(TopicPartition("t", index), 0, end) for index, end in enumerate(ends)]


def sizes(pieces: list[OffsetSpan]) -> list[int]:
    return [piece.size for piece in pieces]


def test_without_rules_a_partition_is_a_task() -> None:
    assert spans(5, 7) == split_spans(spans(5, 7), SplitRules())


def test_what_is_empty_is_no_task() -> None:
    assert [OffsetSpan(B, 2, 9)] == spans_between({A: 4, B: 2, C: 5}, {A: 4, B: 9, C: 3})
    assert [] == split_spans([], SplitRules(tasks_min=4, records_max=10))


def test_records_bound_a_task() -> None:
    assert [3, 3, 4] == sizes(split_spans(spans(10), SplitRules(records_max=4)))
    assert [4, 2] == sizes(split_spans(spans(4, 2), SplitRules(records_max=4)))


def test_bytes_bound_a_task_by_the_average() -> None:
    rules = SplitRules(bytes_max=1000)
    assert [5, 5] == sizes(split_spans(spans(10), rules, {A: 200.0}))
    assert [10] == sizes(split_spans(spans(10), rules, {A: 1.0}))
    assert [10] == sizes(split_spans(spans(10), rules))


def test_more_tasks_than_partitions_cut_large_ones() -> None:
    assert [25, 25, 25, 25] == sizes(split_spans(spans(100), SplitRules(tasks_min=4)))
    assert [1, 1, 20, 20, 20, 20, 20] == sizes(split_spans(spans(1, 1, 100), SplitRules(tasks_min=7)))
    assert [10, 10] == sizes(split_spans(spans(10, 10), SplitRules(tasks_min=2)))


def test_both_rules_together_cut_twice() -> None:
    assert [5] * 8 == sizes(split_spans(spans(40), SplitRules(records_max=10, tasks_min=8)))


@given(st.lists(st.integers(0, 500), max_size=6), MAYBE, MAYBE, MAYBE)
def test_the_pieces_are_the_whole(ends: list[int], tasks: int | None, records: int | None, size: int | None) -> None:
    rules = SplitRules(tasks_min=tasks, records_max=records, bytes_max=size)
    whole = spans(*ends)
    pieces = split_spans(whole, rules, {A: 1.5, B: 0.0, C: 400.0})
    for span in whole:
        mine = [piece for piece in pieces if piece.partition == span.partition]
        assert span.size == sum(sizes(mine))
        assert [span.start, *(piece.end for piece in mine)] == [*(piece.start for piece in mine), span.end]
    assert all(piece.size > 0 for piece in pieces)
    if records is not None:
        assert all(piece.size <= records for piece in pieces)
    if tasks is not None and sum(ends) >= tasks:
        assert len(pieces) >= min(tasks, 2) - 1
