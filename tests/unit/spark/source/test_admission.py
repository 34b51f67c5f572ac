"""How much a micro-batch reads: within the limits, in proportion, and always something."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import TopicPartition
from ottla.spark.source.admission import Limits, limited_end, must_wait

A, B, C = (TopicPartition("t", index) for index in range(3))


def test_without_limits_all_is_read() -> None:
    assert {A: 5, B: 9} == limited_end({A: 0, B: 9}, {A: 5, B: 9}, Limits())


def test_offsets_are_shared_in_proportion() -> None:
    ends = limited_end({A: 100, B: 0, C: 7}, {A: 400, B: 100, C: 7}, Limits(offsets_max=40))
    assert {A: 130, B: 10, C: 7} == ends


def test_a_small_partition_is_not_starved() -> None:
    assert {A: 9, B: 1} == limited_end({A: 0, B: 0}, {A: 10_000, B: 1}, Limits(offsets_max=10))


def test_bytes_are_shared_by_what_waits() -> None:
    ends = limited_end({A: 0, B: 0}, {A: 100, B: 100}, Limits(bytes_max=1000), {A: 90.0, B: 10.0})
    assert {A: 10, B: 10} == ends


def test_a_record_larger_than_the_limit_is_read_alone() -> None:
    assert {A: 1} == limited_end({A: 0}, {A: 5}, Limits(bytes_max=10), {A: 1_000_000.0})


def test_both_limits_hold() -> None:
    limits = Limits(offsets_max=50, bytes_max=1000)
    assert {A: 10} == limited_end({A: 0}, {A: 100}, limits, {A: 100.0})
    assert {A: 50} == limited_end({A: 0}, {A: 100}, limits, {A: 1.0})


def test_too_little_is_waited_for_up_to_the_delay() -> None:
    limits = Limits(offsets_min=10, delay_ms=1000)
    assert must_wait({A: 0, B: 5}, {A: 4, B: 10}, limits, 999)
    assert not must_wait({A: 0, B: 5}, {A: 5, B: 10}, limits, 0)
    assert not must_wait({A: 0}, {A: 1}, limits, 1000)
    assert not must_wait({A: 0}, {A: 0}, Limits(), 0)


SPANS = st.dictionaries(
    st.sampled_from([A, B, C]), st.tuples(st.integers(0, 50), st.integers(0, 2000)), min_size=1, max_size=3
)


@given(SPANS, st.none() | st.integers(1, 300), st.none() | st.integers(1, 5000), st.floats(0, 1000))
def test_repeated_batches_reach_the_end(
    given_spans: dict[TopicPartition, tuple[int, int]], offsets_max: int | None, bytes_max: int | None, average: float
) -> None:
    limits = Limits(offsets_max=offsets_max, bytes_max=bytes_max)
    now = {each: start for each, (start, _) in given_spans.items()}
    ends = {each: start + size for each, (start, size) in given_spans.items()}
    averages = dict.fromkeys(ends, average)
    for _ in range(7000):
        if now == ends:
            break
        after = limited_end(now, ends, limits, averages)
        assert all(now[each] <= after[each] <= ends[each] for each in ends)
        assert all(after[each] > now[each] for each in ends if ends[each] > now[each])
        taken = sum(after[each] - now[each] for each in ends)
        assert offsets_max is None or taken <= offsets_max + len(ends)
        now = after
    assert ends == now
