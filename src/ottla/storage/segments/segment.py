"""A segment: one `.log` file of batches with its offset, time and transaction index.

Covers appending, finding a batch by offset or time, reading as file ranges, verifying what was read from disk, and
rebuilding damaged indexes. The log decides which segment to use and when to roll.
"""

import logging
from bisect import insort
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.env.ports import Disk, File
from ottla.model.errors import CorruptError, StorageError
from ottla.model.ids import NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from ottla.records.batch import Batch
from ottla.records.layout import HEADER_BYTES
from ottla.storage.data_dirs import names
from ottla.storage.log_config import LogConfig
from ottla.storage.segments.offset_index import OffsetIndex, OffsetPosition
from ottla.storage.segments.scanner import (
    EPOCH_MAX,
    BatchEpoch,
    BatchOrder,
    DamagedSegmentError,
    Piece,
    find_batch,
    scan_file,
)
from ottla.storage.segments.search import find_batch_header
from ottla.storage.segments.time_index import TimeIndex, TimestampOffset
from ottla.storage.segments.transaction_index import TransactionIndex
from ottla.storage.segments.verified_ranges import VerifiedRanges

_LOGGER: Final = logging.getLogger(__name__)
_WALK_BYTES: Final = 8192

_ANY_TIMESTAMP: Final = TimestampMs(-(2**63))
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class FileRange(NamedTuple):
    """Whole batches in a file, ready for `sendfile`; the last one may be cut off by the reader's limit.

    The reference keeps the file readable even if its segment is deleted in the meantime.
    """

    file: File
    position: int
    size: int


class BatchPlace(NamedTuple):
    """A batch's place in its segment, according to its header."""

    position: int
    size_bytes: int
    base_offset: Offset
    last_offset: Offset
    max_timestamp: TimestampMs


class Hole(NamedTuple):
    """Bytes of a segment that are not valid batches; they are followed by a valid batch or the end of the segment."""

    start: int
    end: int


