"""The segments of one log in order: which holds an offset, reading across them, and taking some out.

The last segment is the active one. Bounds that consumers see (start, high watermark) are the log's, not the list's.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from ottla.env.ports import Disk
from ottla.model.errors import MisuseError
from ottla.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.storage import names
from ottla.storage.segment import BatchPlace, FileRange, Segment
from ottla.storage.time_index import TimestampOffset
from ottla.storage.transaction_index import AbortedTransaction


class SegmentList:
    """At least one segment; base offsets only grow, and `bases` mirrors them for bisection.

    `discard` takes the paths of files that are no longer part of the log, to be unlinked after their delay.
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
        """Which segment holds `offset`, or would; the first for anything below it."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def from_offset(self, offset: Offset) -> list[Segment]:
        """The segment that holds `offset`, and all after it."""
        return self._segments[self.index_of(offset) :]

    def end_of(self, at: int) -> Offset:
        """An offset that no record of segment `at` reaches."""
        return self.active.next_offset if at == len(self._segments) - 1 else self._bases[at + 1]

    # Reading

    def read(self, offset: Offset, max_bytes: int, upper: Offset, *, at_least_one: bool) -> FileRange | None:
        """Batches from the one that holds `offset` on, within one segment and below `upper`; None if there are none."""
        for at in range(self.index_of(offset), len(self._segments)):
            segment = self._segments[at]
            place = segment.locate(offset)
            if place is None:
                continue  # Compaction has removed the end of this segment.
            if place.base_offset >= upper or (place.size_bytes > max_bytes and not at_least_one):
                return None
            return segment.read(place, max_bytes, self._position_below(at, upper))
        return None

    def find_timestamp(self, timestamp: TimestampMs, start: Offset) -> TimestampOffset | None:
        """The first record at or behind `start` with at least this timestamp, and its own."""
        for segment in self.from_offset(start):
            if segment.largest.timestamp < timestamp:
                continue
            place = segment.locate_timestamp(timestamp, start)
            while place is not None:
                for record in decode_records(_load(segment, place)):
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampOffset(TimestampMs(record.timestamp), Offset(record.offset))
                place = segment.locate(Offset(place.last_offset + 1), timestamp)
        return None

    def largest_timestamp(self, start: Offset) -> TimestampOffset | None:
        """The first record at or behind `start` that has the largest timestamp of all."""
        largest = max(segment.largest.timestamp for segment in self.from_offset(start))
        return None if largest == NO_TIMESTAMP else self.find_timestamp(largest, start)

    def aborted_transactions(self, start: Offset, upper: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start, upper) must leave out."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(start):
            for aborted in segment.transaction_index.entries():
                if aborted.last_offset >= start and aborted.first_offset < upper:
                    found.append(aborted)
                if aborted.last_stable_offset >= upper:
                    return found
        return found

    # Changing

    def add(self, segment: Segment) -> None:
        """Makes a new segment the active one; an active one that is still empty gives way to it."""
        if self.active.size_bytes == 0:
            self._retire([self._segments.pop()])
        self._adopt([*self._segments, segment])

    def drop_after(self, offset: Offset) -> None:
        """Takes out the segments that begin at or behind `offset`, the newest first, durably. At least one must stay."""
        keep = bisect_right(self._bases, offset - 1)
        self._retire(reversed(self._segments[keep:]))
        self._disk.sync_dir(self._folder)
        self._adopt(self._segments[:keep])

    def drop_before(self, count: int) -> None:
        """Takes out that many segments from the front."""
        self._retire(self._segments[:count])
        self._adopt(self._segments[count:])

    def drop_all(self, make_next: Callable[[], Segment]) -> None:
        """Takes out everything, durably, and goes on with what `make_next` creates."""
        self._retire(reversed(self._segments))
        self._disk.sync_dir(self._folder)
        self._adopt([make_next()])

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts a cleaned segment in the place of the sealed neighbours it was made from; their files are the caller's."""
        at = self._segments.index(old[0])
        if self._segments[at : at + len(old)] != list(old) or at + len(old) >= len(self._segments):
            raise MisuseError(f"{self._folder}: the segments to replace are no longer sealed neighbours")
        self._adopt([*self._segments[:at], new, *self._segments[at + len(old) :]])

    def release(self) -> None:
        """Gives back every handle and map."""
        for segment in self._segments:
            segment.release()

    def release_idle(self) -> None:
        """Gives back those of sealed segments that nobody has read since the last call."""
        for segment in self._segments[:-1]:
            if not segment.in_use:
                segment.release()
            segment.in_use = False

    def _adopt(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def _retire(self, segments: Iterable[Segment]) -> None:
        """Renames segments' files out of the log, in this order, so that what is left is whole at every moment."""
        for segment in segments:
            segment.release()
            doomed = [*segment.paths(), *self._snapshot_of(segment)]
            for path in doomed:
                self._disk.rename(path, path + names.DELETED)
            self._discard([path + names.DELETED for path in doomed])

    def _snapshot_of(self, segment: Segment) -> list[str]:
        path = names.segment_path(self._folder, segment.base_offset, names.SNAPSHOT)
        return [path] if self._disk.exists(path) else []

    def _position_below(self, at: int, upper: Offset) -> int:
        """Up to which byte segment `at` may be read when offsets from `upper` on must not be seen."""
        segment = self._segments[at]
        place = None if upper >= self.end_of(at) else segment.locate(upper)
        return segment.size_bytes if place is None else place.position


def _load(segment: Segment, place: BatchPlace) -> Batch:
    segment.verify(place.position, place.position + place.size_bytes)
    return Batch(segment.file.read_at(place.position, place.size_bytes))
