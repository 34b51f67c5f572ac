"""The due index of a queue, with what is due within the next seconds apart: those records are read ahead of time.

Entries move once, in small steps, from the index to a heap of what is due soon. The order is that of the index: by due
time, then by offset.
"""

from array import array
from typing import Final

from ottla.queues.due_heap import DueHeap
from ottla.queues.due_index import DueIndex

SOON_MAX: Final = 131_072
"""Entries that may be in the heap."""

_FOREVER: Final = (1 << 63) - 1


class DueSoon:
    """Entries (due_ms, offset). Those in `_soon` come before those in the index, except for entries that are due at the
    same millisecond as the last one that was moved."""

    def __init__(self, index: DueIndex) -> None:
        self._index = index
        self._soon = DueHeap()
        self._moved_ms = -1
        """Everything that is due up to here is in `_soon`."""

    def __len__(self) -> int:
        return len(self._soon) + len(self._index)

    def add(self, due_ms: "array[int]", offsets: "array[int]") -> None:
        """Adds entries."""
        if not due_ms or min(due_ms) > self._moved_ms:
            self._index.add(due_ms, offsets)
            return
        if max(due_ms) <= self._moved_ms:
            self._soon.push(due_ms, offsets)
            return
        for are_soon, add in ((True, self._soon.push), (False, self._index.add)):
            chosen = [at for at, due in enumerate(due_ms) if (due <= self._moved_ms) is are_soon]
            add(array("q", (due_ms[at] for at in chosen)), array("q", (offsets[at] for at in chosen)))

    def next_due(self) -> int | None:
        """When the first entry is due; None if there is none."""
        first = self._soon.first()
        return self._index.next_due() if first is None else first[0]

    def pop_due(self, now_ms: int, limit: int) -> tuple["array[int]", "array[int]"]:
        """Takes the entries that are due, at most `limit`, in order: their due times and their offsets."""
        due_ms, offsets = self._soon.pop(now_ms, _FOREVER, _FOREVER, limit)
        if not self._soon.first() and len(offsets) < limit:
            more_due_ms, more_offsets = self._index.pop_due(now_ms, limit - len(offsets))
            due_ms, offsets = due_ms + more_due_ms, offsets + more_offsets
        return due_ms, offsets

    def count_due(self, now_ms: int) -> int:
        """How many entries are due; may raise `StorageError`."""
        return self._soon.count_before(now_ms + 1) + self._index.count_due(now_ms)

    def next_move(self) -> int | None:
        """When the first entry that has not been moved is due; None if there is none, or no room for it."""
        return self._index.next_due() if len(self._soon) < SOON_MAX else None

    def move(self, until_ms: int, limit: int) -> "array[int]":
        """Moves entries that are due up to then, at most `limit`; returns their offsets, which will be needed soon."""
        due_ms, offsets = self._index.pop_due(until_ms, limit)
        self._soon.push(due_ms, offsets)
        if len(due_ms) < limit:
            self._moved_ms = max(self._moved_ms, until_ms)
        else:
            # More entries may be due at the millisecond of the last one.
            self._moved_ms = max(self._moved_ms, due_ms[-1] - 1)
        return offsets

    def close(self) -> None:
        """Gives the scratch file back."""
        self._index.close()
