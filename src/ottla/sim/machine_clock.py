"""A machine's clock on the virtual loop: it may run a little fast or slow, and its wall clock may be set."""

import asyncio

from ottla.model.ids import TimestampMs
from ottla.sim.clock import START_MS
from ottla.sim.loop import VirtualLoop


class MachineClock:
    """The `Clock` port of one machine. `rate` is how many of its seconds pass in one of the world's."""

    __slots__ = ("_jumped_ms", "_loop", "rate")

    def __init__(self, loop: VirtualLoop, rate: float = 1.0) -> None:
        self._loop = loop
        self._jumped_ms = 0
        self.rate = rate

    def now_ms(self) -> TimestampMs:
        """The wall clock, which may jump."""
        return TimestampMs(int(START_MS + self.monotonic() * 1000) + self._jumped_ms)

    def monotonic(self) -> float:
        """Seconds since the world began, as this machine counts them."""
        return self._loop.time() * self.rate

    async def sleep(self, seconds: float) -> None:
        """Returns after that long by this machine's clock."""
        await asyncio.sleep(seconds / self.rate)

    def jump(self, milliseconds: int) -> None:
        """Sets the wall clock, either way."""
        self._jumped_ms += milliseconds
