"""Ranges of checked bytes, against a plain set of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.segments.verified_ranges import VerifiedRanges

spans = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: (min(pair), max(pair)))


@given(st.lists(st.tuples(st.booleans(), spans), max_size=20), spans.filter(lambda span: span[0] < span[1]))
def test_as_a_set_of_bytes(steps: list[tuple[bool, tuple[int, int]]], asked: tuple[int, int]) -> None:
    ranges, known = VerifiedRanges(), set[int]()
    for cuts, (start, end) in steps:
        if cuts:
            ranges.truncate_to(start)
            known = {byte for byte in known if byte < start}
        elif start < end:
            ranges.add(start, end)
            known |= set(range(start, end))
    assert known.issuperset(range(*asked)) == ranges.covers(*asked)


def test_a_sequential_reader_leaves_one_range() -> None:
    ranges = VerifiedRanges()
    for start in range(0, 1000, 10):
        ranges.add(start, start + 10)
    assert [(0, 1000)] == ranges._ranges
