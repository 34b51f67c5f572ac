"""The two passes of a cleaning over a log's files, which run in the helper process.

The first pass maps the keys of the dirty part to their last offsets. The second pass rewrites every segment from the
log start to the end of the map as `.cleaned` files beside the sources, without the records that are superseded. The
passes read only `.log` files and change nothing that the log uses; `cleaner.py` swaps the result in.

The second pass keeps:
- a record that has a key and is the last one of that key, unless it is a tombstone whose delete horizon has passed;
- everything at or beyond the end of the map, except aborted records;
- a marker while any batch of its transaction existed when the pass ran, or while the log knows its producer only by
  this marker; after that it gets a delete horizon like a tombstone;
- if necessary without its records, the batch with the last sequence of a producer that the log remembers, and the last
  batch of each output, so that its offsets end where those of its sources ended.
No record of an aborted transaction is kept, and transactions begin before they end. So a cleaned segment needs no
transaction index, and has none.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.env.ports import Clock, Disk
from ottla.model.errors import CorruptBatchError, InvalidRequestError, RetriableError, StorageError
from ottla.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from ottla.records.batch import Batch
from ottla.records.compaction import OffsetMap, compact_batch, empty_batch, stamp_horizon
from ottla.records.control import read_marker
from ottla.storage.cleaning.cleaning_plan import SourceSegment, grouped, index_bytes_at_most
from ottla.storage.data_dirs import names
from ottla.storage.log_config import LogConfig
from ottla.storage.segments.scanner import DamagedSegmentError, Piece, scan_file
from ottla.storage.segments.segment import Segment
from ottla.storage.segments.transaction_index import AbortedTransaction

_POSITION_MAX: Final = 2**31 - 1
"""An index cannot store larger positions."""
_PAUSE_SECONDS_MIN: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRecord:
    """The last write of a producer that the log remembers; without a data offset, only a marker is left of it."""

    data_offset: Offset | None
    epoch: ProducerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningJob:
    """Everything that the passes need; small and picklable."""

    folder: str
    config: LogConfig
    sources: tuple[SourceSegment, ...]
    """All segments from the log start up to the first that must not be cleaned."""
    first_dirty_offset: Offset
    aborted: tuple[AbortedTransaction, ...]
    last_records: Mapping[ProducerId, LastRecord]
    now: TimestampMs
    map_bytes: int
    map_load_factor: float
    hash_key: bytes
    io_bytes_per_second: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """One `.cleaned` segment, complete and synced, with the base offset of its first source."""

    source_bases: tuple[Offset, ...]

    @property
    def base_offset(self) -> Offset:
        """Of the output, which is that of its first source."""
        return self.source_bases[0]


@dataclass(slots=True, kw_only=True)
class CleaningTotals:
    """Totals of the passes, updated as they run."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_kept: int = 0
    records_removed: int = 0
    keys_mapped: int = 0
    keys_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningOutcome:
    """The groups to swap in, oldest first, and where the next cleaning begins."""

    groups: tuple[CleanedGroup, ...]
    end_offset: Offset
    totals: CleaningTotals


def clean_segments(
    disk: Disk, clock: Clock, pause: Callable[[float], None] | None, job: CleaningJob
) -> CleaningOutcome:
    """Runs both passes; blocks.

    Raises DamagedSegmentError at the first corrupt batch (checksum mismatch), and CorruptBatchError at a batch that is
    as it was written but has unreadable records: the other replicas have the same. Both name file and position.
    """
    try:
        return _Cleaning(disk, _Pace(clock, pause, job.io_bytes_per_second), job).run()
    except MemoryError as error:
        raise RetriableError(f"{job.folder}: cannot clean the log: {error}") from error


def remove_leftovers(disk: Disk, folder: str, bases: Sequence[Offset]) -> None:
    """Removes the `.cleaned` files of these base offsets; the next start removes those that cannot be removed now."""
    for base in bases:
        for kind in names.SEGMENT_SUFFIXES:
            try:
                disk.remove(names.segment_path(folder, base, kind + names.CLEANED))
            except OSError:
                continue


class _Pace:
    """Limits the bytes per second that the passes read and write together."""

    def __init__(self, clock: Clock, pause: Callable[[float], None] | None, bytes_per_second: float | None) -> None:
        self._clock = clock
        self._pause = pause
        self._rate = bytes_per_second
        self._since = clock.monotonic()
        self._moved = 0

    def on_bytes(self, count: int) -> None:
        if self._rate is None or self._pause is None:
            return
        self._moved += count
        ahead = self._moved / self._rate - (self._clock.monotonic() - self._since)
        if ahead >= _PAUSE_SECONDS_MIN:
            self._pause(ahead)


