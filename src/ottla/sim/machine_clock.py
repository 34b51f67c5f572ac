"""A machine's clock on the virtual loop: it may run a little fast or slow, and its wall clock may be set."""

import asyncio

from ottla.model.ids import TimestampMs
from ottla.sim.clock import START_MS
from ottla.sim.loop import VirtualLoop


class MachineClock:
    """The `Clock` port of one machine."""

    __slots__ = ("_jumped_ms", "_leads", "_loop", "_rate", "_since", "_then")

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._jumped_ms = 0
        self._rate = 1.0
        self._since = self._then = loop.time()
        """The world's time at which the rate was set, and this machine's at that moment."""
        self._leads: list[tuple[float, int]] = []
        """When the clock was changed, and by how much it was ahead of the world's time just before or after."""

    @property
    def rate(self) -> float:
        """How many of its seconds pass in one of the world's."""
        return self._rate

    def drift(self, rate: float) -> None:
        """Runs faster or slower from now on; what has passed has passed."""
        self._note_lead()
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
        self._note_lead()

    def jump(self, milliseconds: int) -> None:
        """Sets the wall clock, either way."""
        self._note_lead()
        self._jumped_ms += milliseconds
        self._note_lead()

    def leads_ms(self, since: float = 0.0) -> tuple[int, int]:
        """The least and the most by which the wall clock was ahead of the world's time, from that time on."""
        earlier = [lead for at, lead in self._leads if at < since]
        leads = [*earlier[-1:], *(lead for at, lead in self._leads if at >= since), self._lead_ms()]
        return min(leads), max(leads)

    def _lead_ms(self) -> int:
        return self.now_ms() - int(START_MS + self._loop.time() * 1000)

    def _note_lead(self) -> None:
        self._leads.append((self._loop.time(), self._lead_ms()))
