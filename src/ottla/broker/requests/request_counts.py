"""Counters of served requests; `metrics.py` shows them."""

from typing import Final

from ottla.protocol.apis import SERVED


class RequestCounts:
    """Requests by API and version, and partitions that were answered with an error."""

    __slots__ = ("by_api", "failed_fetches", "failed_produces", "unknown")

    def __init__(self) -> None:
        self.by_api: Final[dict[tuple[int, int], int]] = {
            (api_key, version): 0
            for api_key, versions in SERVED.items()
            for version in range(versions.lowest, versions.highest + 1)
        }
        self.unknown = 0
        """Requests of APIs and versions that are not served: one counter, since a client may send any number."""
        self.failed_produces = 0
        """Partitions of Produce requests that were answered with an error."""
        self.failed_fetches = 0
        """Partitions of Fetch requests that were answered with an error."""

    def add(self, api_key: int, version: int) -> None:
        """Counts one request."""
        try:
            self.by_api[api_key, version] += 1
        except KeyError:
            self.unknown += 1
