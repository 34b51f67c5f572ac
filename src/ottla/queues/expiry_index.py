"""When the records of stored batches expire, kept for a bounded number of batches of all partitions.

A batch is read and walked when a consumer first fetches it. What was found is kept by regions of segment files, and
forgotten with the least recently used region. A log opens a file again after it has replaced or truncated it; then, and
when the topic's TTL has changed, the batches are walked again.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple
from weakref import ref

from ottla.env.ports import File
from ottla.model.errors import CorruptBatchError
from ottla.model.ids import TimestampMs
from ottla.records.batch import scan
from ottla.records.expiry import NEVER, expiry_bounds
from ottla.records.layout import LENGTH_AT, LENGTH_PREFIX_BYTES

REGION_BYTES: Final = 1024 * 1024

KNOWN_BATCHES_MAX: Final = 500_000
"""Of all partitions; each takes 24 bytes."""

NO_RECORD: Final = -1
"""The last expiry of a batch without data records."""


class BatchExpiry(NamedTuple):
    """When the records of one batch expire."""

    position: int
    earliest: int
    latest: int


class Survey(NamedTuple):
    """What is known of the whole batches in a range of a file."""

    end: int
    """Where the last of them ends."""
    batches: Sequence[BatchExpiry]
    """All of them if a record of any has expired, otherwise none."""


class _Region:
    """The batches that begin in one region of a file: a stretch of them without gaps."""

    __slots__ = ("earliest", "end", "file", "latest", "soonest", "starts", "ttl_ms")

    def __init__(self, file: File, ttl_ms: int, start: int) -> None:
        # Not the file itself: the log closes a file by dropping it.
        self.file = ref(file)
        self.ttl_ms = ttl_ms
        self.starts = array("q")
        self.earliest = array("q")
        self.latest = array("q")
        self.end = start
        """Where the last batch ends."""
        self.soonest = NEVER
        """The smallest of `earliest`."""

    def add(self, data: bytes, at: int) -> int:
        """Adds the whole batches in `data`, which begins at position `at`, in front or behind; returns how many."""
        batches, _, problem = scan(data, check_crc=False)
        if problem is not None:
            raise CorruptBatchError(f"byte {at} and following: {problem}")
        starts, earliest, latest = array("q"), array("q"), array("q")
        for batch in batches:
            first, last = expiry_bounds(batch, self.ttl_ms)
            starts.append(at + batch.position)
            earliest.append(first)
            latest.append(NO_RECORD if batch.is_control or batch.count == 0 else last)
        if not batches:
            return 0
        if at < self.end:
            starts, earliest, latest = starts + self.starts, earliest + self.earliest, latest + self.latest
        else:
            starts, earliest, latest = self.starts + starts, self.earliest + earliest, self.latest + latest
            self.end = at + batches[-1].position + batches[-1].size_bytes
        self.starts, self.earliest, self.latest = starts, earliest, latest
        self.soonest = min(earliest)
        return len(batches)


class ExpiryIndex:
    """What is known of the batches that consumers have fetched."""

    def __init__(self, known_batches_max: int = KNOWN_BATCHES_MAX, region_bytes: int = REGION_BYTES) -> None:
        self._known_batches_max = known_batches_max
        self._region_bytes = region_bytes
        self._regions: OrderedDict[tuple[str, int], _Region] = OrderedDict()
        """By path and number, the least recently used first."""
        self.known_batches = 0
        self.read_bytes = 0
        """Read from files so far."""

    def survey(self, file: File, position: int, end: int, *, ttl_ms: int, now: TimestampMs) -> Survey:
        """What is known of the whole batches from `position`, where one begins, to `end`; reads those that are not.

        Raises OSError if the file cannot be read, and `CorruptBatchError` for damage inside a batch.
        """
        found: list[tuple[_Region, int, int]] = []
        has_expired = False
        while position < end:
            region = self._region(file, position, ttl_ms)
            border = (position // self._region_bytes + 1) * self._region_bytes
            self._extend(region, file, position, border, end)
            starts = region.starts
            reached = region.end if region.end <= end else starts[bisect_right(starts, end) - 1]
            if reached <= position:
                break
            first, behind = bisect_left(starts, position), bisect_left(starts, reached)
            found.append((region, first, behind))
            has_expired = has_expired or (region.soonest <= now and min(region.earliest[first:behind]) <= now)
            position = reached
            if position < border:
                break
        while self.known_batches > self._known_batches_max and len(self._regions) > 1:
            _, oldest = self._regions.popitem(last=False)
            self.known_batches -= len(oldest.starts)
        if not has_expired:
            return Survey(position, ())
        return Survey(
            position,
            [
                BatchExpiry(region.starts[at], region.earliest[at], region.latest[at])
                for region, first, behind in found
                for at in range(first, behind)
            ],
        )

    def _region(self, file: File, position: int, ttl_ms: int) -> _Region:
        key = (file.path, position // self._region_bytes)
        region = self._regions.get(key)
        if region is not None:
            self._regions.move_to_end(key)
            if region.file() is file and region.ttl_ms == ttl_ms:
                return region
            self.known_batches -= len(region.starts)
        region = self._regions[key] = _Region(file, ttl_ms, position)
        return region

    def _extend(self, region: _Region, file: File, position: int, border: int, end: int) -> None:
        """Makes the region know all batches from `position` on that begin before `border` and end before `end`."""
        if region.starts and position < region.starts[0]:
            self.known_batches += region.add(self._read(file, position, region.starts[0] - position), position)
        while region.end < min(border, end):
            at = region.end
            data = self._read(file, at, min(max(border, at + LENGTH_PREFIX_BYTES), end) - at)
            added = region.add(data, at)
            if not added:
                # The batch reaches beyond the border, or beyond the end.
                size = batch_bytes(data)
                if size == 0 or at + size > end:
                    return
                added = region.add(self._read(file, at, size), at)
                if not added:
                    return
            self.known_batches += added

    def _read(self, file: File, position: int, size: int) -> bytes:
        self.read_bytes += size
        return file.read_at(position, size)


def batch_bytes(data: bytes) -> int:
    """The size of the first batch by its header; 0 if that is cut off."""
    if len(data) < LENGTH_PREFIX_BYTES:
        return 0
    return LENGTH_PREFIX_BYTES + int.from_bytes(data[LENGTH_AT:LENGTH_PREFIX_BYTES], "big", signed=True)
