"""A segment: one `.log` file of batches with its offset, time and transaction index.

Covers appending, finding a batch by offset or time, reading as file ranges, verifying what was read from disk, and
rebuilding indexes that are damaged. Which segment to ask, and when to roll, is the log's to decide.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.env.ports import Disk, File
from ottla.model.errors import CorruptError, StorageError
from ottla.model.ids import NO_TIMESTAMP, Offset, TimestampMs
from ottla.records.batch import Batch
from ottla.records.layout import HEADER_BYTES, MAGIC
from ottla.storage import names
from ottla.storage.config import LogConfig
from ottla.storage.offset_index import OffsetIndex, OffsetPosition
from ottla.storage.scanner import DamagedSegmentError, scan_file
from ottla.storage.search import find_batch_header
from ottla.storage.time_index import TimeIndex, TimestampOffset
from ottla.storage.transaction_index import TransactionIndex
from ottla.storage.verified_ranges import VerifiedRanges

_WALK_BYTES: Final = 8192
_BASE_OFFSET_AND_MAGIC: Final = Struct(">q8xb")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class FileRange(NamedTuple):
    """Whole batches as they lie in a file, ready for `sendfile`; a last one may be cut off by the reader's limit.

    The reference keeps the file readable, even if its segment is deleted meanwhile.
    """

    file: File
    position: int
    size: int


class BatchPlace(NamedTuple):
    """A batch's place in its segment, as its header tells it."""

    position: int
    size_bytes: int
    base_offset: Offset
    last_offset: Offset
    max_timestamp: TimestampMs


