"""Runs of offsets against a plain model."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from ottla.queues.offset_runs import offsets_of, runs_of


@given(st.lists(st.integers(0, 50)))
def test_runs_keep_every_offset_and_the_order(offsets: list[int]) -> None:
    runs = runs_of(offsets)
    assert runs == runs_of(array("q", offsets))
    assert [runs[at] + step for at in range(0, len(runs), 2) for step in range(runs[at + 1])] == offsets
    assert list(offsets_of(runs)) == offsets


def test_neighbours_are_one_run() -> None:
    assert runs_of(range(10**12, 10**12 + 1000)) == (10**12, 1000)
    assert runs_of([]) == ()
