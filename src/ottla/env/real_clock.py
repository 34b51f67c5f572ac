"""The real clock. The simulated one is in `ottla.sim.clock`."""

import asyncio
import time

from ottla.model.ids import TimestampMs


class RealClock:
    """The operating system's clocks and the running event loop's timers."""

    __slots__ = ()

    def now_ms(self) -> TimestampMs:
        """The wall clock, which may jump."""
        return TimestampMs(time.time_ns() // 1_000_000)

    # The system's own function, without a call around it: every request asks for the time several times.
    monotonic = staticmethod(time.monotonic)
    """Seconds since some fixed moment; never goes back, and is the same clock for all processes of a machine."""

    async def sleep(self, seconds: float) -> None:
        """Returns after this many seconds of the monotonic clock."""
        await asyncio.sleep(seconds)
