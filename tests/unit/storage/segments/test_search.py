"""The compiled searches against plain Python, with every bound of the buffer tried."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.segments.search import find_batch_header, first_disorder, last_slot_at_most
from tests.unit.storage.rig import batch

ANY = -(2**63)
keys = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=40).map(sorted)


@given(keys, st.integers(-5, 2**31), st.booleans())
def test_last_slot_at_most(found: list[int], key: int, wide: bool) -> None:
    entries = b"".join(pack(">qi" if wide else ">ii", each, -7) for each in found)
    size = 12 if wide else 8
    expected = max((slot for slot, each in enumerate(found) if each <= key), default=-1)
    assert expected == last_slot_at_most(entries, len(found), size, wide, key)
    assert expected == last_slot_at_most(entries + bytes(size - 1), len(found) + 9, size, wide, key)


@given(st.lists(st.integers(-3, 20), max_size=12), st.booleans())
def test_first_disorder(found: list[int], wide: bool) -> None:
    entries = b"".join(pack(">qi" if wide else ">ii", each, 1) for each in found)
    before, expected = -1, -1
    for slot, each in enumerate(found):
        if each <= before:
            expected = slot
            break
        before = each
    assert expected == first_disorder(entries, len(found), 12 if wide else 8, wide)


def test_nothing_to_search() -> None:
    assert -1 == last_slot_at_most(b"", 0, 8, False, 5)
    assert -1 == first_disorder(b"", 5, 8, False)
    assert (0, 0, -1, -1, -1) == find_batch_header(b"", 0, ANY)


class TestFindBatchHeader:
    first = bytes(batch(b"a", b"b", timestamp=50, base_offset=10).buffer)
    second = bytes(batch(b"c", timestamp=70, base_offset=20).buffer)
    piece = first + second

    @pytest.mark.parametrize(
        ("offset", "timestamp", "expected"),
        [
            (0, ANY, (0, len(first), 10, 11, 50)),
            (11, ANY, (0, len(first), 10, 11, 50)),
            (12, ANY, (len(first), len(second), 20, 20, 70)),
            (0, 51, (len(first), len(second), 20, 20, 70)),
        ],
    )
    def test_found(self, offset: int, timestamp: int, expected: tuple[int, ...]) -> None:
        assert expected == find_batch_header(self.piece, offset, timestamp)

    def test_behind_the_last(self) -> None:
        assert (len(self.piece), 0) == find_batch_header(self.piece, 21, ANY)[:2]

    def test_a_header_is_enough(self) -> None:
        assert len(self.first) == find_batch_header(self.first[:61], 0, ANY)[1]
        assert 0 == find_batch_header(self.first[:60], 0, ANY)[1]
        assert (len(self.first), 0) == find_batch_header(self.first[:61], 12, ANY)[:2]

    @pytest.mark.parametrize(("at", "value"), [(16, 1), (11, 48), (8, 128), (23, 128)])
    def test_no_batch(self, at: int, value: int) -> None:
        rotten = bytearray(self.piece)
        rotten[len(self.first) + at] = value
        assert (len(self.first), -1) == find_batch_header(rotten, 15, ANY)[:2]

    @given(st.binary(max_size=300), st.integers(0, 99), st.integers(-1, 99))
    def test_any_bytes(self, piece: bytes, offset: int, timestamp: int) -> None:
        position, size = find_batch_header(piece, offset, timestamp)[:2]
        assert position >= 0
        assert size >= -1