class _AbortedRanges:
    """Which data batches were aborted, by their offsets only: markers may be removed already."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._ranges: dict[int, list[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=lambda each: each.first_offset):
            self._ranges.setdefault(transaction.producer_id, []).append(transaction)

    def covers(self, batch: Batch) -> bool:
        """Whether the batch's records are aborted."""
        if not self._ranges or not batch.is_transactional or batch.is_control:
            return False
        found = self._ranges.get(batch.producer_id, [])
        at = bisect_right(found, Offset(batch.base_offset), key=lambda each: each.first_offset) - 1
        return at >= 0 and batch.base_offset <= found[at].last_offset


@dataclass(slots=True)
class _Output:
    """One group that is being written to a `.cleaned` segment."""

    last_source: SourceSegment
    """The last source that has batches."""
    changed: bool
    """Whether the output differs from its only source."""
    segment: Segment | None = None


class _Cleaning:
    """One cleaning: the key map, the open transactions during the second pass, and the totals."""

    def __init__(self, disk: Disk, pace: _Pace, job: CleaningJob) -> None:
        self._disk = disk
        self._pace = pace
        self._job = job
        self._map = OffsetMap(job.map_bytes, job.hash_key, job.map_load_factor)
        self._aborted = _AbortedRanges(job.aborted)
        self._end = job.first_dirty_offset
        self._horizon = job.now + job.config.delete_retention_ms
        self._in_transaction: set[int] = set()
        """Producers with a transactional batch since their last marker."""
        self._totals = CleaningTotals(keys_max=self._map.capacity)

    def run(self) -> CleaningOutcome:
        self._end = self._map_keys()
        self._totals.keys_mapped = len(self._map)
        sources = [source for source in self._job.sources if source.base_offset < self._end]
        groups: list[CleanedGroup] = []
        bases = [source.base_offset for source in sources]
        try:
            for group in grouped(sources, self._job.config):
                groups += self._clean_group(group)
        except Exception:
            remove_leftovers(self._disk, self._job.folder, bases)
            raise
        return CleaningOutcome(groups=tuple(groups), end_offset=self._end, totals=self._totals)

    # The first pass

    def _map_keys(self) -> Offset:
        """Fills the map and returns the first offset that it does not cover."""
        start = self._job.first_dirty_offset
        reached = start
        for source in self._job.sources:
            if source.end_offset <= start:
                continue
            for piece in self._pieces(source):
                for batch in piece.batches:
                    if batch.last_offset < start or batch.is_control or self._aborted.covers(batch):
                        continue
                    reached = self._add(batch, source, piece)
                    if reached <= batch.last_offset:
                        return reached
            reached = source.end_offset
        return reached

    def _add(self, batch: Batch, source: SourceSegment, piece: Piece) -> Offset:
        try:
            return Offset(self._map.add(batch, self._job.first_dirty_offset))
        except (CorruptBatchError, InvalidRequestError) as error:
            raise self._senseless(source, piece, batch, error) from error

    # The second pass

    def _clean_group(self, group: Sequence[SourceSegment]) -> list[CleanedGroup]:
        """Writes a group's output and returns it; None if there is nothing to swap in."""
        filled = [source for source in group if source.size_bytes > 0]
        if not filled:
            return []
        output = _Output(filled[-1], changed=len(group) > 1)
        for source in filled:
            for piece in self._pieces(source):
                kept = [found for batch in piece.batches if (found := self._keep(batch, source, piece, output))]
                if not output.changed:
                    continue  # A single segment that does not change need not be written.
                if output.segment is None:
                    output.segment = self._create(group)
                    for before in self._pieces(source, piece.position):
                        self._write(output.segment, before.batches)
                self._write(output.segment, kept)
                del kept
        if output.segment is None:
            return []
        self._finish(output.segment)
        return [CleanedGroup(source_bases=tuple(source.base_offset for source in group))]

    def _create(self, group: Sequence[SourceSegment]) -> Segment:
        size = sum(source.size_bytes for source in group)
        # Batches that get a delete horizon may grow, and so may the index.
        room = max(self._job.config.segment_index_bytes, index_bytes_at_most(2 * size, self._job.config))
        config = replace(self._job.config, segment_index_bytes=room)
        base = group[0].base_offset
        return Segment.create(self._disk, self._job.folder, base, config, self._job.now, suffix=names.CLEANED)

    def _keep(self, batch: Batch, source: SourceSegment, piece: Piece, output: _Output) -> Batch | None:
        """The batch to write to the output; None if it is removed."""
        try:
            kept, rebuilt = self._marker(batch) if batch.is_control else self._data(batch)
        except (CorruptBatchError, InvalidRequestError) as error:
            raise self._senseless(source, piece, batch, error) from error
        self._totals.records_kept += kept
        self._totals.records_removed += batch.count - kept
        if kept and rebuilt is None:
            return batch
        if kept == 0 and (self._ends_output(batch, source, piece, output) or self._is_last_of_producer(batch)):
            if batch.count == 0:
                return batch
            rebuilt = empty_batch(batch)
        output.changed = True
        return None if rebuilt is None else Batch(rebuilt)

    def _ends_output(self, batch: Batch, source: SourceSegment, piece: Piece, output: _Output) -> bool:
        end = piece.position + batch.position + batch.size_bytes
        return source is output.last_source and end == source.size_bytes

    def _data(self, batch: Batch) -> tuple[int, bytes | None]:
        """How many of the batch's records are kept, and the batch, rebuilt if records are removed or a delete horizon
        is set."""
        if batch.is_transactional:
            self._in_transaction.add(batch.producer_id)
            if self._aborted.covers(batch):
                return 0, None
        if batch.base_offset >= self._end:
            return batch.count, None
        level = self._job.config.compression_level if batch.codec == self._job.config.compression else None
        return compact_batch(
            batch, self._map, end_offset=self._end, now=self._job.now, horizon=self._horizon, level=level
        )

    def _marker(self, batch: Batch) -> tuple[int, bytes | None]:
        """The same as `_cleaned` for a control batch."""
        marker = read_marker(batch) if batch.count else None
        if marker is None:
            return batch.count, None  # Another kind of control batch, which is kept; or one that was emptied before.
        has_data = batch.producer_id in self._in_transaction
        self._in_transaction.discard(batch.producer_id)
        if has_data or batch.base_offset >= self._end or self._is_last_of_producer(batch):
            return batch.count, None
        if not batch.has_delete_horizon:
            return batch.count, stamp_horizon(batch, self._horizon)
        return (0 if self._job.now >= batch.delete_horizon else batch.count), None

    def _is_last_of_producer(self, batch: Batch) -> bool:
        """Whether the log knows a producer's last sequence, or its epoch, from this batch."""
        last = self._job.last_records.get(ProducerId(batch.producer_id))
        if last is None:
            return False
        if last.data_offset is not None:
            return batch.last_offset == last.data_offset
        return batch.is_control and batch.producer_epoch == last.epoch

    def _write(self, segment: Segment, kept: Sequence[Batch]) -> None:
        if not kept:
            return
        before = segment.size_bytes
        if before + sum(batch.size_bytes for batch in kept) > _POSITION_MAX:
            raise StorageError(f"{segment.log_path}: the cleaned segment grows beyond 2 GiB; lower segment.bytes")
        segment.append(kept)
        self._totals.bytes_written += segment.size_bytes - before
        self._pace.on_bytes(segment.size_bytes - before)

    def _finish(self, segment: Segment) -> None:
        """Completes the output and makes it durable, except for its name."""
        segment.seal()
        segment.release()
        for kind in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
            path = names.segment_path(self._job.folder, segment.base_offset, kind + names.CLEANED)
            file = self._disk.open(path)
            try:
                file.sync()
            finally:
                file.close()

    # Reading

    def _pieces(self, source: SourceSegment, end: int | None = None) -> Iterator[Piece]:
        """A source's batches up to a position. Raises DamagedSegmentError at a damaged batch or offsets out of
        order."""
        path = names.segment_path(self._job.folder, source.base_offset, names.LOG)
        file = self._disk.open(path, writable=False)
        expected = source.base_offset
        try:
            for piece in scan_file(file, 0, source.size_bytes if end is None else end):
                for batch in piece.batches:
                    if not expected <= batch.base_offset <= batch.last_offset < source.end_offset:
                        position = piece.position + batch.position
                        what = f"offsets {batch.base_offset} to {batch.last_offset} are below {expected}"
                        raise DamagedSegmentError(path, position, what)
                    expected = Offset(batch.next_offset)
                self._totals.bytes_read += piece.end - piece.position
                yield piece
                self._pace.on_bytes(piece.end - piece.position)
        finally:
            file.close()

    def _senseless(self, source: SourceSegment, piece: Piece, batch: Batch, error: Exception) -> CorruptBatchError:
        path = names.segment_path(self._job.folder, source.base_offset, names.LOG)
        return CorruptBatchError(f"{path}, byte {piece.position + batch.position}: {error}")
