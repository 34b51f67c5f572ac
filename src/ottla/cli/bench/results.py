"""Results of a measurement: latencies in a histogram, and totals that print as a table or as JSON. Pure."""

import math
from dataclasses import dataclass
from typing import Any, Final

_STEP: Final = math.log(1.01)
"""Neighbouring buckets differ by one percent: the precision of a percentile."""
_SHORTEST: Final = 1e-7


class Latencies:
    """A histogram of latencies, in buckets of one percent; memory does not grow with their number."""

    __slots__ = ("_buckets", "count", "longest", "total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.longest = 0.0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Adds a latency; a negative one counts as the shortest."""
        seconds = max(seconds, _SHORTEST)
        bucket = int(math.log(seconds / _SHORTEST) / _STEP)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def percentile(self, share: float) -> float:
        """The percentile in seconds, within one percent; 0 if there are no latencies."""
        if self.count == 0:
            return 0.0
        wanted = max(math.ceil(self.count * share / 100), 1)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_SHORTEST * math.exp((bucket + 1) * _STEP), self.longest)
        return self.longest

    def summary_ms(self) -> dict[str, float]:
        """Mean, percentiles and maximum, in milliseconds."""
        shares = {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99, "p99.9_ms": 99.9}
        found = {name: round(self.percentile(share) * 1000, 3) for name, share in shares.items()}
        mean = self.total / self.count if self.count else 0.0
        return {"mean_ms": round(mean * 1000, 3), **found, "max_ms": round(self.longest * 1000, 3)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """One measurement. Bytes are those of the batches on the wire; one MB is a million."""

    what: str
    records: int
    wire_bytes: int
    payload_bytes: int
    requests: int
    seconds: float
    client_cpu_seconds: float
    latencies: Latencies

    def document(self) -> dict[str, Any]:
        """The result as plain values."""
        seconds = max(self.seconds, 1e-9)
        return {
            "what": self.what,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / seconds),
            "mb_per_second": round(self.wire_bytes / seconds / 1e6, 2),
            "payload_mb_per_second": round(self.payload_bytes / seconds / 1e6, 2),
            "requests": self.requests,
            "requests_per_second": round(self.requests / seconds),
            "client_cpu_seconds": round(self.client_cpu_seconds, 3),
            **(self.latencies.summary_ms() if self.latencies.count else {}),
        }
