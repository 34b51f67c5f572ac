"""CRC-32C against a known value and an independent implementation."""

import crc32c as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records.batch import crc32c, crc32c_by_table


def test_known_value() -> None:
    assert 0xE3069283 == crc32c(b"123456789")
    assert 0xE3069283 == crc32c_by_table(b"123456789")


def test_nothing() -> None:
    assert 0 == crc32c(b"")


@pytest.mark.parametrize("size", [7, 8, 767, 768, 769, 2304, 12287, 12288, 12289, 13056, 30000, 200_003])
def test_sizes_around_the_interleaved_stretches(size: int) -> None:
    data = bytes((index * 31 + index // 251) & 0xFF for index in range(size))
    assert oracle.crc32c(data) == crc32c(data)
    assert oracle.crc32c(data) == crc32c_by_table(data)


@given(st.binary(max_size=2000), st.integers(0, 15))
def test_any_data_at_any_alignment(data: bytes, start: int) -> None:
    view = memoryview(data)[start:]
    assert oracle.crc32c(bytes(view)) == crc32c(view)
    assert oracle.crc32c(bytes(view)) == crc32c_by_table(view)


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_running_on(first: bytes, second: bytes) -> None:
    assert crc32c(first + second) == crc32c(second, crc32c(first))
