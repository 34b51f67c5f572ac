"""The throttle of replication: a token bucket that fills at the configured rate. Pure.

Only replicas outside the ISR wait for it: those in sync must not fall out of the ISR. Their bytes are counted all the
same. `throttles.py` looks the configs up.
"""

from collections.abc import Sequence
from typing import Final

BURST_SECONDS: Final = 1.0
"""The bucket holds what the rate allows in this time."""
ALL: Final = "*"


class Throttle:
    """Bytes may pass while the bucket is not empty; a large response leaves a debt, which must be earned first."""

    __slots__ = ("_balance", "_filled_at", "bytes_per_second")

    def __init__(self, bytes_per_second: int, now: float) -> None:
        self.bytes_per_second = bytes_per_second
        self._balance = float(bytes_per_second) * BURST_SECONDS
        self._filled_at = now

    def record(self, size_bytes: int, now: float) -> None:
        """Counts bytes that have passed."""
        self._fill(now)
        self._balance -= size_bytes

    def seconds_until_open(self, now: float) -> float:
        """How long nothing more may pass; 0 if something may now, infinity if the rate is 0."""
        self._fill(now)
        if self._balance > 0:
            return 0.0
        if self.bytes_per_second == 0:
            return float("inf")
        # A little more than enough, so that the bucket is surely not empty then.
        return (1 - self._balance) / self.bytes_per_second

    def _fill(self, now: float) -> None:
        earned = max(now - self._filled_at, 0.0) * self.bytes_per_second
        self._balance = min(self._balance + earned, self.bytes_per_second * BURST_SECONDS)
        self._filled_at = now


def is_named(replicas: Sequence[str], partition: int, broker: int) -> bool:
    """Whether a topic's throttled replicas, `partition:broker` pairs or `*`, include this one."""
    return bool(replicas) and (ALL in replicas or f"{partition}:{broker}" in replicas)
