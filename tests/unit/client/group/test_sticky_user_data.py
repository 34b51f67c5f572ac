"""What members of sticky groups tell their leader: both versions, and bytes that are anything."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.group.assignors.sticky_user_data import StickyUserDataError, read_user_data, write_user_data
from ottla.model.ids import TopicPartition

PARTITIONS = st.lists(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 1000)), max_size=6, unique=True)
ONE = bytes.fromhex("00000001 0001 74 00000002 00000000 00000005")
OWNED = (TopicPartition("t", 0), TopicPartition("t", 5))


def test_both_versions_are_read() -> None:
    assert (OWNED, None) == read_user_data(ONE)
    assert (OWNED, 7) == read_user_data(ONE + bytes.fromhex("00000007"))
    assert ONE + bytes.fromhex("00000007") == write_user_data(OWNED, 7)


@given(PARTITIONS.map(sorted), st.integers(-1, 2**31 - 1))
def test_what_is_written_is_read(partitions: list[TopicPartition], generation: int) -> None:
    assert (tuple(partitions), generation) == read_user_data(write_user_data(partitions, generation))


@pytest.mark.parametrize("size", range(len(ONE)))
def test_bytes_that_end_too_early_are_refused(size: int) -> None:
    with pytest.raises(StickyUserDataError):
        read_user_data(ONE[:size])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        read_user_data(data)
    except StickyUserDataError:
        return
