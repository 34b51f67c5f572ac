"""A rate over a sliding window, measured as Kafka measures it: 11 samples of one second. Pure; takes the time.

The window is never shorter than ten seconds: a client that was idle may use ten seconds' worth at once.
"""

from collections import deque
from typing import Final

SAMPLES: Final = 11
SAMPLE_MS: Final = 1000
SPAN_MS: Final = SAMPLES * SAMPLE_MS
"""A sample without a use for this long no longer counts."""
WINDOW_SECONDS_MIN: Final = (SAMPLES - 1) * SAMPLE_MS // 1000
FOREVER_MS: Final = 2**31 - 1
"""The longest throttle time: with a tiny quota it could be infinite."""


class _Sample:
    __slots__ = ("amount", "began_ms", "used_ms")

    def __init__(self, began_ms: int) -> None:
        self.began_ms = began_ms
        self.used_ms = began_ms
        """When it was last added to."""
        self.amount = 0.0


class RateSamples:
    """What was used, in samples. Times are in milliseconds of one clock, and must not go back."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def add(self, amount: float, now_ms: int) -> None:
        """Counts a use. A negative amount takes one back that was counted before."""
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= SAMPLE_MS:
            samples.append(_Sample(now_ms))
            self._forget_old(now_ms)
        newest = samples[-1]
        newest.amount += amount
        newest.used_ms = now_ms

    def total(self, now_ms: int) -> float:
        """What was used in the window."""
        self._forget_old(now_ms)
        return sum(sample.amount for sample in self._samples)

    def window_ms(self, now_ms: int) -> int:
        """The time that `total` is divided by: since the first sample, and ten whole seconds at least."""
        self._forget_old(now_ms)
        elapsed_ms = now_ms - self._samples[0].began_ms if self._samples else 0
        missing = (SAMPLES - 1) - elapsed_ms // SAMPLE_MS
        return max(elapsed_ms + max(missing, 0) * SAMPLE_MS, 1)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """For how long nothing may be used until the rate is down to `bound` per second; 0 if it is not above."""
        over_ms = self.total(now_ms) * 1000 / bound - self.window_ms(now_ms)
        return max(round(min(over_ms, FOREVER_MS)), 1) if over_ms > 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing was used in the window: then new samples would be the same."""
        return not self._samples or now_ms - self._samples[-1].used_ms >= SPAN_MS

    def _forget_old(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0].used_ms >= SPAN_MS:
            samples.popleft()
