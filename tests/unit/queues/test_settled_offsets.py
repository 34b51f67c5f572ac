"""The set of settled offsets against a Python set."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import MisuseError
from ottla.queues.settled_offsets import SettledOffsets

STEPS = st.lists(
    st.tuples(st.integers(0, 3000), st.sampled_from([0, 1, 2, 63, 64, 65, 200]), st.booleans()), max_size=60
)


@given(st.integers(0, 200), STEPS)
def test_it_has_what_was_settled(start: int, steps: list[tuple[int, int, bool]]) -> None:
    offsets, model = SettledOffsets(start), set(range(start))
    for first, count, is_next in steps:
        first = offsets.first_unsettled if is_next else first
        offsets.settle(first, count)
        model.update(range(first, first + count))
        unsettled = next(offset for offset in range(len(model) + 1) if offset not in model)
        assert offsets.first_unsettled == unsettled
    asked = array("q", range(0, 4000, 7))
    assert [offset in offsets for offset in asked] == [offset in model for offset in asked]
    assert list(offsets.unsettled(asked)) == [at for at, offset in enumerate(asked) if offset not in model]


def test_memory_follows_the_span_that_is_not_settled() -> None:
    offsets = SettledOffsets(10**15)
    for at in range(0, 50_000_000, 1_000_000):
        offsets.settle(10**15 + at, 1_000_000)
    assert offsets.first_unsettled == 10**15 + 50_000_000
    assert offsets.size_bytes < 1_000_000
    offsets.settle(10**15 + 60_000_000)
    assert offsets.size_bytes < 4_000_000


def test_ranges_below_zero_are_refused() -> None:
    with pytest.raises(MisuseError):
        SettledOffsets(-1)
    with pytest.raises(MisuseError):
        SettledOffsets(0).settle(-1)
    with pytest.raises(MisuseError):
        SettledOffsets(0).settle(5, -1)
