"""Real time that a test can move ahead, where it would otherwise have to sleep and to be done in time."""

import asyncio
import time

from ottla.env.real_clock import RealClock
from ottla.model.ids import TimestampMs


class MovedClock(RealClock):
    """A broker's clock; `move` also moves the event loop in which broker and clients run, so that timers go off."""

    __slots__ = ("_ahead_seconds",)

    def __init__(self) -> None:
        self._ahead_seconds = 0.0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(super().now_ms() + int(self._ahead_seconds * 1000))

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_seconds

    def move(self, seconds: float) -> None:
        """As if this time had passed; not on uvloop."""
        self._ahead_seconds += seconds
        loop = asyncio.get_running_loop()
        loop.time = lambda: time.monotonic() + self._ahead_seconds  # type: ignore[method-assign]
