"""Deadlines by key: thousands of them, most of which are moved many times before they pass.

Pure. A heap with one entry for each key: moving a deadline later, which every heartbeat does, costs a dictionary write;
the heap is corrected when an entry reaches its top. When the clock is set, `shift` moves all deadlines at once.
"""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class _Entry(Generic[K]):
    """A key, when it is due (None if it is not), and the turn of its place in the heap; other places are stale."""

    __slots__ = ("due_ms", "key", "queued_ms", "turn")

    def __init__(self, key: K) -> None:
        self.key = key
        self.due_ms: int | None = None
        self.queued_ms = 0
        self.turn = 0


class Deadlines(Generic[K]):
    """When each key is due. Keys that are due at the same instant come in the order in which they were queued."""

    __slots__ = ("_entries", "_shifted_ms", "_turn", "queued")

    def __init__(self) -> None:
        self._entries: dict[K, _Entry[K]] = {}
        self.queued: list[tuple[int, int, _Entry[K]]] = []
        """The heap, always this list: while it is empty, no key has a deadline."""
        self._turn = 0
        self._shifted_ms = 0
        """Stored deadlines are this much less than those that callers see."""

    def __contains__(self, key: K) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.due_ms is not None

    def set(self, key: K, deadline_ms: int) -> None:
        """Sets or moves the deadline of a key."""
        deadline_ms -= self._shifted_ms
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(key)
            self._queue(entry, deadline_ms)
        elif deadline_ms < entry.queued_ms:
            self._queue(entry, deadline_ms)
        entry.due_ms = deadline_ms

    def clear(self, key: K) -> None:
        """Removes the deadline of a key, if it has one."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.due_ms = None

    def shift(self, by_ms: int) -> None:
        """Moves every deadline later, or earlier if negative."""
        self._shifted_ms += by_ms

    def next(self) -> int | None:
        """The earliest deadline."""
        heap = self.queued
        while heap:
            queued_ms, turn, entry = heap[0]
            is_current = turn == entry.turn
            if is_current and queued_ms == entry.due_ms:
                return queued_ms + self._shifted_ms
            heapq.heappop(heap)
            if is_current:
                if entry.due_ms is None:
                    del self._entries[entry.key]
                else:
                    self._queue(entry, entry.due_ms)
        return None

    def pop(self, now_ms: int) -> K | None:
        """Removes and returns the earliest key whose deadline has passed."""
        earliest = self.next()
        if earliest is None or earliest > now_ms:
            return None
        _, _, entry = heapq.heappop(self.queued)
        del self._entries[entry.key]
        return entry.key

    def _queue(self, entry: _Entry[K], deadline_ms: int) -> None:
        self._turn += 1
        entry.queued_ms, entry.turn = deadline_ms, self._turn
        heapq.heappush(self.queued, (deadline_ms, self._turn, entry))
