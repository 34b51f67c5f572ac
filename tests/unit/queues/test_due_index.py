"""The due index against a sorted list, on the simulated disk and on the real one."""

import errno
import logging
from array import array
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.env.ports import Disk
from ottla.env.real_disk import RealDisk
from ottla.model.errors import MisuseError, StorageError
from ottla.queues.due_heap import DueHeap
from ottla.queues.due_index import RUNS_MAX, DueIndex
from ottla.sim.disk import SimDisk

ALL = 1 << 62
SMALL = {"memory_entries_max": 8, "block_entries": 2}


def sim_disk() -> SimDisk:
    disk = SimDisk(seed=1)
    disk.make_dirs("/data")
    return disk


def small_index(disk: Disk) -> DueIndex:
    """An index that has most of its entries on disk."""
    return DueIndex(lambda: disk.open_scratch("/data"), **SMALL)


def add(index: DueIndex, *entries: tuple[int, int]) -> None:
    index.add(array("q", [due for due, _ in entries]), array("q", [offset for _, offset in entries]))


def pop(index: DueIndex, now: int = ALL, limit: int = 1 << 30) -> list[tuple[int, int]]:
    return list(zip(*index.pop_due(now, limit), strict=True))


class DueIndexAgainstAList(RuleBasedStateMachine):
    """Adds, pops and looks, with a model that does the same to a sorted list."""

    def __init__(self) -> None:
        super().__init__()
        self.index = small_index(sim_disk())
        self.model: list[tuple[int, int]] = []
        self.offset = 0

    @rule(dues=st.lists(st.integers(0, 60), max_size=40))
    def add(self, dues: list[int]) -> None:
        entries = [(due, self.offset + at) for at, due in enumerate(dues)]
        self.offset += len(dues)
        add(self.index, *entries)
        self.model = sorted([*self.model, *entries])

    @rule(now=st.integers(-1, 61), limit=st.integers(0, 50))
    def pop(self, now: int, limit: int) -> None:
        expected = self.model[: min(limit, bisect_left(self.model, (now + 1, -1)))]
        del self.model[: len(expected)]
        assert expected == pop(self.index, now, limit)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def add_entries_before_all_others(self, data: st.DataObject) -> None:
        first = self.model[0][0]
        entry = (data.draw(st.integers(-5, first)), self.offset)
        self.offset += 1
        add(self.index, entry)
        self.model = sorted([entry, *self.model])

    @rule(edges=st.lists(st.integers(-6, 62), max_size=5).map(sorted))
    def histogram(self, edges: list[int]) -> None:
        bounds = [0, *(bisect_left(self.model, (edge, -1)) for edge in edges), len(self.model)]
        expected = [end - start for start, end in pairwise(bounds)]
        assert expected == self.index.histogram(edges)

    @invariant()
    def knows_its_size_and_its_first(self) -> None:
        assert len(self.model) == len(self.index)
        assert (self.model[0][0] if self.model else None) == self.index.next_due()

    def teardown(self) -> None:
        assert self.model == pop(self.index)
        assert 0 == self.index.scratch_bytes


TestDueIndexAgainstAList = DueIndexAgainstAList.TestCase


def test_a_large_index_in_the_real_file_system(tmp_path: Path) -> None:
    random = Random(1)
    disk = RealDisk()
    index = DueIndex(lambda: disk.open_scratch(str(tmp_path)), memory_entries_max=4096)
    entries = [(random.randrange(10_000), offset) for offset in range(100_000)]
    add(index, *entries)
    assert 100_000 == len(index)
    assert index.scratch_bytes > 90_000 * 16
    assert index.memory_bytes < 200_000
    assert [] == list(tmp_path.iterdir())
    popped = []
    while some := pop(index, limit=777):
        popped += some
    assert sorted(entries) == popped
    assert (0, 0) == (len(index), index.scratch_bytes)
    index.close()


def test_few_entries_need_no_file() -> None:
    def no_file() -> None:
        raise AssertionError("no entry has to go to disk")

    index = DueIndex(no_file)  # type: ignore[arg-type]
    add(index, *((due, due) for due in range(1000)))
    assert 1000 == len(pop(index))


def test_entries_of_the_same_time_come_in_the_order_of_their_offsets() -> None:
    index = small_index(sim_disk())
    offsets = Random(2).sample(range(1000), 1000)
    add(index, *((7, offset) for offset in offsets))
    assert [(7, offset) for offset in range(1000)] == pop(index)


