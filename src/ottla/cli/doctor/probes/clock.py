"""Whether the time of day is synchronized, and whether it jumps."""

import ctypes
import time
from pathlib import Path
from typing import Final

from ottla.cli.doctor.facts import Clock
from ottla.cli.doctor.probes.machine import text_of

_SOURCE: Final = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_UNSYNCHRONIZED: Final = 0x40
_ERROR: Final = 5


class _Timex(ctypes.Structure):
    """The kernel's struct timex, as far as it is read; the rest is room."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("error_max", ctypes.c_long),
        ("error_estimated", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),
    )


class ClockWatch:
    """Compares the two clocks from its creation to `probe`."""

    def __init__(self) -> None:
        self._day, self._monotonic = time.time(), time.monotonic()

    def probe(self) -> Clock:
        """The clocks, and how far they moved apart meanwhile."""
        observed = time.monotonic() - self._monotonic
        step = time.time() - self._day - observed
        synchronized, error_max = _kernel_clock()
        return Clock(
            is_synchronized=synchronized,
            error_max_us=error_max,
            source=text_of(_SOURCE),
            step_ms=step * 1000,
            observed_seconds=observed,
        )


def _kernel_clock() -> tuple[bool | None, int | None]:
    """Whether the kernel's clock is synchronized, and its largest error in microseconds; None if it does not say."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (AttributeError, OSError):
        return None, None
    # Without modes the call only reads.
    asked = _Timex()
    state = adjtimex(ctypes.byref(asked))
    if state < 0:
        return None, None
    if state == _ERROR or asked.status & _UNSYNCHRONIZED:
        return False, None
    return True, int(asked.error_max)