class Segment:
    """Batches from `base_offset` on.

    `size_bytes` is the end of the last whole batch; `next_offset` the offset after it. Only the last segment of a log,
    the active one, grows; the others are sealed, and their next offset is not kept: the next segment's base bounds it.
    """

    __slots__ = (
        "_disk",
        "_file",
        "_folder",
        "_grows",
        "_index_interval_bytes",
        "_indexed",
        "_largest",
        "_since_index",
        "_verified",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "in_use",
        "is_new",
        "next_offset",
        "offset_index",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self, disk: Disk, folder: str, base_offset: Offset, config: LogConfig, now: TimestampMs, *, suffix: str = ""
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._file: File | None = None
        self._grows = True
        self._indexed = True
        self._index_interval_bytes = config.index_interval_bytes
        self._since_index = 0
        self._largest: TimestampOffset | None = TimestampOffset(NO_TIMESTAMP, base_offset)
        self._verified = VerifiedRanges()
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.created_ms = now
        self.first_timestamp = NO_TIMESTAMP
        self.in_use = False
        """Set by every read; the log clears it now and then, and releases what was not used since."""
        self.is_new = False
        """Whether its name may not yet survive a power cut."""
        bytes_max = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, self._path(names.OFFSET_INDEX + suffix), base_offset, bytes_max)
        self.time_index = TimeIndex(disk, self._path(names.TIME_INDEX + suffix), base_offset, bytes_max)
        self.transaction_index = TransactionIndex(disk, self._path(names.TRANSACTION_INDEX + suffix))

    @classmethod
    def create(
        cls, disk: Disk, folder: str, base_offset: Offset, config: LogConfig, now: TimestampMs, *, suffix: str = ""
    ) -> "Segment":
        """A new, empty one; leftovers of the same name go."""
        segment = cls(disk, folder, base_offset, config, now, suffix=suffix)
        for kind in names.SEGMENT_SUFFIXES:
            if disk.exists(segment._path(kind + suffix)):
                disk.remove(segment._path(kind + suffix))
        segment._file = disk.open(segment._path(names.LOG + suffix), create=True)
        segment.is_new = True
        return segment

    @classmethod
    def open(cls, disk: Disk, folder: str, base_offset: Offset, config: LogConfig, now: TimestampMs) -> "Segment":
        """An existing, sealed one. Its indexes are looked at when they are first needed."""
        segment = cls(disk, folder, base_offset, config, now)
        segment.size_bytes = disk.size(segment.log_path)
        segment._grows = False
        segment._indexed = False
        segment._largest = None
        return segment

    # What it is

    @property
    def log_path(self) -> str:
        """The `.log` file."""
        return self._path(names.LOG)

    @property
    def file(self) -> File:
        """The `.log` file, opened when first needed; for reading only if the segment is sealed."""
        self.in_use = True
        if self._file is None:
            self._file = self._disk.open(self.log_path, writable=self._grows)
        return self._file

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of its batch; (-1, base offset) in a segment without any."""
        if self._largest is None:
            self._load_indexes()
            self._largest = self.time_index.last()
        return self._largest

    @property
    def newest_ms(self) -> TimestampMs:
        """The largest timestamp; without any, when the segment was created or opened."""
        return self.largest.timestamp if self.largest.timestamp >= 0 else self.created_ms

    def paths(self) -> list[str]:
        """Every file that exists for this segment, the `.log` first."""
        candidates = (self._path(kind) for kind in names.SEGMENT_SUFFIXES)
        return [path for path in candidates if self._disk.exists(path)]

    def fits(self, last_offset: Offset) -> bool:
        """Whether offsets up to this one can be told relative to the base."""
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    # Growing

    def append(self, batches: Sequence[Batch]) -> None:
        """Writes stamped batches behind the last one, in one gathered write, and indexes them.

        If the disk refuses, the segment is as it was before, or raises again when that fails too.
        """
        buffers = [batch.buffer for batch in batches]
        self._append(batches, buffers, sum([batch.size_bytes for batch in batches]))

    def append_run(self, batches: Sequence[Batch], run: memoryview) -> None:
        """The same for batches that already lie one behind the other in `run`."""
        self._append(batches, [run], len(run))

    def _append(self, batches: Sequence[Batch], buffers: Sequence[memoryview], size: int) -> None:
        position = self.size_bytes
        file = self._file if self._file is not None else self.file
        try:
            if self._since_index + size > self._index_interval_bytes:
                self.offset_index.entries.reserve(len(batches))
                self.time_index.entries.reserve(len(batches) + 1)
            file.write_at(position, buffers)
        except OSError as error:
            self._take_back(position)
            raise StorageError(f"{self.log_path}, byte {position}: cannot append {size} bytes: {error.strerror}") from error
        for batch in batches:
            self.index_batch(batch, position)
            position += batch.size_bytes
        self._verified.add(self.size_bytes, position)
        self.size_bytes = position
        self.next_offset = batches[-1].next_offset

    def index_batch(self, batch: Batch, position: int) -> None:
        """Notes a batch at `position` in the indexes, where one is due."""
        largest = self.largest
        timestamp = batch.max_timestamp
        if timestamp > largest.timestamp:
            self._largest = largest = TimestampOffset(timestamp, batch.last_offset)
        if position == 0:
            self.first_timestamp = timestamp
        if self._since_index > self._index_interval_bytes:
            self.offset_index.append(batch.last_offset, position)
            self.time_index.append(largest.timestamp, largest.offset)
            self._since_index = 0
        self._since_index += batch.size_bytes

    def seal(self) -> None:
        """Ends the growing: the last time entry is added and the indexes are trimmed."""
        largest = self.largest
        self.time_index.append(largest.timestamp, largest.offset)
        self.offset_index.entries.seal()
        self.time_index.entries.seal()

    def resume(self) -> None:
        """Makes a sealed segment grow again: it is the log's last one."""
        self._grows = True
        self._file = None
        self.next_offset = self._read_next_offset()
        first = self._walk(0, self.base_offset, NO_TIMESTAMP)
        self.first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp

    # Finding and reading

    def locate(self, offset: Offset, timestamp: TimestampMs = NO_TIMESTAMP) -> BatchPlace | None:
        """The first batch that reaches `offset` or beyond, with a timestamp of at least `timestamp` in it."""
        return self._walk(self._start_of_walk(offset).position, offset, timestamp)

    def locate_timestamp(self, timestamp: TimestampMs, start_offset: Offset) -> BatchPlace | None:
        """The first batch at or behind `start_offset` that has a record of at least `timestamp`."""
        self._load_indexes()
        try:
            offset = self._timed_start(timestamp)
        except CorruptError:
            self.rebuild_indexes()
            offset = self._timed_start(timestamp)
        return self.locate(max(offset, start_offset), timestamp)

    def read(self, place: BatchPlace, size_max: int, position_max: int) -> FileRange:
        """The bytes from a batch on: at least that batch whole, at most `size_max` and not beyond `position_max`."""
        size = min(max(size_max, place.size_bytes), position_max - place.position)
        self.verify(place.position, place.position + size)
        return FileRange(self.file, place.position, size)

    def verify(self, start: int, end: int) -> None:
        """Makes sure that the batches in a range were checked once since the segment was opened.

        Raises DamagedSegmentError, so that no corrupt batch is served or replicated. What this process appended or
        recovered is known to be good.
        """
        if self._verified.covers(start, end):
            return
        reached = start
        try:
            for piece in scan_file(self.file, start, self.size_bytes):
                reached = piece.end
                self._verified.add(start, reached)
                if reached >= end:
                    return
        except OSError as error:
            raise StorageError(f"{self.log_path}: cannot read: {error.strerror}") from error

    def mark_verified(self, start: int, end: int) -> None:
        """Says that the batches in a range have just been checked."""
        self._verified.add(start, end)

    def place_at(self, position: int) -> BatchPlace | None:
        """The batch whose header stands at `position`; None if that is the end, or no whole batch stands there."""
        header = self.file.read_at(position, HEADER_BYTES)
        _, size, base_offset, last_offset, largest = find_batch_header(header, 0, NO_TIMESTAMP)
        if size <= 0 or position + size > self.size_bytes:
            return None
        return BatchPlace(position, size, Offset(base_offset), Offset(last_offset), TimestampMs(largest))

    # Shrinking and mending

    def truncate_to(self, offset: Offset) -> int:
        """Removes the batch that holds `offset` and all behind it; says how many bytes went."""
        place = self.locate(offset)
        if place is None:
            return 0
        removed = self.size_bytes - place.position
        self.cut(place.position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self._since_index = 0
        self._largest = self._largest_by_scan(self.time_index.last())
        self.resume()
        return removed

    def cut(self, position: int) -> None:
        """Shortens the `.log` file alone; the indexes are the caller's to mend."""
        file = self._disk.open(self.log_path)
        file.truncate(position)
        file.close()
        self.size_bytes = position
        self._verified.truncate_to(position)

    def reset_indexes(self) -> None:
        """Empties the offset and time index, to be filled by `index_batch` from the first batch on."""
        for entries in (self.offset_index.entries, self.time_index.entries):
            entries.close()
            if self._disk.exists(entries.path):
                self._disk.truncate(entries.path, 0)
            entries.count = 0
        self.time_index.truncate_to(self.base_offset)
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._since_index = 0
        self._indexed = True

    def rebuild_indexes(self) -> None:
        """Fills damaged offset and time indexes anew from the batches."""
        self.reset_indexes()
        for piece in scan_file(self.file, 0, self.size_bytes, check_crc=False):
            for batch in piece.batches:
                self.index_batch(batch, piece.position + batch.position)

    def release(self) -> None:
        """Gives back the file handle and the maps; the next use takes them again."""
        self._file = None
        self.offset_index.entries.close()
        self.time_index.entries.close()

    def _path(self, kind: str) -> str:
        return names.segment_path(self._folder, self.base_offset, kind)

    def _take_back(self, position: int) -> None:
        """After a failed write: what may have been written of it must not look like a part of the log."""
        try:
            self.file.truncate(position)
        except OSError as error:
            raise StorageError(f"{self.log_path}: cannot take back a failed append at byte {position}: {error}") from error

    def _load_indexes(self) -> None:
        """Takes over the index files at first need; missing or damaged ones are rebuilt."""
        if self._indexed:
            return
        self._indexed = True
        try:
            self.offset_index.entries.load()
            self.time_index.load()
        except (CorruptError, FileNotFoundError):
            self.rebuild_indexes()

    def _start_of_walk(self, offset: Offset) -> OffsetPosition:
        self._load_indexes()
        try:
            return self._indexed_start(offset)
        except CorruptError:
            self.rebuild_indexes()
            return self.offset_index.look_up(offset)

    def _read_next_offset(self) -> Offset:
        """The offset behind the last batch, found through the index and the headers after it."""
        start = self._start_of_walk(Offset(self.base_offset + RELATIVE_OFFSET_MAX))
        next_offset = self.base_offset
        for piece in scan_file(self.file, start.position, self.size_bytes, check_crc=False):
            next_offset = piece.batches[-1].next_offset
        return next_offset

    def _indexed_start(self, offset: Offset) -> OffsetPosition:
        """Where to begin the walk to `offset`; raises CorruptError if the index lies about what stands there."""
        start = self.offset_index.look_up(offset)
        if start.position == 0:
            return start
        header = self.file.read_at(start.position, HEADER_BYTES)
        if len(header) == HEADER_BYTES and start.position < self.size_bytes:
            base_offset, magic = _BASE_OFFSET_AND_MAGIC.unpack_from(header)
            if magic == MAGIC and self.base_offset <= base_offset <= start.offset:
                return start
        path = self.offset_index.entries.path
        raise CorruptError(f"{path}: says that the batch of offset {start.offset} is at {start.position}; it is not")

    def _timed_start(self, timestamp: TimestampMs) -> Offset:
        entry = self.time_index.look_up(TimestampMs(timestamp - 1))
        if entry.timestamp == NO_TIMESTAMP:
            return self.base_offset
        place = self.locate(entry.offset)
        if place is None or place.max_timestamp != entry.timestamp:
            raise CorruptError(f"{self.time_index.entries.path}: offset {entry.offset} has not {entry.timestamp}")
        return entry.offset

    def _walk(self, position: int, offset: Offset, timestamp: TimestampMs) -> BatchPlace | None:
        while position < self.size_bytes:
            piece = self.file.read_at(position, min(_WALK_BYTES, self.size_bytes - position))
            at, size, base_offset, last_offset, largest = find_batch_header(piece, offset, timestamp)
            if size < 0 or (size == 0 and at == 0):
                raise DamagedSegmentError(self.log_path, position + at, "no batch begins here")
            if size > 0:
                return BatchPlace(
                    position + at, size, Offset(base_offset), Offset(last_offset), TimestampMs(largest)
                )
            position += at
        return None

    def _largest_by_scan(self, known: TimestampOffset) -> TimestampOffset:
        """The largest timestamp, given that of the last time entry: batches behind it may have a larger one."""
        place = self.locate(known.offset)
        if place is None:
            return known
        for piece in scan_file(self.file, place.position, self.size_bytes, check_crc=False):
            for batch in piece.batches:
                if batch.max_timestamp > known.timestamp:
                    known = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return known
