"""How long the machine stood still: what happens meanwhile says nothing about the cluster."""

import threading
import time
from types import TracebackType
from typing import Final, Self

LOOK_SECONDS: Final = 0.05
LATE_SECONDS: Final = 0.25
"""A thread that wakes up later than this was not just waiting for its turn."""


class Stalls:
    """Watches from a thread that should wake up again and again. A context manager."""

    def __init__(self) -> None:
        self._gaps: list[tuple[float, float]] = []
        self._is_over = threading.Event()
        self._looked = 0.0
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._looked = time.monotonic()
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._watching.join()

    def seconds(self, start: float, until: float) -> float:
        """How much of the time between two moments of `time.monotonic` the machine stood still."""
        return sum(max(min(end, until) - max(begin, start), 0.0) for begin, end in self._gaps)

    def _watch(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._is_over.wait(LOOK_SECONDS)
            now = time.monotonic()
            self.add(self._looked, now)  # also at the end: the machine may just have stood still
            self._looked = now

    def add(self, before: float, now: float) -> None:
        """It woke up at one moment, and then not before another."""
        if now - before > LOOK_SECONDS + LATE_SECONDS:
            self._gaps.append((before + LOOK_SECONDS, now))
