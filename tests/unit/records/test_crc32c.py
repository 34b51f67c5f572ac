"""CRC-32C against a known value and an independent implementation."""

from random import Random

import crc32c as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import crc32c, crc32c_by_instruction, crc32c_by_table

WAYS = (crc32c, crc32c_by_instruction, crc32c_by_table)


def test_known_value() -> None:
    assert [0xE3069283] * 3 == [way(b"123456789") for way in WAYS]


def test_nothing() -> None:
    assert 0 == crc32c(b"")


@pytest.mark.parametrize(
    "size",
    [7, 8, 767, 768, 769, 1023, 1024, 1025, 1279, 1280, 1281, 2304, 12287, 12288, 12289, 13056, 30000, 200_003],
)
def test_sizes_around_the_stretches(size: int) -> None:
    data = bytes((index * 31 + index // 251) & 0xFF for index in range(size))
    assert [oracle.crc32c(data)] * 3 == [way(data) for way in WAYS]


@given(st.binary(max_size=2000), st.integers(0, 15))
def test_any_data_at_any_alignment(data: bytes, start: int) -> None:
    view = memoryview(data)[start:]
    assert [oracle.crc32c(bytes(view))] * 3 == [way(view) for way in WAYS]


@given(st.randoms(use_true_random=False), st.integers(1024, 5000), st.integers(0, 63), st.integers(0, 2**32 - 1))
def test_long_data_after_any_start(random: Random, size: int, start: int, crc: int) -> None:
    view = memoryview(random.randbytes(size + start))[start:]
    assert [oracle.crc32c(bytes(view), crc)] * 3 == [way(view, crc) for way in WAYS]


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_running_on(first: bytes, second: bytes) -> None:
    assert crc32c(first + second) == crc32c(second, crc32c(first))
