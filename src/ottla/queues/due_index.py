"""When which parked record is due: (due, offset) entries in order, of which only those due soon are in memory.

The entries that are due first are in a heap (`due_heap`). When it is full, its later half goes to a scratch file as a
sorted run. Of a run, only the first entry of each block stays in memory; a block is read when its first entry is the
next one due. So ten million entries take a few megabytes of memory. Runs of which little is left are joined: their
number, and with it the scratch file, is bounded by what is owed.

The scratch file is derived from the log and has no name: nothing of it is left after the process ends. If it cannot be
written, for example since the disk is full, the entries stay in memory and `failure` says why. If it cannot be read,
`pop_due` raises `StorageError`; build the index again from the log then.
"""

import logging
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from ottla.env.ports import File
from ottla.model.errors import MisuseError, StorageError
from ottla.queues.due_heap import ENTRY_BYTES, DueHeap, block_firsts, count_entries_before

MEMORY_ENTRIES_MAX: Final = 1 << 17
"""2 MiB. When they are too many, they are sorted on the event loop, which takes milliseconds."""
BLOCK_ENTRIES: Final = 512
"""What is read at once: 8 KiB. Every run may have a block in memory."""
RUNS_MAX: Final = 64
"""With more runs, the smallest are joined where they fit into one."""

_FOREVER: Final = (1 << 63) - 1
_log = logging.getLogger(__name__)


class _Run:
    """Sorted entries in a slot of the scratch file."""

    __slots__ = ("block", "count", "first_dues", "first_offsets", "slot")

    def __init__(self, slot: int, entries: bytes, block_entries: int) -> None:
        self.slot: Final = slot
        self.count: Final = len(entries) // ENTRY_BYTES
        self.first_dues, self.first_offsets = block_firsts(entries, block_entries)
        self.block = 0
        """The first block that has not been read."""

    @property
    def is_done(self) -> bool:
        return self.block == len(self.first_dues)

    @property
    def first(self) -> tuple[int, int]:
        """The first entry that has not been read."""
        return self.first_dues[self.block], self.first_offsets[self.block]


