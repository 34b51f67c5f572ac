"""How long requests take, by API: from the moment they were received until their response is ready to be sent.

Requests that arrived together and are answered together are counted with one call, so that pipelined requests cost
next to nothing. Shown by `ottla.broker.metrics`.
"""

from bisect import bisect_left
from typing import Final

from ottla.protocol.apis import SERVED

BOUNDS_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

FOLLOWER_FETCH: Final = -2
"""Stands for Fetch requests of followers, which are counted apart from those of consumers."""
_UNKNOWN: Final = -1
"""Stands for every API that is not served, since a client may invent any number of them."""


class Histogram:
    """Counts by upper bound: `counts[i]` lie up to `BOUNDS_SECONDS[i]` and above the bound before; the last, above all
    bounds."""

    __slots__ = ("counts", "sum_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)
        self.sum_seconds = 0.0

    def add(self, seconds: float, count: int) -> None:
        """Counts several measurements of the same value."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += count
        self.sum_seconds += seconds * count


class RequestTimes:
    """A histogram for each API that is served, for followers' fetches, and for the unknown ones together."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        keys = [*map(int, SERVED), FOLLOWER_FETCH, _UNKNOWN]
        self.by_api: Final = {key: Histogram() for key in keys}

    def add(self, api_key: int, seconds: float, count: int) -> None:
        """Counts requests of one API that took the same time."""
        histogram = self.by_api.get(api_key) or self.by_api[_UNKNOWN]
        histogram.counts[bisect_left(BOUNDS_SECONDS, seconds)] += count
        histogram.sum_seconds += seconds * count
