"""Which times a chart shows: a fixed span that ends now, or what someone zoomed into. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SPANS: Final = {"1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600, "7d": 7 * 24 * 3600, "30d": 30 * 24 * 3600}
"""The spans that pages offer, in seconds, by the word in the address."""
SPAN_DEFAULT: Final = "1h"
_SECONDS_MIN: Final = 60
_SECONDS_MAX: Final = 31 * 24 * 3600
_POINTS_MAX: Final = 720
_STEP_MIN: Final = 15
"""The past is not asked for in smaller steps: Prometheus rarely scrapes more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Times in seconds since 1970: multiples of the step from `start` to `end`, both included."""

    start: int
    end: int
    step: int
    is_moving: bool
    """Whether it ends now, so that it is another one a moment later."""

    @property
    def seconds(self) -> int:
        """How long it is."""
        return self.end - self.start

    @property
    def times(self) -> range:
        """All its times; at most about 720."""
        return range(self.start, self.end + 1, self.step)


def span_of(word: str) -> str:
    """The span that the address names; the default if it names none."""
    return word if word in SPANS else SPAN_DEFAULT


def time_range(asked: Mapping[str, str], now: float) -> TimeRange:
    """The range that an address asks for: `from` and `to` in seconds since 1970, else `range`, a word of `SPANS`."""
    first, last = _seconds(asked.get("from", "")), _seconds(asked.get("to", ""))
    if first is not None and last is not None and first < last and first < now:
        last = min(last, now)
        return _aligned(max(first, last - _SECONDS_MAX), max(last, first + _SECONDS_MIN), is_moving=False)
    return _aligned(now - SPANS[span_of(asked.get("range", ""))], now, is_moving=True)


def _aligned(first: float, last: float, *, is_moving: bool) -> TimeRange:
    step = max(_STEP_MIN, math.ceil((last - first) / _POINTS_MAX / _STEP_MIN) * _STEP_MIN)
    return TimeRange(
        start=math.floor(first / step) * step, end=math.floor(last / step) * step, step=step, is_moving=is_moving
    )


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value < 1e11 else None
