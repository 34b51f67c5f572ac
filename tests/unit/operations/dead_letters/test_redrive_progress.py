"""Which dead letters were redriven: sets of offsets that survive as text in a committed offset."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.operations.dead_letters.redrive_progress import (
    METADATA_BYTES_MAX,
    RedriveProgress,
    TooScatteredError,
    UnreadableProgressError,
    parse_progress,
)

RANGES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 20)), max_size=40)


@given(st.integers(0, 100), RANGES)
def test_it_knows_exactly_what_was_added_also_when_it_is_read_again(start: int, added: list[tuple[int, int]]) -> None:
    progress, expected = RedriveProgress(start), set(range(start))
    for low, length in added:
        progress.add(low, low + length)
        expected |= set(range(low, low + length))
    again = parse_progress(progress.offset, progress.metadata())
    assert progress == again
    assert [at in expected for at in range(250)] == [again.is_done(at) for at in range(250)]
    assert not again.is_done(progress.offset), "the committed offset is the first that is not done"


def test_too_many_ranges_are_refused_and_regular_ones_are_not() -> None:
    regular = RedriveProgress(0)
    for at in range(1, 20_000, 2):
        regular.add(at, at + 1)
    assert len(regular.metadata()) < METADATA_BYTES_MAX
    chance, scattered, at = random.Random(1), RedriveProgress(0), 1
    for _ in range(10_000):
        at += chance.randrange(1, 1000)
        scattered.add(at, at + 1)
    with pytest.raises(TooScatteredError, match="too many to record"):
        scattered.metadata()


@pytest.mark.parametrize("text", ["hello", "redriven:!", "redriven:aGVsbG8=", "redriven:eJwzAAAAMQAx"])
def test_foreign_metadata_is_refused(text: str) -> None:
    with pytest.raises(UnreadableProgressError):
        parse_progress(0, text)
