"""Walks over many batches: `scan`, `find_batch`, `whole_bytes`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptBatchError, MisuseError
from ottla.records.batch import find_batch, scan, whole_bytes
from ottla.records.builder import build_batch
from ottla.records.layout import COUNT_AT, LENGTH_AT, MAGIC_AT
from ottla.records.record import Record
from tests.unit.records.record_strategies import broken


def batch_at(offset: int, count: int = 2) -> bytes:
    return build_batch([Record(offset + index, 1, b"k", b"v" * 10) for index in range(count)])


BATCHES = [batch_at(10), batch_at(12, 3), batch_at(20), batch_at(30)]
LOG = b"".join(BATCHES)
STARTS = [sum(map(len, BATCHES[:index])) for index in range(len(BATCHES))]


def test_scan_finds_all() -> None:
    batches, end, problem = scan(LOG)
    assert [10, 12, 20, 30] == [batch.base_offset for batch in batches]
    assert STARTS == [batch.position for batch in batches]
    assert (len(LOG), None) == (end, problem)


def test_scan_from_a_position() -> None:
    batches, end, problem = scan(LOG, STARTS[2])
    assert [20, 30] == [batch.base_offset for batch in batches]
    assert (len(LOG), None) == (end, problem)


def test_scan_of_nothing() -> None:
    assert ([], 0, None) == scan(b"")


@pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, 70])
def test_a_cut_off_batch_is_no_damage(cut: int) -> None:
    batches, end, problem = scan(LOG[: STARTS[3] + cut])
    assert 3 == len(batches)
    assert (STARTS[3], None) == (end, problem)


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (BATCHES[1][:-1] + b"\x01", "fails its checksum"),
        (broken(BATCHES[1], MAGIC_AT, ">b", 1), "has magic 1"),
        (broken(BATCHES[1], MAGIC_AT, ">b", 1)[:17], "has magic 1"),
        (broken(BATCHES[1], LENGTH_AT, ">i", 3), "has length 3"),
        (broken(BATCHES[1], LENGTH_AT, ">i", 3)[:12], "has length 3"),
        (broken(BATCHES[1], COUNT_AT, ">i", -2), "counts -2 records"),
        (bytes(100), "has length 0"),
    ],
)
def test_scan_stops_at_damage_and_says_what_it_is(damaged: bytes, text: str) -> None:
    batches, end, problem = scan(BATCHES[0] + damaged)
    assert [10] == [batch.base_offset for batch in batches]
    assert STARTS[1] == end
    assert problem is not None
    assert text in problem
    assert f"at position {STARTS[1]}" in problem


def test_scan_of_a_large_buffer() -> None:
    """Large buffers are walked without the GIL, by the same rules."""
    large = bytearray(LOG * 600)
    batches, end, problem = scan(large)
    assert (2400, len(large), None) == (len(batches), end, problem)
    del batches
    damaged = len(LOG) * 500 + STARTS[2]
    large[damaged + 70] ^= 1
    batches, end, problem = scan(large)
    assert (2002, damaged) == (len(batches), end)
    assert problem is not None
    assert f"base offset 20 at position {damaged} fails its checksum" in problem


def test_scan_without_checksums() -> None:
    damaged = bytearray(LOG)
    damaged[STARTS[1] - 1] ^= 1
    assert (0, 4) == (len(scan(damaged)[0]), len(scan(damaged, check_crc=False)[0]))


@pytest.mark.parametrize(
    ("offset", "base_offset"), [(0, 10), (11, 10), (12, 12), (14, 12), (15, 20), (21, 20), (31, 30)]
)
def test_find_batch(offset: int, base_offset: int) -> None:
    batch = find_batch(LOG, offset)
    assert batch is not None
    assert (base_offset, STARTS[[10, 12, 20, 30].index(base_offset)]) == (batch.base_offset, batch.position)


def test_find_batch_beyond_the_end() -> None:
    assert find_batch(LOG, 32) is None
    assert find_batch(LOG[:-1], 30) is None
    assert find_batch(b"", 0) is None


def test_find_batch_from_a_position() -> None:
    batch = find_batch(LOG, 0, STARTS[2])
    assert batch is not None
    assert 20 == batch.base_offset


def test_find_batch_meets_damage() -> None:
    with pytest.raises(CorruptBatchError, match=f"position {STARTS[1]} has magic 0"):
        find_batch(BATCHES[0] + broken(BATCHES[1], MAGIC_AT, ">b", 0), 30)


def test_whole_bytes() -> None:
    assert len(LOG) == whole_bytes(LOG)
    assert STARTS[3] == whole_bytes(LOG[:-1])
    assert STARTS[3] - STARTS[1] == whole_bytes(LOG[:-1], STARTS[1])
    assert 0 == whole_bytes(b"")
    assert STARTS[1] == whole_bytes(BATCHES[0] + bytes(100))


@pytest.mark.parametrize("position", [-1, len(LOG) + 1])
def test_positions_outside(position: int) -> None:
    for walk in (scan, whole_bytes):
        with pytest.raises(MisuseError, match="outside the buffer"):
            walk(LOG, position)
    with pytest.raises(MisuseError, match="outside the buffer"):
        find_batch(LOG, 0, position)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_scan_of_garbage_behind_good_batches(garbage: bytes, good: int) -> None:
    log = LOG[: STARTS[good]] + garbage
    batches, end, _ = scan(log)
    assert good <= len(batches)
    assert sum(batch.size_bytes for batch in batches) == end
