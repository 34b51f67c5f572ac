"""Deadlines by the thousand: a hierarchical timing wheel. Adding and cancelling cost the same however many there are.

Pure: it is told what time it is. Wheels of growing span hold buckets; a bucket that comes due in a coarse wheel is
spread over finer ones, until it is as fine as one tick. Only buckets that hold something exist, ordered by a heap, so
that a long silence costs nothing. `timers.py` is its shell.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

SLOTS: Final = 256
"""Buckets of one wheel; each wheel spans this many of the finer one's spans."""


def _nothing() -> None:
    pass


class Timer:
    """One deadline and what to call when it has passed."""

    __slots__ = ("_bucket", "callback", "deadline_ms")

    def __init__(self, deadline_ms: int, callback: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.callback = callback
        self._bucket: dict[Timer, None] | None = None

    @property
    def is_armed(self) -> bool:
        """Whether it is still to fire."""
        return self._bucket is not None

    def cancel(self) -> None:
        """It will not fire; cancelling one that has fired, or twice, is harmless."""
        # Also if it came due together with the one whose callback cancels it; and what it would have called can go.
        self.callback = _nothing
        if self._bucket is not None:
            self._bucket.pop(self, None)
            self._bucket = None


class TimingWheel:
    """Timers by deadline in milliseconds of any clock that does not go back."""

    __slots__ = ("_buckets", "_due", "_now_ms")

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._buckets: dict[tuple[int, int], dict[Timer, None]] = {}
        """By span of one slot, and number of the slot since time 0."""
        self._due: list[tuple[int, int, int]] = []
        """(when the bucket begins, span, slot) of every bucket."""

    def add(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        """Will hand the timer out once `advance` reaches the deadline; one that has passed, when time moves on."""
        timer = Timer(deadline_ms, callback)
        self._place(timer)
        return timer

    def _place(self, timer: Timer) -> None:
        deadline_ms = max(timer.deadline_ms, self._now_ms + 1)
        span = 1
        while deadline_ms - self._now_ms >= span * SLOTS:
            span *= SLOTS
        slot = deadline_ms // span
        bucket = self._buckets.get((span, slot))
        if bucket is None:
            bucket = self._buckets[span, slot] = {}
            heappush(self._due, (slot * span, span, slot))
        bucket[timer] = None
        timer._bucket = bucket

    def advance(self, now_ms: int) -> list[Timer]:
        """What has come due, earlier deadlines first; the caller calls their callbacks."""
        self._now_ms = max(self._now_ms, now_ms)
        fired: list[Timer] = []
        while self._due and self._due[0][0] <= self._now_ms:
            _, span, slot = heappop(self._due)
            for timer in self._buckets.pop((span, slot)):
                if timer.deadline_ms <= self._now_ms:
                    timer._bucket = None
                    fired.append(timer)
                else:
                    self._place(timer)
        fired.sort(key=lambda timer: timer.deadline_ms)
        return fired

    def next_due_ms(self) -> int | None:
        """When to call `advance` next; None if nothing is waited for. May be earlier than the earliest deadline."""
        while self._due:
            due_ms, span, slot = self._due[0]
            if self._buckets[span, slot]:
                return due_ms
            heappop(self._due)
            del self._buckets[span, slot]
        return None

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))
