"""When the records of stored batches expire, kept for a bounded number of batches of all partitions.

A batch is read and walked when a consumer first fetches it. What was found is kept by regions of segment files, and
forgotten with the least recently used region, or some time after the file is closed. A log opens a file again after it
has replaced or truncated it; then, and when the topic's TTL has changed, the batches are walked again.
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
from ottla.records.payload import read_payload

REGION_BYTES: Final = 1024 * 1024

KNOWN_BATCHES_MAX: Final = 500_000
"""Of all partitions; each takes 24 bytes."""

LOOKED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Batches are walked until they were decompressed to this much; then the range ends early."""

CLOSED_REGIONS_MIN: Final = 1000
"""Regions of closed files that are not looked for; a small one takes about a kilobyte."""

NO_RECORD: Final = -1
"""The last expiry of a batch without data records."""


class BatchExpiry(NamedTuple):
    """When the records of one batch expire."""

    position: int
    earliest: int
    latest: int


class Survey(NamedTuple):
    """What is known of the whole batches in a range of a file, or of the first of them."""

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

    def add(self, data: bytes, at: int) -> tuple[int, int]:
        """Adds whole batches in `data`, which begins at position `at`, in front or behind: all of them, or those until
        `LOOKED_BYTES_MAX` are decompressed. Returns how many more are known, and the bytes that were decompressed."""
        batches, _, problem = scan(data, check_crc=False)
        if problem is not None:
            raise CorruptBatchError(f"byte {at} and following: {problem}")
        starts, earliest, latest = array("q"), array("q"), array("q")
        end, looked_bytes, known = at, 0, len(self.starts)
        for batch in batches:
            if looked_bytes >= LOOKED_BYTES_MAX:
                break
            if batch.codec:
                batch.unpacked = read_payload(batch)
                looked_bytes += len(batch.unpacked)
            first, last = expiry_bounds(batch, self.ttl_ms)
            batch.unpacked = None
            starts.append(at + batch.position)
            earliest.append(first)
            latest.append(NO_RECORD if batch.is_control or batch.count == 0 else last)
            end = at + batch.position + batch.size_bytes
        if not starts:
            return 0, 0
        if at >= self.end:
            starts, earliest, latest = self.starts + starts, self.earliest + earliest, self.latest + latest
            self.end = end
        elif end == self.starts[0]:
            starts, earliest, latest = starts + self.starts, earliest + self.earliest, latest + self.latest
        else:
            # Nothing may be missing in between, so that what is behind must be read again.
            self.end = end
        self.starts, self.earliest, self.latest = starts, earliest, latest
        self.soonest = min(earliest)
        return len(starts) - known, looked_bytes


class ExpiryIndex:
    """What is known of the batches that consumers have fetched."""

    def __init__(self, known_batches_max: int = KNOWN_BATCHES_MAX, region_bytes: int = REGION_BYTES) -> None:
        self._known_batches_max = known_batches_max
        self._region_bytes = region_bytes
        self._regions: OrderedDict[tuple[str, int], _Region] = OrderedDict()
        """By path and number, the least recently used first."""
        self._regions_before_look = CLOSED_REGIONS_MIN
        self.known_batches = 0
        self.read_bytes = 0
        """Read from files so far, and decompressed."""

    def __len__(self) -> int:
        """How many regions of files are known."""
        return len(self._regions)

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
        elif len(self._regions) >= self._regions_before_look:
            self._forget_closed()
        region = self._regions[key] = _Region(file, ttl_ms, position)
        return region

    def _forget_closed(self) -> None:
        """Deleted logs do not come back."""
        for key in [key for key, region in self._regions.items() if region.file() is None]:
            self.known_batches -= len(self._regions.pop(key).starts)
        self._regions_before_look = 2 * len(self._regions) + CLOSED_REGIONS_MIN

    def _extend(self, region: _Region, file: File, position: int, border: int, end: int) -> None:
        """Makes the region know all batches from `position` on that begin before `border` and end before `end`."""
        if region.starts and position < region.starts[0]:
            looked_bytes = self._add(region, self._read(file, position, region.starts[0] - position), position)
        else:
            looked_bytes = 0
        while region.end < min(border, end) and looked_bytes < LOOKED_BYTES_MAX:
            at = region.end
            data = self._read(file, at, min(max(border, at + LENGTH_PREFIX_BYTES), end) - at)
            looked_bytes += self._add(region, data, at)
            if region.end == at:
                # The batch reaches beyond the border, or beyond the end.
                size = batch_bytes(data)
                if size == 0 or at + size > end:
                    return
                looked_bytes += self._add(region, self._read(file, at, size), at)
                if region.end == at:
                    return

    def _add(self, region: _Region, data: bytes, at: int) -> int:
        added, looked_bytes = region.add(data, at)
        self.known_batches += added
        self.read_bytes += looked_bytes
        return looked_bytes

    def _read(self, file: File, position: int, size: int) -> bytes:
        self.read_bytes += size
        return file.read_at(position, size)


def batch_bytes(data: bytes) -> int:
    """The size of the first batch by its header; 0 if that is cut off."""
    if len(data) < LENGTH_PREFIX_BYTES:
        return 0
    return LENGTH_PREFIX_BYTES + int.from_bytes(data[LENGTH_AT:LENGTH_PREFIX_BYTES], "big", signed=True)
