"""Thousands of deadlines: a hierarchical timing wheel. Pure.

Adding and cancelling cost the same however many deadlines there are. Wheels of growing span hold buckets. A bucket that
comes due in a coarse wheel is spread over finer ones, down to one tick. Only buckets that hold something exist, ordered
by a heap, so a long time without deadlines costs nothing. `timers.py` is its shell.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

SLOTS: Final = 256
"""Buckets of one wheel; each wheel spans this many of the finer one's spans."""


def _nothing() -> None:
    pass


class Deadline:
    """One instant, and what to call when it has passed."""

    __slots__ = ("_bucket", "callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.callback = callback
        self._bucket: dict[Deadline, None] | None = None

    @property
    def is_armed(self) -> bool:
        """Whether it is still to fire."""
        return self._bucket is not None

    def cancel(self) -> None:
        """It will not fire. Cancelling twice, or after it has fired, does nothing."""
        # Replaced, in case it came due together with the one whose callback cancels it; this also frees the callback.
        self.callback = _nothing
        if self._bucket is not None:
            self._bucket.pop(self, None)
            self._bucket = None


class TimingWheel:
    """Deadlines in milliseconds of any clock that does not go back."""

    __slots__ = ("_buckets", "_due", "_now_ms")

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._buckets: dict[tuple[int, int], dict[Deadline, None]] = {}
        """By span of one slot, and number of the slot since time 0."""
        self._due: list[tuple[int, int, int]] = []
        """(when the bucket begins, span, slot) of every bucket."""

    def add(self, deadline_ms: int, callback: Callable[[], None]) -> Deadline:
        """`advance` returns it once it reaches the deadline; one that has passed already, when time moves on."""
        deadline = Deadline(deadline_ms, callback)
        self._place(deadline)
        return deadline

    def _place(self, deadline: Deadline) -> None:
        deadline_ms = max(deadline.deadline_ms, self._now_ms + 1)
        span = 1
        while deadline_ms - self._now_ms >= span * SLOTS:
            span *= SLOTS
        slot = deadline_ms // span
        bucket = self._buckets.get((span, slot))
        if bucket is None:
            bucket = self._buckets[span, slot] = {}
            heappush(self._due, (slot * span, span, slot))
        bucket[deadline] = None
        deadline._bucket = bucket

    def advance(self, now_ms: int) -> list[Deadline]:
        """The deadlines that have passed, earlier ones first; the caller calls their callbacks."""
        self._now_ms = max(self._now_ms, now_ms)
        passed: list[Deadline] = []
        while self._due and self._due[0][0] <= self._now_ms:
            _, span, slot = heappop(self._due)
            for deadline in self._buckets.pop((span, slot)):
                if deadline.deadline_ms <= self._now_ms:
                    deadline._bucket = None
                    passed.append(deadline)
                else:
                    self._place(deadline)
        passed.sort(key=lambda deadline: deadline.deadline_ms)
        return passed

    def next_due_ms(self) -> int | None:
        """When to call `advance` next, perhaps earlier than the earliest deadline; None if there are no deadlines."""
        while self._due:
            due_ms, span, slot = self._due[0]
            if self._buckets[span, slot]:
                return due_ms
            heappop(self._due)
            del self._buckets[span, slot]
        return None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))
