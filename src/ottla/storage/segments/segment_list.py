"""The segments of one log in order: finding the segment of an offset, reading across segments, removing some.

The last segment is the active one. The bounds that consumers see (start, high watermark) belong to the log.
"""

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

from ottla.env.ports import Disk
from ottla.model.errors import MisuseError
from ottla.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from ottla.records.batch import Batch
from ottla.records.decode import find_time
from ottla.storage.data_dirs import names
from ottla.storage.producers.producer_snapshot import EndedSegment
from ottla.storage.recovery.transaction_rebuild import ended_segment, sound_transaction_index
from ottla.storage.segments.segment import BatchPlace, FileRange, Segment
from ottla.storage.segments.time_index import TimestampOffset
from ottla.storage.segments.transaction_index import AbortedTransaction, TransactionIndex


class SegmentList:
    """At least one segment; base offsets only increase, and `bases` mirrors them for bisection.

    `discard` takes the paths of files that are no longer part of the log; they are unlinked after a delay.
    """

    __slots__ = ("_bases", "_discard", "_disk", "_folder", "_segments", "active")

    def __init__(
        self, disk: Disk, folder: str, segments: Iterable[Segment], discard: Callable[[Sequence[str]], None]
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._discard = discard
        self._segments: list[Segment] = []
        self._bases: list[Offset] = []
        self._adopt(list(segments))

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, at: int) -> Segment:
        return self._segments[at]

    def index_of(self, offset: Offset) -> int:
        """The index of the segment that contains `offset`, or would; the first for anything below it."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: Offset) -> list[Segment]:
        """The segment that contains `offset`, and all after it."""
        return self._segments[self.index_of(offset) :]

    def end_of(self, at: int) -> Offset:
        """All offsets of segment `at` are below."""
        return self.active.next_offset if at == len(self._segments) - 1 else self._bases[at + 1]

    # Reading

    def read(self, offset: Offset, max_bytes: int, upper: Offset, *, at_least_one: bool) -> FileRange | None:
        """Batches from the one that contains `offset` on, within one segment and below `upper`; None if there are
        none."""
        for at in range(self.index_of(offset), len(self._segments)):
            segment = self._segments[at]
            place = segment.locate(offset)
            if place is None:
                continue  # Compaction has removed the end of this segment.
            if place.last_offset >= upper or (place.size_bytes > max_bytes and not at_least_one):
                # Otherwise the reader of a batch with a corrupt header would wait forever.
                segment.verify(place.position, place.position + place.size_bytes)
                return None
            return segment.read(place, max_bytes, self._position_below(at, upper))
        return None

    def find_timestamp(self, timestamp: TimestampMs, start: Offset) -> "TimeSearch":
        """The first record at or behind `start` with at least this timestamp."""
        for segment in self.from_offset(start):
            if segment.largest.timestamp < timestamp:
                continue
            place = segment.locate_timestamp(timestamp, start)
            while place is not None:
                found = yield _load(segment, place), start, timestamp
                if found is not None:
                    return TimestampOffset(TimestampMs(found[0]), Offset(found[1]))
                place = segment.locate(Offset(place.last_offset + 1), timestamp)
        return None

    def largest_timestamp(self, start: Offset) -> "TimeSearch":
        """The first record at or behind `start` with the largest timestamp of all."""
        first, *rest = self.from_offset(start)
        largest = max(first.largest.timestamp, *(segment.largest.timestamp for segment in rest), NO_TIMESTAMP)
        found = None if largest == NO_TIMESTAMP else (yield from self.find_timestamp(largest, start))
        if found is not None or largest == NO_TIMESTAMP:
            return found
        # Only records before the start have it, so that the largest timestamp of the first segment is of no use.
        behind = yield from _largest_behind(first, start)
        largest = max(behind, *(segment.largest.timestamp for segment in rest), NO_TIMESTAMP)
        return None if largest == NO_TIMESTAMP else (yield from self.find_timestamp(largest, start))

    def aborted_transactions(
        self, start: Offset, upper: Offset, found: FileRange | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start, upper) must leave out.

        With `found`, the range that was read there, most transactions behind that range are left out.
        """
        indexes = [self._transaction_index(at) for at in range(self.index_of(start), len(self._segments))]
        indexes = [index for index in indexes if index.entries()]
        if indexes and found is not None:
            upper = min(upper, self._bound_of(start, found))
        return [aborted for index in indexes for aborted in index.overlapping(start, upper)]

    def _bound_of(self, offset: Offset, found: FileRange) -> Offset:
        """An offset above all batches of a range that was read from `offset` on; not necessarily the closest."""
        for at in range(self.index_of(offset), len(self._segments)):
            if self._segments[at].file is found.file:
                bound = self._segments[at].bound_behind(found.position + found.size)
                return self.end_of(at) if bound is None else bound
        return self.active.next_offset

    # Changing

    def add(self, segment: Segment) -> None:
        """Makes a new segment the active one; replaces an active segment that is still empty."""
        kept = self._segments
        if self.active.size_bytes == 0:
            self._retire([self.active])
            kept = kept[:-1]
        self._adopt([*kept, segment])

    def end_after_cut(self, offset: Offset) -> Offset:
        """Where the log would end without the batch that contains `offset` and all after it."""
        return self._segments[self.index_of(Offset(offset - 1))].end_before(offset)

    def drop_after(self, offset: Offset) -> None:
        """Removes the segments that begin at or behind `offset`, newest first, durably. At least one must stay."""
        keep = bisect_right(self._bases, offset - 1)
        self._retire(reversed(self._segments[keep:]))
        self._disk.sync_dir(self._folder)
        self._adopt(self._segments[:keep])

    def mend_transaction_index(self, offset: Offset) -> None:
        """Makes sure that the transaction index of the segment that contains `offset` is right."""
        self._transaction_index(self.index_of(offset))

    def ended(self) -> EndedSegment:
        """The active segment as it is now, for a snapshot at its end."""
        return ended_segment(self._disk, self._folder, self._segments, len(self._segments) - 1)

    def drop_before(self, count: int) -> None:
        """Removes this many segments from the front."""
        self._retire(self._segments[:count])
        self._adopt(self._segments[count:])

    def drop_all(self, make_next: Callable[[], Segment]) -> None:
        """Removes everything and continues with the segment that `make_next` creates, both durably."""
        self._retire(reversed(self._segments))
        self._disk.sync_dir(self._folder)
        self._adopt([make_next()])
        self._disk.sync_dir(self._folder)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replaces contiguous sealed segments by the cleaned segment made from them; the caller handles their files."""
        at = self._segments.index(old[0])
        if self._segments[at : at + len(old)] != list(old) or at + len(old) >= len(self._segments):
            raise MisuseError(f"{self._folder}: the segments to replace are no longer sealed and contiguous")
        self._adopt([*self._segments[:at], new, *self._segments[at + len(old) :]])

    def release(self) -> None:
        """Releases every handle and map."""
        for segment in self._segments:
            segment.release()

    def release_idle(self) -> None:
        """Releases the handles and maps of segments that were not used since the last call."""
        for segment in self._segments:
            if not segment.in_use:
                segment.release()
            segment.in_use = False

    def _adopt(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.active.limit_offset = None
        for segment, limit in zip(segments, self._bases[1:], strict=False):
            segment.limit_offset = limit

    def _retire(self, segments: Iterable[Segment]) -> None:
        """Renames the files of segments out of the log, in this order, so that the rest is consistent at every
        moment."""
        for segment in segments:
            segment.release()
            doomed = [*segment.paths(), *self._snapshot_of(segment)]
            for path in doomed:
                self._disk.rename(path, path + names.DELETED)
            self._discard([path + names.DELETED for path in doomed])

    def _snapshot_of(self, segment: Segment) -> list[str]:
        path = names.segment_path(self._folder, segment.base_offset, names.SNAPSHOT)
        return [path] if self._disk.exists(path) else []

    def _transaction_index(self, at: int) -> TransactionIndex:
        return sound_transaction_index(self._disk, self._folder, self._segments, at)

    def _position_below(self, at: int, upper: Offset) -> int:
        """Up to which byte segment `at` may be read if offsets from `upper` on must not be visible."""
        segment = self._segments[at]
        place = None if upper >= self.end_of(at) else segment.locate(upper)
        return segment.size_bytes if place is None else place.position


def _load(segment: Segment, place: BatchPlace) -> Batch:
    segment.verify(place.position, place.position + place.size_bytes)
    return Batch(segment.file.read_at(place.position, place.size_bytes))


def _largest_behind(segment: Segment, start: Offset) -> Generator["TimeLook", "TimeFound", TimestampMs]:
    """The largest timestamp of a segment's records at or behind `start`; only the batch that contains it is decoded."""
    largest = NO_TIMESTAMP
    place = segment.locate(start)
    while place is not None:
        if place.base_offset >= start:
            largest = max(largest, place.max_timestamp)
        else:
            found = yield _load(segment, place), start, None
            if found is not None:
                largest = max(largest, TimestampMs(found[0]))
        place = segment.locate(Offset(place.last_offset + 1))
    return largest


# Searches by time, which look into batches

TimeLook = tuple[Batch, Offset, TimestampMs | None]
"""What `find_time` takes."""
TimeFound = tuple[int, int] | None
TimeSearch = Generator[TimeLook, TimeFound, TimestampOffset | None]
"""Yields what must be looked for in a batch, and goes on with what was found there."""


def run_search(search: TimeSearch) -> TimestampOffset | None:
    """Runs it at once."""
    try:
        look = next(search)
        while True:
            look = search.send(find_time(*look))
    except StopIteration as end:
        result: TimestampOffset | None = end.value
        return result