class DueIndex:
    """Entries (due_ms, offset), ordered by due time and then by offset.

    `open_scratch` opens a file without a name (`Disk.open_scratch`); it is called when entries go to disk for the first
    time.
    """

    def __init__(
        self,
        open_scratch: Callable[[], File],
        *,
        memory_entries_max: int = MEMORY_ENTRIES_MAX,
        block_entries: int = BLOCK_ENTRIES,
    ) -> None:
        self._open_scratch = open_scratch
        self._block_entries = block_entries
        self._memory_max = memory_entries_max
        self._run_entries = max(1, memory_entries_max // 2)
        self._spill_above = memory_entries_max
        self._heap = DueHeap()
        self._file: File | None = None
        self._runs: list[tuple[int, int, int, _Run]] = []
        """A heap by the first entry that has not been read; the slot makes each different."""
        self._slots = 0
        self._free_slots: list[int] = []
        self._count = 0
        self.failure: StorageError | None = None
        """Why entries that should be on disk are in memory; None after the next success."""

    def __len__(self) -> int:
        return self._count

    @property
    def memory_bytes(self) -> int:
        """About what the index takes in memory."""
        return self._heap.memory_bytes + sum(16 * len(run.first_dues) for *_, run in self._runs)

    @property
    def scratch_bytes(self) -> int:
        """What the index takes on disk."""
        return self._slots * self._run_entries * ENTRY_BYTES

    def add(self, dues: "array[int]", offsets: "array[int]") -> None:
        """Adds entries; both arrays have type "q" and the same length."""
        with memoryview(dues).cast("B") as due_bytes, memoryview(offsets).cast("B") as offset_bytes:
            if len(due_bytes) != len(offset_bytes):
                raise MisuseError(f"{len(due_bytes)} bytes of due times, but {len(offset_bytes)} bytes of offsets")
            step = 8 * self._run_entries
            for start in range(0, len(due_bytes), step):
                before = len(self._heap)
                self._heap.push(due_bytes[start : start + step], offset_bytes[start : start + step])
                self._count += len(self._heap) - before
                while len(self._heap) > self._spill_above:
                    self._spill()

    def next_due(self) -> int | None:
        """When the first entry is due; None if there is none."""
        first = self._heap.first()
        if self._runs and (first is None or self._runs[0][:2] < first):
            return self._runs[0][0]
        return None if first is None else first[0]

    def pop_due(self, now_ms: int, limit: int) -> tuple["array[int]", "array[int]"]:
        """Takes the entries that are due at `now_ms`, at most `limit`, in order: their due times and their offsets.

        Raises `StorageError` if the scratch file cannot be read; entries that were taken before that are returned
        first.
        """
        dues, offsets = array("q"), array("q")
        while len(dues) < limit:
            bound_due, bound_offset = self._runs[0][:2] if self._runs else (_FOREVER, _FOREVER)
            more_dues, more_offsets = self._heap.pop(now_ms, bound_due, bound_offset, limit - len(dues))
            dues += more_dues
            offsets += more_offsets
            self._count -= len(more_dues)
            if not self._runs or bound_due > now_ms or len(dues) >= limit:
                break
            try:
                self._load_block()
            except StorageError:
                if dues:
                    break
                raise
        self._heap.shrink()
        return dues, offsets

    def count_due(self, now_ms: int) -> int:
        """How many entries are due. Reads at most a block of each run that has some; may raise `StorageError`."""
        return self._count_before(now_ms + 1)

    def histogram(self, edges: Sequence[int]) -> list[int]:
        """How many entries are due before the first edge, between each two, and from the last on."""
        before = [self._count_before(edge) for edge in edges]
        return [last - first for first, last in zip([0, *before], [*before, self._count], strict=True)]

    def close(self) -> None:
        """Gives the scratch file back. The index must not be used after that."""
        if self._file is not None:
            self._file.close()

    # Runs

    def _spill(self) -> None:
        """Writes the later half of the heap to disk; keeps all in memory if that fails."""
        later = self._heap.split(len(self._heap) - self._run_entries)
        try:
            self._write_run(later)
        except OSError as error:
            self._heap.push_entries(later)
            self._spill_above = len(self._heap) + self._run_entries
            self.failure = StorageError(
                f"cannot write {len(later)} bytes of due times to the scratch file: {error}; keeping {len(self._heap)}"
                " entries in memory"
            )
            _log.warning("%s", self.failure)
            return
        self.failure = None
        self._spill_above = self._memory_max
        if len(self._runs) > RUNS_MAX:
            self._join_runs()

    def _write_run(self, entries: bytes) -> None:
        if self._file is None:
            self._file = self._open_scratch()
        slot = self._free_slots[-1] if self._free_slots else self._slots
        self._file.write_at(self._position(slot), [entries])
        if self._free_slots:
            self._free_slots.pop()
        else:
            self._slots += 1
        run = _Run(slot, entries, self._block_entries)
        heappush(self._runs, (*run.first, slot, run))

    def _load_block(self) -> None:
        """Reads the next block of the run whose next entry is the first of all."""
        run = self._runs[0][3]
        self._heap.push_entries(self._read(run, run.block, run.block + 1))
        run.block += 1
        if run.is_done:
            heappop(self._runs)
            self._free(run)
        else:
            heapreplace(self._runs, (*run.first, run.slot, run))

    def _join_runs(self) -> None:
        """Writes the runs of which the least is left as one, if there are two that fit."""
        chosen: list[_Run] = []
        total = 0
        for run in sorted((run for *_, run in self._runs), key=self._left):
            total += self._left(run)
            if total > self._run_entries:
                break
            chosen.append(run)
        if len(chosen) < 2:
            return
        joined = DueHeap()
        try:
            for run in chosen:
                joined.push_entries(self._read(run, run.block, len(run.first_dues)))
            self._write_run(joined.split(0))
        except (OSError, StorageError) as error:
            _log.warning("cannot join %s runs of due times in the scratch file: %s", len(chosen), error)
            return
        self._runs = [entry for entry in self._runs if entry[3] not in chosen]
        heapify(self._runs)
        for run in chosen:
            self._free(run)

    def _left(self, run: _Run) -> int:
        """How many entries of the run have not been read."""
        return run.count - run.block * self._block_entries

    def _free(self, run: _Run) -> None:
        self._free_slots.append(run.slot)
        if len(self._free_slots) == self._slots and self._file is not None:
            self._free_slots.clear()
            self._slots = 0
            try:
                self._file.truncate(0)
            except OSError as error:
                _log.warning("cannot truncate the scratch file of due times: %s", error)

    def _read(self, run: _Run, start: int, end: int) -> bytes:
        """The entries of some blocks."""
        first, last = start * self._block_entries, min(end * self._block_entries, run.count)
        size = (last - first) * ENTRY_BYTES
        try:
            found = (
                b"" if self._file is None else self._file.read_at(self._position(run.slot) + first * ENTRY_BYTES, size)
            )
        except OSError as error:
            raise StorageError(f"cannot read due times from the scratch file: {error}") from error
        if len(found) != size:
            raise StorageError(f"the scratch file of due times is cut off: read {len(found)} of {size} bytes")
        return found

    def _position(self, slot: int) -> int:
        return slot * self._run_entries * ENTRY_BYTES

    def _count_before(self, due: int) -> int:
        count = self._heap.count_before(due)
        for *_, run in self._runs:
            # All blocks that start before the time count whole, except for the last of them.
            end = bisect_left(run.first_dues, due, lo=run.block)
            if end > run.block:
                count += (end - 1 - run.block) * self._block_entries
                count += count_entries_before(self._read(run, end - 1, end), due)
        return count
