"""A token bucket, as Kafka counts controller mutations. Pure; takes the time."""

from typing import Final

from ottla.security.rate_samples import FOREVER_MS

BURST_SECONDS: Final = 11
"""A full bucket has the tokens of this time."""


class TokenBucket:
    """Tokens that come back at a rate. It is full at first; a large use may leave it in debt."""

    __slots__ = ("_refilled_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens = float("inf")
        self._refilled_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """The tokens that are there, below 0 for a debt."""
        grown = self._tokens + rate * max(now_ms - self._refilled_ms, 0) / 1000
        self._tokens = min(grown, rate * BURST_SECONDS)
        self._refilled_ms = max(now_ms, self._refilled_ms)
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        """Takes tokens, also more than there are. A negative count gives tokens back."""
        self._tokens = min(self.tokens(rate, now_ms) - count, rate * BURST_SECONDS)

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """For how long nothing may be taken until the debt is paid; 0 without a debt."""
        tokens = self.tokens(rate, now_ms)
        return max(round(min(-tokens / rate * 1000, FOREVER_MS)), 1) if tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Whether the bucket is full for sure: then a new one would be the same."""
        # A debt may take longer to pay than the burst takes to fill.
        return self._tokens >= 0 and now_ms - self._refilled_ms >= BURST_SECONDS * 1000
