"""A machine's clock on the virtual loop: it may run a little fast or slow, and its wall clock may be set."""

import asyncio

from ottla.model.ids import TimestampMs
from ottla.sim.clock import START_MS
from ottla.sim.loop import VirtualLoop


class MachineClock:
    """The `Clock` port of one machine."""

    __slots__ = ("_jumped_ms", "_loop", "_rate", "_since", "_then")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._jumped_ms = 0
        self._rate = 1.0
        self._since = self._then = loop.time()
        """The world's time at which the rate was set, and this machine's at that moment."""

    @property
    def rate(self) -> float:
        """How many of its seconds pass in one of the world's."""
        return self._rate

    def drift(self, rate: float) -> None:
        """Runs faster or slower from now on; what has passed has passed."""
        self._since, self._then, self._rate = self._loop.time(), self.monotonic(), rate

    def now_ms(self) -> TimestampMs:
        """The wall clock, which may jump."""
        return TimestampMs(int(START_MS + self.monotonic() * 1000) + self._jumped_ms)

    def monotonic(self) -> float:
        """Seconds since the world began, as this machine counts them."""
        return self._then + (self._loop.time() - self._since) * self._rate

    async def sleep(self, seconds: float) -> None:
        """Returns after that long by this machine's clock."""
        await asyncio.sleep(seconds / self._rate)

    def set_right(self) -> None:
        """Shows the world's time from now on, and keeps to it, as a time service sees to it in the end."""
        self.drift(1.0)
        self._jumped_ms = int((self._loop.time() - self.monotonic()) * 1000)

    def jump(self, milliseconds: int) -> None:
        """Sets the wall clock, either way."""
        self._jumped_ms += milliseconds