class Segment:
    """Batches from `base_offset` on.

    `size_bytes` is the end of the last whole batch, `next_offset` the offset behind it. Only the last segment of a log,
    the active one, grows. The others are sealed, and their next offset is not kept: the next segment's base offset
    limits it.
    """

    __slots__ = (
        "_appended_from",
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
        "closed_at",
        "created_ms",
        "first_timestamp",
        "holes",
        "in_use",
        "is_new",
        "last_batch",
        "limit_offset",
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
        self._appended_from = 0
        """From this position on the bytes were written by this process."""
        self.holes: list[Hole] = []
        """Known damaged bytes, in order: walks skip them, and reads of them raise."""
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.limit_offset: Offset | None = None
        """Where the next segment begins, if there is one: all offsets of this segment are below."""
        self.last_batch: BatchEpoch | None = None
        """The last batch when the end was last looked for."""
        self.closed_at: Offset | None = None
        """Where it ended at the clean shutdown before it was opened, if it is the last of its log."""
        self.size_bytes = 0
        self.created_ms = now
        self.first_timestamp = NO_TIMESTAMP
        self.in_use = False
        """Set by every read. The log clears it now and then, and releases segments that were not used since."""
        self.is_new = False
        """Whether its name may not survive a power cut yet."""
        bytes_max = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, self._path(names.OFFSET_INDEX + suffix), base_offset, bytes_max)
        self.time_index = TimeIndex(disk, self._path(names.TIME_INDEX + suffix), base_offset, bytes_max)
        self.transaction_index = TransactionIndex(disk, self._path(names.TRANSACTION_INDEX + suffix))

    @classmethod
    def create(
        cls, disk: Disk, folder: str, base_offset: Offset, config: LogConfig, now: TimestampMs, *, suffix: str = ""
    ) -> "Segment":
        """Creates an empty segment. Files left under the same names are deleted, but batches are set aside."""
        segment = cls(disk, folder, base_offset, config, now, suffix=suffix)
        for kind in names.SEGMENT_SUFFIXES:
            path = segment._path(kind + suffix)
            if not disk.exists(path):
                continue
            if kind == names.LOG and not suffix and disk.size(path) > 0:
                kept = set_aside(disk, path)
                _LOGGER.error("%s: replaced by a new segment; the old file was not empty and is kept in %s", path, kept)
            else:
                disk.remove(path)
        segment._file = disk.open(segment._path(names.LOG + suffix), create=True)
        segment.transaction_index.reset()
        segment.is_new = True
        return segment

    @classmethod
    def open(cls, disk: Disk, folder: str, base_offset: Offset, config: LogConfig, now: TimestampMs) -> "Segment":
        """An existing, sealed segment. Its indexes are loaded when they are first needed."""
        segment = cls(disk, folder, base_offset, config, now)
        segment.size_bytes = segment._appended_from = disk.size(segment.log_path)
        segment._grows = False
        segment._indexed = False
        segment._largest = None
        return segment

    # State

    @property
    def log_path(self) -> str:
        """The path of the `.log` file."""
        return self._path(names.LOG)

    @property
    def opened_bytes(self) -> int:
        """The size of what was in the segment when it was opened, less what was truncated since."""
        return self._appended_from

    @property
    def file(self) -> File:
        """The `.log` file, opened when first needed; read-only if the segment is sealed or the disk is read-only."""
        self.in_use = True
        if self._file is None:
            try:
                self._file = self._disk.open(self.log_path, writable=self._grows)
            except OSError:
                # Not kept: once the disk is writable again, the handle must be writable too.
                return self._disk.open(self.log_path, writable=False)
        return self._file

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp, and the last offset of its batch; (-1, base offset) if the segment has none."""
        if self._largest is None:
            self._load_indexes()
        if self._largest is None:
            try:
                self._largest = self._indexed_largest()
            except DamagedSegmentError:
                self._largest = self.time_index.last()  # The log is damaged, and readers get the error.
            except CorruptError:
                self.rebuild_indexes()
                return self.largest
        return self._largest

    @property
    def newest_ms(self) -> TimestampMs:
        """The largest timestamp; if no record has one, the modification time of the file, as in Kafka."""
        largest = self.largest.timestamp
        if largest >= 0:
            return largest
        try:
            return self._disk.modified_ms(self.log_path)
        except OSError as error:
            raise StorageError(f"{self.log_path}: cannot read: {error.strerror}") from error

    def paths(self) -> list[str]:
        """Every existing file of this segment, the `.log` first."""
        candidates = (self._path(kind) for kind in names.SEGMENT_SUFFIXES)
        return [path for path in candidates if self._disk.exists(path)]

    def fits(self, last_offset: Offset) -> bool:
        """Whether offsets up to this one fit into an int32 relative to the base offset."""
        return last_offset - self.base_offset <= RELATIVE_OFFSET_MAX

    # Appending

    def append(self, batches: Sequence[Batch]) -> None:
        """Writes batches that have their offsets behind the last one, in one gathered write, and indexes them.

        If the disk fails, the segment is unchanged; if undoing the write fails too, that error is raised.
        """
        if len(batches) == 1:
            self._append(batches, (batches[0].buffer,), batches[0].size_bytes)
            return
        size = 0
        for batch in batches:
            size += batch.size_bytes
        self._append(batches, [batch.buffer for batch in batches], size)

    def append_run(self, batches: Sequence[Batch], run: memoryview) -> None:
        """Appends batches that are already contiguous in `run`."""
        self._append(batches, [run], len(run))

    def _append(self, batches: Sequence[Batch], buffers: Sequence[memoryview], size: int) -> None:
        position = self.size_bytes
        try:
            # Loads the index if necessary: nothing may fail after the write.
            self._largest = self._largest or self.largest
            self.in_use = True
            file = self.file if self._file is None else self._file
        except OSError as error:
            raise StorageError(f"{self.log_path}: cannot open: {error.strerror}") from error
        try:
            file.write_at(position, buffers)
        except OSError as error:
            self._take_back(position)
            raise StorageError(
                f"{self.log_path}, byte {position}: cannot append {size} bytes: {error.strerror}"
            ) from error
        for batch in batches:
            self.index_batch(batch, position)
            position += batch.size_bytes
        self.size_bytes = position
        self.next_offset = batches[-1].next_offset

    def index_batch(self, batch: Batch, position: int) -> None:
        """Adds a batch at `position` to the indexes, where an entry is due."""
        largest = self._largest or self.largest
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
        """Ends the growth: adds the last time entry and writes the indexes."""
        largest = self.largest
        self.time_index.append(largest.timestamp, largest.offset)
        self.offset_index.entries.seal()
        self.time_index.entries.seal()

    def resume(self) -> None:
        """Makes a sealed segment, the last one of its log, grow again."""
        self._grows = True
        self._file = None
        self.next_offset = self._read_next_offset()
        first = self._walk(0, self.base_offset, _ANY_TIMESTAMP)
        self.first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp

    # Finding and reading

    def locate(self, offset: Offset, timestamp: TimestampMs = _ANY_TIMESTAMP) -> BatchPlace | None:
        """The first batch that reaches at least `offset`, and contains a timestamp of at least `timestamp`."""
        start = self._start_of_walk(offset).position
        place = self._walk(start, offset, timestamp)
        if place is None or place.base_offset > offset:
            # Compaction leaves such gaps, and so would a damaged header; the checksums show which it is. A disk that
            # wrote to the wrong place has good checksums, but the missing batch lies behind.
            end = self.size_bytes if place is None else place.position + place.size_bytes
            self.verify(start, end, trusted_from=self.size_bytes if timestamp == _ANY_TIMESTAMP else None)
        return place

    def locate_timestamp(self, timestamp: TimestampMs, start_offset: Offset) -> BatchPlace | None:
        """The first batch at or behind `start_offset` with a record of at least `timestamp`."""
        self._load_indexes()
        try:
            offset = self._timed_start(timestamp)
        except DamagedSegmentError:
            raise  # The log is damaged, not its index.
        except CorruptError:
            self.rebuild_indexes()
            offset = self._timed_start(timestamp)
        return self.locate(max(offset, start_offset), timestamp)

    def read(self, place: BatchPlace, size_max: int, position_max: int) -> FileRange:
        """The bytes from a batch on: at least that whole batch, at most `size_max`, and not beyond `position_max`.

        Ends before a damaged batch; raises DamagedSegmentError if the first one is damaged.
        """
        end = place.position + min(max(size_max, place.size_bytes), position_max - place.position)
        try:
            self.verify(place.position, end)
        except DamagedSegmentError as damage:
            if damage.position < place.position + place.size_bytes:
                raise
            end = min(end, damage.position)
        return FileRange(self.file, place.position, end - place.position)

    def verify(self, start: int, end: int, *, trusted_from: int | None = None) -> None:
        """Makes sure that the batches in a range were checked once since the segment was opened.

        Raises DamagedSegmentError, so that no corrupt batch is served or replicated. Batches that this process appended
        or recovered are trusted, unless `trusted_from` says from which position on.
        """
        if trusted_from is None:
            trusted_from = self._appended_from
        if start >= trusted_from or self._verified.covers(start, min(end, trusted_from)):
            return
        order = BatchOrder(self.log_path, self.base_offset)
        try:
            for piece in scan_file(self.file, start, trusted_from):
                _, damage = order.follow(piece, self.following(piece.end))
                reached = piece.end if damage is None else damage.position
                self._verified.add(start, reached)
                if reached >= end:
                    return
                if damage is not None:
                    raise damage
        except OSError as error:
            raise StorageError(f"{self.log_path}: cannot read: {error.strerror}") from error

    def batches(self, start: int, end: int, *, is_lenient: bool = False) -> Iterator[Piece]:
        """The batches between two positions by their headers, without those in known holes.

        Raises DamagedSegmentError at unknown damage; with `is_lenient` the damage is noted as a hole instead.
        """
        position = start
        while position < end:
            hole = self._hole_behind(position)
            if hole is not None and hole.start <= position:
                position = hole.end
                continue
            stop = end if hole is None else min(end, hole.start)
            try:
                for piece in scan_file(self.file, position, stop, check_crc=False):
                    yield piece
                    position = piece.end
            except DamagedSegmentError:
                found = self._find_hole(start) if is_lenient else None
                if found is None:
                    raise
                # A wrong length may have skipped batches that can be read.
                position = found.end

    def step_over(self, position: int, expected: Offset) -> Hole:
        """Notes that no valid batch begins at `position`, where one of `expected` or more should be; returns the hole.

        It ends where the damaged batch ends according to its header, if a valid batch begins there; otherwise at the
        next valid batch.
        """
        place = self.place_at(position)
        end = None if place is None else self._end_of_damaged(place, expected)
        if end is None:
            end = self._next_valid(position + 1, Offset(expected + 1))
        hole = Hole(position, self.size_bytes if end is None else end)
        insort(self.holes, hole)
        return hole

    def _end_of_damaged(self, place: BatchPlace, expected: Offset) -> int | None:
        """Where a damaged batch ends, if its header can be trusted for that."""
        end = place.position + place.size_bytes
        base_offset = self._valid_base_at(end)
        if self._valid_base_at(place.position) == NO_OFFSET:
            return end if end == self.size_bytes or expected < base_offset < self._limit() else None
        # Its checksum is right, but its offset contradicts the batches around it, which may be the wrong ones.
        if end == self.size_bytes or base_offset in (expected, expected + place.last_offset - place.base_offset + 1):
            return end
        return self._next_valid(end, Offset(place.last_offset + 1))

    def _next_valid(self, position: int, lowest: Offset) -> int | None:
        below = self._limit()
        return find_batch(self.file, position, self.size_bytes, lowest=lowest, below=below) if lowest < below else None

    def _valid_base_at(self, position: int) -> Offset:
        """The base offset of the valid batch at `position`; -1 if there is none."""
        place = self.place_at(position)
        if place is None or not Batch(self.file.read_at(position, place.size_bytes)).crc_valid():
            return NO_OFFSET
        return place.base_offset

    def _find_hole(self, start: int) -> Hole | None:
        """Looks for unknown damage behind `start`, where a batch begins, and notes it."""
        order = BatchOrder(self.log_path, self.base_offset)
        position, expected = start, self.base_offset
        while position < self.size_bytes:
            hole = self._hole_behind(position)
            if hole is not None and hole.start <= position:
                position = hole.end
                continue
            try:
                for piece in scan_file(self.file, position, self.size_bytes if hole is None else hole.start):
                    good, damage = order.follow(piece, self.following(piece.end))
                    expected = good[-1].next_offset if good else expected
                    position = piece.end if damage is None else damage.position
                    if damage is not None:
                        raise damage
            except DamagedSegmentError as damage:
                return self.step_over(damage.position, expected)
        return None

    def _hole_behind(self, position: int) -> Hole | None:
        """The first known hole that ends behind `position`."""
        for hole in self.holes:
            if hole.end > position:
                return hole
        return None

    def mark_verified(self, start: int, end: int) -> None:
        """The batches in a range have just been checked."""
        self._verified.add(start, end)

    def place_at(self, position: int) -> BatchPlace | None:
        """The batch whose header is at `position`; None if that is the end, or if there is no whole batch."""
        header = self.file.read_at(position, HEADER_BYTES)
        _, size, base_offset, last_offset, largest = find_batch_header(header, 0, _ANY_TIMESTAMP)
        if size <= 0 or position + size > self.size_bytes:
            return None
        return BatchPlace(position, size, Offset(base_offset), Offset(last_offset), TimestampMs(largest))

    def following(self, position: int) -> tuple[Offset, LeaderEpoch]:
        """The offset and leader epoch of the batch at `position`; if there is no valid batch, the largest possible
        ones."""
        place = self.place_at(position) if position < self.size_bytes else None
        if place is not None:
            # An unfinished write says nothing about the batch before it, so that only a valid checksum counts.
            batch = Batch(self.file.read_at(position, place.size_bytes))
            if batch.crc_valid():
                return batch.base_offset, batch.leader_epoch
        return self._limit(), EPOCH_MAX

    def _limit(self) -> Offset:
        """All offsets of this segment are below."""
        return self.limit_offset if self.limit_offset is not None else Offset(self.base_offset + RELATIVE_OFFSET_MAX)

    # Truncating and repairing

    def truncate_to(self, offset: Offset) -> int:
        """Removes the batch that contains `offset` and all behind it; returns the number of bytes removed."""
        place = self.locate(offset)
        if place is None:
            self.resume()
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

    def end_offset(self) -> Offset:
        """The offset behind the last batch of a sealed segment; the base offset if it has none."""
        return self._read_next_offset()

    def end_before(self, offset: Offset) -> Offset:
        """The offset behind the last batch that is completely before `offset`; the base offset if there is none."""
        place = self.locate(offset)
        end = self.size_bytes if place is None else place.position
        next_offset = self.base_offset
        for piece in self.batches(self._start_of_walk(Offset(offset - 1)).position, end):
            next_offset = piece.batches[-1].next_offset
        return next_offset

    def cut(self, position: int) -> None:
        """Truncates the `.log` file only; the caller repairs the indexes."""
        file = self._disk.open(self.log_path)
        file.truncate(position)
        file.close()
        self.size_bytes = position
        self._appended_from = min(self._appended_from, position)
        self._verified.truncate_to(position)
        self.holes = [Hole(start, min(end, position)) for start, end in self.holes if start < position]

    def reset_indexes(self) -> None:
        """Clears the offset and time index; `index_batch` fills them from the first batch on."""
        self.offset_index.entries.reset()
        self.time_index.reset()
        self._largest = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        self._since_index = 0
        self._indexed = True

    def rebuild_indexes(self) -> None:
        """Rebuilds damaged offset and time indexes from the batches, and writes those of a sealed segment.

        Raises DamagedSegmentError if the batches are damaged too; then the indexes stay as they are.
        """
        _LOGGER.warning("%s: rebuilding the offset and time index", self.log_path)
        order = BatchOrder(self.log_path, self.base_offset)
        for piece in self.batches(0, self.size_bytes):
            _, damage = order.follow(piece, self.following(piece.end))
            if damage is not None:
                raise damage
        self.reset_indexes()
        for piece in self.batches(0, self.size_bytes):
            for batch in piece.batches:
                self.index_batch(batch, piece.position + batch.position)
        if not self._grows:
            # On a full or read-only disk the indexes stay in memory; the next start tries again.
            with suppress(OSError):
                self.seal()

    def release(self) -> None:
        """Releases the file handle and the maps; the next use opens them again."""
        self._file = None
        self.offset_index.entries.close()
        self.time_index.entries.close()

    def _path(self, kind: str) -> str:
        return names.segment_path(self._folder, self.base_offset, kind)

    def _take_back(self, position: int) -> None:
        """Undoes a failed write, so that its bytes do not look like a part of the log."""
        try:
            self.file.truncate(position)
        except OSError as error:
            raise StorageError(f"{self.log_path}: cannot undo a failed append at byte {position}: {error}") from error

    def _load_indexes(self) -> None:
        """Loads the index files when first needed; missing or damaged ones are rebuilt."""
        if self._indexed:
            return
        try:
            self.offset_index.entries.load()
            self.time_index.load()
            self._indexed = True
        except (CorruptError, FileNotFoundError):
            self.rebuild_indexes()

    def _start_of_walk(self, offset: Offset) -> OffsetPosition:
        self._load_indexes()
        try:
            return self._indexed_start(offset)
        except CorruptError:
            self.rebuild_indexes()
            return self.offset_index.look_up(offset)

    def bound_behind(self, position: int) -> Offset | None:
        """An offset above all batches before `position`, from the index; None if the index has none."""
        self._load_indexes()
        entry = self.offset_index.behind(position)
        if entry is None:
            return None
        place = self.place_at(entry.position)
        # A wrong entry would hide from a reader that records were aborted.
        return Offset(entry.offset + 1) if place is not None and place.last_offset == entry.offset else None

    def _read_next_offset(self) -> Offset:
        """The offset behind the last batch, found through the index and the headers behind its last entry."""
        start = self._start_of_walk(Offset(self.base_offset + RELATIVE_OFFSET_MAX))
        next_offset = self.base_offset
        for piece in self.batches(start.position, self.size_bytes):
            last = piece.batches[-1]
            next_offset = last.next_offset
            self.last_batch = BatchEpoch(piece.position + last.position, last.base_offset, last.leader_epoch)
        return next_offset

    def _indexed_start(self, offset: Offset) -> OffsetPosition:
        """Where to begin the walk to `offset`. Raises CorruptError if the index entry does not match the batch
        there."""
        start = self.offset_index.look_up(offset)
        if start.position == 0 or (self._grows and start.position >= self._appended_from):
            return start  # Entries of batches that this process appended are right.
        place = self.place_at(start.position) if 0 < start.position < self.size_bytes else None
        if place is not None and self.base_offset <= place.base_offset and place.last_offset == start.offset:
            return start
        path = self.offset_index.entries.path
        raise CorruptError(f"{path}: the batch of offset {start.offset} is not at position {start.position}")

    def _indexed_largest(self) -> TimestampOffset:
        """The last time entry. Raises CorruptError if its batch, or one behind it, contradicts it."""
        last = self.time_index.last()
        place = None if last.timestamp == NO_TIMESTAMP else self.locate(last.offset)
        told = NO_TIMESTAMP if place is None else place.max_timestamp
        position = 0 if place is None else place.position
        if told != last.timestamp or self._walk(position, self.base_offset, TimestampMs(told + 1)) is not None:
            raise CorruptError(f"{self.time_index.entries.path}: {last.timestamp} is not the largest timestamp")
        return last

    def _timed_start(self, timestamp: TimestampMs) -> Offset:
        entry = self.time_index.look_up(TimestampMs(timestamp - 1))
        if entry.timestamp == NO_TIMESTAMP:
            return self.base_offset
        place = self.locate(entry.offset)
        if place is None or place.max_timestamp != entry.timestamp:
            raise CorruptError(
                f"{self.time_index.entries.path}: offset {entry.offset} lacks timestamp {entry.timestamp}"
            )
        return entry.offset

    def _walk(self, position: int, offset: Offset, timestamp: TimestampMs) -> BatchPlace | None:
        start, floor = position, int(self.base_offset)
        while position < self.size_bytes:
            stop = self.size_bytes
            if self.holes and (hole := self._hole_behind(position)) is not None:
                if hole.start <= position:
                    position = hole.end
                    continue
                stop = hole.start
            piece = self.file.read_at(position, min(_WALK_BYTES, stop - position))
            at, size, base_offset, last_offset, largest = find_batch_header(piece, offset, timestamp, floor)
            if size < 0 or (size == 0 and at == 0):
                if self._find_hole(start) is None:
                    raise DamagedSegmentError(self.log_path, position + at, "no batch, or offset out of order")
                position, floor = start, int(self.base_offset)
                continue
            if size > 0:
                return BatchPlace(position + at, size, Offset(base_offset), Offset(last_offset), TimestampMs(largest))
            position += at
            floor = last_offset + 1
        return None

    def _largest_by_scan(self, known: TimestampOffset) -> TimestampOffset:
        """The largest timestamp, given that of the last time entry: batches behind it may have a larger one."""
        place = self.locate(known.offset)
        if place is None:
            return known
        for piece in self.batches(place.position, self.size_bytes):
            for batch in piece.batches:
                if batch.max_timestamp > known.timestamp:
                    known = TimestampOffset(batch.max_timestamp, batch.last_offset)
        return known


def set_aside(disk: Disk, path: str) -> str:
    """Renames a file so that it is no longer part of the log, and returns the new name; durable with its folder."""
    target = free_aside(disk, path)
    disk.rename(path, target)
    return target


def free_aside(disk: Disk, path: str) -> str:
    """An unused name beside `path` for bytes that are kept for inspection."""
    target, number = path + names.ASIDE, 1
    while disk.exists(target):
        target, number = f"{path}.{number}{names.ASIDE}", number + 1
    return target
