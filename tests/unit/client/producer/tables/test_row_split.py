"""Rows to partitions: the same choice as for single records, order kept, hostile buffers refused."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.producer.partitioner import partition_for_key
from ottla.client.producer.tables.row_split import split_rows
from ottla.model.errors import MisuseError
from ottla.records.packed import BinaryColumn


def column(keys: list[bytes | None], *, wide: bool = False, start: int = 0) -> BinaryColumn:
    """Keys as packed buffers, behind `start` rows that do not count."""
    rows = [b"before"] * start + keys
    ends = [0]
    for key in rows:
        ends.append(ends[-1] + len(key or b""))
    validity = bytearray((len(rows) + 7) // 8)
    for row, key in enumerate(rows):
        if key is not None:
            validity[row >> 3] |= 1 << (row & 7)
    return BinaryColumn(
        validity=bytes(validity),
        offsets=struct.pack(f"<{len(ends)}{'q' if wide else 'i'}", *ends),
        data=b"".join(key or b"" for key in rows),
        start=start,
        wide=wide,
    )


def rows_of(order: bytearray, bounds: list[int]) -> list[list[int]]:
    numbers = memoryview(order).cast("i").tolist()
    return [numbers[start:end] for start, end in pairwise(bounds)]


@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=12)), max_size=60),
    partitions=st.integers(1, 9),
    run=st.integers(1, 5),
    wide=st.booleans(),
    start=st.integers(0, 9),
)
def test_every_row_goes_where_a_single_record_would(
    keys: list[bytes | None], partitions: int, run: int, wide: bool, start: int
) -> None:
    keyless = list(range(partitions))[::-1]
    expected: list[list[int]] = [[] for _ in range(partitions)]
    without = 0
    for row, key in enumerate(keys):
        if key is None:
            expected[keyless[without // run % partitions]].append(row)
            without += 1
        else:
            expected[partition_for_key(key, partitions)].append(row)
    found = split_rows(
        len(keys), partitions=partitions, keys=column(keys, wide=wide, start=start), keyless=keyless, keyless_run=run
    )
    assert expected == rows_of(*found)


def test_a_chosen_partition_comes_before_the_key() -> None:
    keys: list[bytes | None] = [b"a", b"b", None]
    home = partition_for_key(b"b", 4)
    expected: list[list[int]] = [[] for _ in range(4)]
    expected[3].append(0)
    expected[home].append(1)
    expected[2].append(2)
    found = split_rows(3, partitions=4, keys=column(keys), chosen=struct.pack("<3i", 3, -1, 2))
    assert [sorted(rows) for rows in expected] == rows_of(*found)


@pytest.mark.parametrize("wrong", [-2, 4, 2**31 - 1])
def test_a_partition_that_is_not_there_is_named(wrong: int) -> None:
    with pytest.raises(MisuseError, match=f"row 1 is for partition {wrong}, but the topic has partitions 0 to 3"):
        split_rows(2, partitions=4, chosen=struct.pack("<2i", 0, wrong))


def test_buffers_that_do_not_fit_are_refused() -> None:
    good = column([b"a", b"b"])
    with pytest.raises(MisuseError, match="too few for 3 rows"):
        split_rows(3, partitions=2, keys=good)
    with pytest.raises(MisuseError, match="too few for 3 rows"):
        split_rows(3, partitions=2, chosen=bytes(8))
    for offsets in ((0, 9, 9), (-1, 1, 2), (2, 1, 2)):
        bad = BinaryColumn(validity=None, offsets=struct.pack("<3i", *offsets), data=b"ab")
        with pytest.raises(MisuseError, match="offsets outside"):
            split_rows(2, partitions=2, keys=bad)
    with pytest.raises(MisuseError, match="too few"):
        split_rows(9, partitions=2, keys=BinaryColumn(validity=b"\xff", offsets=bytes(40), data=b""))
    with pytest.raises(MisuseError, match="partition 2 does not exist; the topic has 2 partitions"):
        split_rows(1, partitions=2, keyless=[2])