def test_nothing_is_due_early() -> None:
    index = small_index(sim_disk())
    add(index, *((due, due) for due in range(100)))
    assert [(due, due) for due in range(50)] == pop(index, now=49)
    assert [] == pop(index, now=49)
    assert 50 == index.next_due()


def test_runs_with_little_left_are_joined() -> None:
    """A few entries that are due late must not keep a whole run for each of them."""
    index = DueIndex(lambda: disk.open_scratch("/data"), memory_entries_max=64, block_entries=2)
    disk = sim_disk()
    late = []
    for now in range(3_000):
        entries = [(now, 100 * now + at) for at in range(100)]
        late.append((ALL - now, 100 * now + 99))
        add(index, *entries[:99], late[-1])
        pop(index, now)
    assert len(late) == len(index)
    assert index.scratch_bytes <= 16 * 32 * (2 * RUNS_MAX)
    assert sorted(late) == pop(index)


def test_the_number_of_entries_must_match() -> None:
    index = small_index(sim_disk())
    with pytest.raises(MisuseError, match="16 bytes of due times, but 8 bytes of offsets"):
        index.add(array("q", [1, 2]), array("q", [1]))
    assert 0 == len(index)


# Failing disks


def test_a_full_disk_keeps_entries_in_memory(caplog: pytest.LogCaptureFixture) -> None:
    disk = sim_disk()
    disk.capacity = 0
    index = small_index(disk)
    with caplog.at_level(logging.WARNING):
        add(index, *((due, due) for due in range(20)))
    assert "No space left on device" in str(index.failure)
    assert "entries in memory" in caplog.text
    assert (20, 0) == (len(index), index.scratch_bytes)
    assert [(0, 0), (1, 1)] == pop(index, now=1)
    disk.capacity = None
    add(index, *((due, due) for due in range(20, 40)))
    assert [None] == [index.failure]
    assert index.scratch_bytes > 0
    assert [(due, due) for due in range(2, 40)] == pop(index)


def test_a_write_that_fails_once_loses_nothing() -> None:
    for number in range(12):
        disk = sim_disk()
        disk.fail_at(disk.faults.operation_count + number, OSError(errno.EIO, "broken"))
        index = small_index(disk)
        for start in range(0, 100, 5):
            add(index, *((due % 17, due) for due in range(start, start + 5)))
        assert sorted((due % 17, due) for due in range(100)) == pop(index)


def test_a_file_that_cannot_be_read_is_an_error_after_what_is_known() -> None:
    disk = sim_disk()
    index = small_index(disk)
    add(index, *((due, due) for due in range(100)))
    disk.faults.break_path("/data", errno.EIO)
    known = pop(index)
    assert [(due, due) for due in range(len(known))] == known
    assert known
    with pytest.raises(StorageError, match="cannot read due times from the scratch file"):
        pop(index)
    assert 100 - len(known) == len(index)
    disk.faults.heal("/data")
    assert [(due, due) for due in range(len(known), 100)] == pop(index)


def test_a_folder_in_which_no_file_can_be_opened_keeps_entries_in_memory() -> None:
    disk = sim_disk()
    disk.faults.make_read_only("/data")
    index = small_index(disk)
    add(index, *((due, due) for due in range(50)))
    assert "Read-only file system" in str(index.failure)
    assert [(due, due) for due in range(50)] == pop(index)


# The heap


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1)), max_size=200), st.data())
def test_a_heap_splits_into_what_is_first_and_the_sorted_rest(
    entries: list[tuple[int, int]], data: st.DataObject
) -> None:
    heap = DueHeap()
    heap.push(array("q", [due for due, _ in entries]), array("q", [offset for _, offset in entries]))
    keep = data.draw(st.integers(0, len(entries)))
    later = array("q", heap.split(keep))
    assert keep == len(heap)
    ordered = sorted(entries)
    assert ordered[keep:] == list(zip(later[::2], later[1::2], strict=True))
    dues, offsets = heap.pop(2**63 - 1, 2**63 - 1, 2**63 - 1, len(entries))
    assert ordered[:keep] == list(zip(dues, offsets, strict=True))


def test_a_heap_refuses_what_is_not_entries() -> None:
    heap = DueHeap()
    with pytest.raises(MisuseError):
        heap.push(array("q", [1]), array("q"))
    with pytest.raises(MisuseError):
        heap.push_entries(b"x" * 17)
    with pytest.raises(MisuseError):
        heap.split(1)
    assert 0 == len(heap)
    assert heap.first() is None
