"""A clock that does not move until a test or the simulator moves it."""

import asyncio
import heapq
from typing import Final

from ottla.model.ids import TimestampMs

START_MS: Final = TimestampMs(1_700_000_000_000)
"""The start of the wall clock: an arbitrary day, the same in every run."""


class SimClock:
    """The `Clock` port, moved by hand. `advance` moves both clocks and wakes sleepers in the order of their deadlines;
    `jump` moves only the wall clock, as an operator or NTP does."""

    __slots__ = ("_monotonic", "_sleepers", "_ticket", "_wall_ms")

    def __init__(self, start_ms: TimestampMs = START_MS) -> None:
        self._wall_ms = float(start_ms)
        self._monotonic = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._ticket = 0

    def now_ms(self) -> TimestampMs:
        """The wall clock."""
        return TimestampMs(int(self._wall_ms))

    def monotonic(self) -> float:
        """Seconds since the clock was created."""
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        """Returns once `advance` has moved the monotonic clock that far."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ticket += 1
        heapq.heappush(self._sleepers, (self._monotonic + seconds, self._ticket, woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Moves time forward. Sleepers whose deadline was reached run in the next turn of the loop."""
        if seconds < 0:
            raise ValueError(f"time cannot go back: advance({seconds})")
        self._monotonic += seconds
        self._wall_ms += seconds * 1000
        while self._sleepers and self._sleepers[0][0] <= self._monotonic:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)

    def jump(self, milliseconds: int) -> None:
        """Moves only the wall clock, either way."""
        self._wall_ms += milliseconds
