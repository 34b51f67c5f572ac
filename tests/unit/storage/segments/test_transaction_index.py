"""The aborted transactions of a segment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptError
from ottla.model.ids import Offset, ProducerId
from ottla.sim.disk import SimDisk
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from tests.unit.storage.rig import put

PATH = "/0.txnindex"


def aborted(producer_id: int, first: int, last: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer_id), Offset(first), Offset(last), Offset(last + 1))


def test_bytes() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, PATH)
    index.reset()
    assert ([], False) == (index.entries(), disk.exists(PATH))
    index.append(AbortedTransaction(ProducerId(7), Offset(1), Offset(2), Offset(3)))
    assert bytes.fromhex("00000000000000000007000000000000000100000000000000020000000000000003") == disk.read(PATH)
    assert index.is_checked
    again = TransactionIndex(disk, PATH)
    assert (index.entries(), False) == (again.entries(), again.is_checked)


transactions = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), max_size=15)


@given(transactions, st.integers(0, 60), st.integers(0, 60))
def test_overlapping(gaps: list[tuple[int, int]], start: int, upper: int) -> None:
    index, last, entries = TransactionIndex(SimDisk(), PATH), 0, []
    for back, step in gaps:
        last += step
        entries.append(aborted(1, max(0, last - back), last))
        index.append(entries[-1])
    expected = [each for each in entries if each.last_offset >= start and each.first_offset < upper]
    assert expected == index.overlapping(Offset(start), Offset(upper))


def test_truncating() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, PATH)
    for number in range(3):
        index.append(aborted(number, 10 * number, 10 * number + 5))
    index.truncate_to(Offset(15))
    assert [aborted(0, 0, 5)] == index.entries() == TransactionIndex(disk, PATH).entries()
    index.append(aborted(9, 3, 20))
    assert [aborted(0, 0, 5), aborted(9, 3, 20)] == TransactionIndex(disk, PATH).entries()
    index.reset()
    assert b"" == disk.read(PATH)


def test_a_refused_append_leaves_no_entry() -> None:
    disk = SimDisk()
    index = TransactionIndex(disk, PATH)
    index.append(aborted(1, 0, 1))
    disk.make_read_only()
    with pytest.raises(OSError, match="Read-only"):
        index.append(aborted(1, 2, 3))
    assert [aborted(1, 0, 1)] == index.entries() == index.overlapping(Offset(0), Offset(9))


def test_replacing() -> None:
    disk = SimDisk()
    put(disk, PATH, b"\xff" * 34)
    index = TransactionIndex(disk, PATH)
    for _ in range(2):
        with pytest.raises(CorruptError, match=f"{PATH}, byte 0"):
            index.entries()
    index.replace([aborted(1, 0, 1)])
    assert (True, [aborted(1, 0, 1)]) == (index.is_checked, TransactionIndex(disk, PATH).entries())


@pytest.mark.parametrize("size", [1, 33, 35])
def test_no_multiple_of_an_entry(size: int) -> None:
    disk = SimDisk()
    put(disk, PATH, bytes(size))
    with pytest.raises(CorruptError, match=f"{size} bytes is not a multiple"):
        TransactionIndex(disk, PATH).entries()
