"""Deadlines by key, thousands of them, most of which are moved again and again before they pass.

Pure. A heap with one entry for each key: moving a deadline later, which every heartbeat does, costs a dictionary write;
the heap is put right when an entry comes to its top.
"""

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Deadlines(Generic[K]):
    """When each key is due. Keys that are due at the same instant come in the order in which they were queued."""

    __slots__ = ("_due", "_heap", "_queued", "_turn")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._turn = 0

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, deadline_ms: int) -> None:
        """The key is due then, and no longer when it was."""
        self._due[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queue(key, deadline_ms)

    def clear(self, key: K) -> None:
        """The key is not due at all; nothing happens if it was not."""
        self._due.pop(key, None)

    def next(self) -> int | None:
        """The earliest deadline."""
        while self._heap:
            queued_ms, _, key = self._heap[0]
            due_ms = self._due.get(key)
            if due_ms == queued_ms and self._queued.get(key) == queued_ms:
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(key) == queued_ms:
                del self._queued[key]
                if due_ms is not None:
                    self._queue(key, due_ms)
        return None

    def pop(self, now_ms: int) -> K | None:
        """Takes out the earliest key whose deadline has passed, if there is one."""
        earliest = self.next()
        if earliest is None or earliest > now_ms:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._queued[key]
        del self._due[key]
        return key

    def _queue(self, key: K, deadline_ms: int) -> None:
        self._queued[key] = deadline_ms
        self._turn += 1
        heapq.heappush(self._heap, (deadline_ms, self._turn, key))
