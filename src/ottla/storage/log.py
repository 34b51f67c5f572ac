"""One partition's log: segments in order, the producers and leader epochs that belong to them, and its bounds.

Covers append as leader (stamps offsets) and as follower (keeps them), reading as file ranges, search by time, truncation,
moving the start, rolling, flushing and closing. Not here: what a crash leaves (`recovery.py`), which segments are old
(`retention.py`), compaction (`cleaner.py`), and many logs together (`log_store.py`).

    start_offset <= last_stable_offset <= high_watermark <= end_offset;  recovery_point <= end_offset

All methods run on the event loop and return at once, but for the disk's own time; `begin_flush` hands out what blocks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.env.ports import Disk
from ottla.model.errors import CorruptBatchError, OffsetOutOfRangeError, OttlaError, StorageError
from ottla.model.ids import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from ottla.model.invariants import violated
from ottla.records.batch import Batch, scan
from ottla.records.control import marker_batch
from ottla.records.layout import Marker, TimestampType
from ottla.storage import names
from ottla.storage.config import LogConfig
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.flush import FlushJob, GroupCommit
from ottla.storage.producer_files import load_producers, remove_snapshots_after, replay, write_snapshot
from ottla.storage.producer_state import Appends, CompletedTransaction, ProducerStates
from ottla.storage.segment import FileRange, Segment
from ottla.storage.segment_list import SegmentList
from ottla.storage.time_index import TimestampOffset
from ottla.storage.transaction_index import AbortedTransaction
from ottla.storage.validation import validate


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Where a batch is in the log, and when it was put there if the topic uses LogAppendTime (else -1)."""

    base_offset: Offset
    last_offset: Offset
    append_time: TimestampMs = NO_TIMESTAMP
    is_duplicate: bool = False
    """The batch had been appended before; the offsets are those it got then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """What opening a folder yields, and a log is made of; see `recovery.py`."""

    segments: list[Segment]
    epochs: EpochHistory
    producers: ProducerStates
    start_offset: Offset
    recovery_point: Offset


class Log:
    """One partition's log.

    `persist_bounds` makes the log's start and recovery point durable before it returns; the log calls it before a cut,
    so that a crash right after never trusts bytes that were cut and written again.
    `discard` takes file paths that are no longer part of the log, and a delay in ms after which to unlink them.
    """

    def __init__(
        self,
        partition: TopicPartition,
        folder: str,
        disk: Disk,
        config: LogConfig,
        parts: LogParts,
        *,
        persist_bounds: Callable[[], None],
        discard: Callable[[Sequence[str], int], None],
    ) -> None:
        self.partition = partition
        self.folder = folder
        self.config = config
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.start_offset = parts.start_offset
        self.recovery_point = parts.recovery_point
        self.high_watermark = parts.start_offset
        self.truncations = 0
        self.failure: StorageError | None = None
        self.segments = SegmentList(
            disk, folder, parts.segments, lambda paths: discard(paths, self.config.file_delete_delay_ms)
        )
        self._disk = disk
        self._group_commit = GroupCommit(self, disk)
        self._persist_bounds = persist_bounds

    # What it is

    @property
    def end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.segments.active.next_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Below it every transaction is decided; what a read_committed reader may see."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def size_bytes(self) -> int:
        """Of all batches."""
        return sum(segment.size_bytes for segment in self.segments)

    def check_usable(self) -> None:
        """Raises if the disk has failed under this log, or if it is closed."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: OSError, what: str) -> StorageError:
        """Takes the log offline after an error that leaves its files in doubt; answers the error to raise."""
        self.failure = StorageError(f"{self.folder}: cannot {what}: {error.strerror or error}; the partition is offline")
        return self.failure

    def advance_high_watermark(self, offset: Offset) -> None:
        """Moves the high watermark forward, at most to the end."""
        if offset > self.end_offset:
            violated(f"{self.partition}: high watermark {offset} beyond the end {self.end_offset}")
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)

    # Appending

    def append(
        self, batches: Sequence[Batch], *, leader_epoch: LeaderEpoch, now: TimestampMs
    ) -> list[Appended | OttlaError]:
        """Appends clients' batches as the leader, in order; each gets its place or the reason why not.

        Batches must lie in writable memory: offset and epoch are stamped into them. One that repeats an earlier one is
        answered with the earlier one's offsets. Neighbours are written together.
        """
        self.check_usable()
        results: list[Appended | OttlaError] = []
        group = _Group(self.end_offset, 0)
        config = self.config
        append_time = now if config.timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        for batch in batches:
            try:
                batch = validate(batch, config, now)
                if self._must_roll(batch, Offset(group.end_offset + batch.last_offset_delta), group.size_bytes, now):
                    self._write(group, results)
                    group = _Group(self.end_offset, len(results))
                    self.roll(now)
                if batch.producer_id != NO_PRODUCER_ID:
                    earlier = self.producers.duplicate_of(batch, group.pending)
                    if earlier is not None:
                        first, last = earlier.first_offset, earlier.last_offset
                        results.append(Appended(base_offset=first, last_offset=last, is_duplicate=True))
                        continue
                    self.producers.prepare(batch, group.pending, group.end_offset, check=True)
                batch.stamp(group.end_offset, leader_epoch)
            except OttlaError as error:
                results.append(error)
                continue
            group.add(batch)
            results.append(
                Appended(base_offset=batch.base_offset, last_offset=batch.last_offset, append_time=append_time)
            )
        self._write(group, results)
        return results

    def append_marker(
        self,
        marker: Marker,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        coordinator_epoch: int,
        leader_epoch: LeaderEpoch,
        now: TimestampMs,
    ) -> Appended:
        """Ends a producer's transaction in this partition, as its coordinator decided."""
        self.check_usable()
        group = _Group(self.end_offset, 0)
        batch = Batch(
            marker_batch(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=now,
                base_offset=group.end_offset,
                leader_epoch=leader_epoch,
            )
        )
        self.producers.prepare_marker(batch, marker, coordinator_epoch, group.pending, group.end_offset, check=True)
        if self._must_roll(batch, batch.last_offset, 0, now):
            self.roll(now)
        group.add(batch)
        appended = Appended(base_offset=batch.base_offset, last_offset=batch.last_offset)
        results: list[Appended | OttlaError] = [appended]
        self._write(group, results)
        if isinstance(results[0], OttlaError):
            raise results[0]
        return appended

    def append_as_follower(self, run: memoryview, *, now: TimestampMs) -> int:
        """Appends batches as a leader sent them, offsets and epochs kept; answers how many.

        A cut-off last batch is passed over: the next fetch brings it whole. Raises if a batch is damaged or does not
        continue the log; those before it are appended.
        """
        self.check_usable()
        batches, _, problem = scan(run)
        start, expected = 0, self.end_offset
        for at, batch in enumerate(batches):
            if batch.base_offset < expected:
                problem = f"offset {batch.base_offset} comes where {expected} or more belongs"
                batches = batches[:at]
                break
            expected = batch.next_offset
            ahead_bytes = batch.position - batches[start].position
            if self._must_roll(batch, batch.last_offset, ahead_bytes, now):
                self._write_run(run, batches[start:at], now)
                self.roll(now, base_offset=batch.base_offset)
                start = at
        self._write_run(run, batches[start:], now)
        if problem is not None:
            raise CorruptBatchError(f"{self.partition}: replicated after offset {self.end_offset}: {problem}")
        return len(batches)

    def roll(self, now: TimestampMs, *, base_offset: Offset | None = None) -> None:
        """Seals the active segment and starts a new one, unless it is empty and may stay."""
        active = self.segments.active
        base_offset = max(self.end_offset, base_offset or Offset(0))
        if active.size_bytes == 0 and base_offset == active.base_offset:
            return
        try:
            active.seal()
            write_snapshot(self._disk, self.folder, base_offset, self.producers)
            self.segments.add(Segment.create(self._disk, self.folder, base_offset, self.config, now))
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot start a segment at {base_offset}: {error.strerror}") from error

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, *, upper: Offset | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """The batches from the one that holds `offset` on, below `upper` (the high watermark unless told), as a file's range.

        At most `max_bytes`, but with `at_least_one` the first batch whole; the last may be cut off. None if there is
        nothing to read yet. Raises OffsetOutOfRangeError outside the log.
        """
        self.check_usable()
        upper = self.high_watermark if upper is None else upper
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"{self.partition}: offset {offset} is outside the log, which has {self.start_offset} to {self.end_offset}"
            )
        if offset >= upper:
            return None
        try:
            return self.segments.read(offset, max_bytes, upper, at_least_one=at_least_one)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot read at offset {offset}: {error.strerror}") from error

    def aborted_transactions(self, start: Offset, upper: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start, upper) must leave out."""
        return self.segments.aborted_transactions(start, upper)

    def find_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record with at least this timestamp, and its own."""
        self.check_usable()
        return self.segments.find_timestamp(timestamp, self.start_offset)

    def largest_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp of the log."""
        self.check_usable()
        return self.segments.largest_timestamp(self.start_offset)

    # Cutting

    def truncate_to(self, offset: Offset, *, now: TimestampMs) -> bool:
        """Removes the batch that holds `offset` and all after it; says whether anything went."""
        self.check_usable()
        if offset >= self.end_offset:
            return False
        if offset < self.start_offset or offset <= self.segments[0].base_offset:
            self.truncate_fully(offset, now=now)
            return True
        self._lower_recovery_point(offset)
        try:
            self.segments.drop_after(offset)
            self.segments.active.truncate_to(offset)
            self._forget_after_cut()
        except OSError as error:
            raise self.fail(error, f"truncate to {offset}") from error
        return True

    def truncate_fully(self, start_at: Offset, *, now: TimestampMs) -> None:
        """Removes everything; the next record gets `start_at`."""
        self.check_usable()
        self.truncations += 1
        self.start_offset = self.recovery_point = self.high_watermark = start_at
        self._persist_bounds()
        try:
            self.segments.drop_all(lambda: Segment.create(self._disk, self.folder, start_at, self.config, now))
            self.epochs.clear()
            self._forget_after_cut()
        except OSError as error:
            raise self.fail(error, f"start anew at {start_at}") from error

    def advance_start(self, offset: Offset) -> None:
        """Forgets the records below `offset`, and deletes the segments that hold nothing else."""
        self.check_usable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.partition}: cannot delete up to {offset}, beyond the high watermark {self.high_watermark}"
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)
            self.delete_oldest(self.segments.index_of(offset))

    def delete_oldest(self, count: int) -> None:
        """Deletes that many segments from the front; the active one stays."""
        count = min(count, len(self.segments) - 1)
        if count <= 0:
            return
        try:
            self.segments.drop_before(count)
        except OSError as error:
            raise self.fail(error, "delete old segments") from error
        start = self.segments[0].base_offset
        if start > self.start_offset:
            self.start_offset = start
            self.epochs.truncate_from_start(start)
        self.advance_high_watermark(self.start_offset)

    # Durability

    def begin_flush(self, *, closing: bool = False) -> FlushJob:
        """What must reach the disk for everything appended so far; run it in the background, then `end_flush`."""
        self.check_usable()
        dirty = self.segments.from_offset(self.recovery_point)
        sealed = dirty if closing else dirty[:-1]
        paths = [path for segment in sealed for path in segment.paths()]
        snapshots = [segment.base_offset for segment in dirty[1:]] + ([self.end_offset] if closing else [])
        paths += [names.segment_path(self.folder, offset, names.SNAPSHOT) for offset in snapshots]
        return FlushJob(
            disk=self._disk,
            folder=self.folder,
            end_offset=self.end_offset,
            truncations=self.truncations,
            sealed_paths=tuple(paths),
            active=self.segments.active.file,
            epochs=self.epochs.starts if self.epochs.dirty else None,
            sync_folder=closing or any(segment.is_new for segment in dirty),
        )

    def end_flush(self, job: FlushJob) -> None:
        """Moves the recovery point after a job that ran through, unless the log was cut meanwhile."""
        if job.truncations != self.truncations:
            return
        for segment in self.segments.from_offset(self.recovery_point):
            if segment.base_offset <= job.end_offset:
                segment.is_new = segment.is_new and segment.base_offset == job.end_offset
        self.recovery_point = max(self.recovery_point, job.end_offset)
        if job.epochs == self.epochs.starts:
            self.epochs.dirty = False

    def flush(self, *, closing: bool = False) -> None:
        """Makes everything appended so far survive a power cut; blocks."""
        job = self.begin_flush(closing=closing)
        try:
            job.run()
        except OSError as error:
            raise self.fail(error, "flush") from error
        self.end_flush(job)

    @property
    def flush_is_due(self) -> bool:
        """Whether `flush.messages` asks that what was appended last be flushed before it is acknowledged."""
        return self.end_offset - self.recovery_point >= self.config.flush_messages

    async def wait_flushed(self, offset: Offset) -> None:
        """Returns once everything below `offset` would survive a power cut; many who wait share one fsync.

        Raises StorageError if the disk refuses; the log is offline then, since nobody knows what was written.
        """
        await self._group_commit.wait_flushed(offset)

    def abandon(self, why: str) -> None:
        """Gives up the files as they are; every further use raises."""
        self.failure = StorageError(why)
        self.segments.release()

    def close(self) -> None:
        """Seals, snapshots and flushes, so that the next opening need not scan anything."""
        if self.failure is None:
            try:
                write_snapshot(self._disk, self.folder, self.end_offset, self.producers)
                self.segments.active.seal()
            except OSError as error:
                raise self.fail(error, "close") from error
            self.flush(closing=True)
            self.abandon(f"{self.partition}: the log is closed")

    # Inside

    def _must_roll(self, batch: Batch, last_offset: Offset, ahead_bytes: int, now: TimestampMs) -> bool:
        """Whether `batch` belongs into a new segment, given that `ahead_bytes` go into the present one before it."""
        active, config = self.segments.active, self.config
        size = active.size_bytes + ahead_bytes
        if size == 0:
            return not active.fits(last_offset)
        if size + batch.size_bytes > config.segment_bytes or not active.fits(last_offset):
            return True
        if active.offset_index.is_full or active.time_index.is_full:
            return True
        began = active.first_timestamp
        waited = batch.max_timestamp - began if began >= 0 else now - active.created_ms
        return waited > config.segment_ms - config.segment_jitter_ms

    def _write(self, group: "_Group", results: list[Appended | OttlaError]) -> None:
        """Writes a group and makes its changes true; if the disk refuses, nothing changes and its results say so."""
        if not group.batches:
            return
        first = group.batches[0]
        try:
            self.segments.active.append(group.batches)
            if first.leader_epoch != self.epochs.latest:
                self.epochs.assign(first.leader_epoch, first.base_offset)
            if group.pending.entries:
                self.producers.apply(group.pending)
                self._note_aborted(group.pending.completed, first.base_offset)
        except StorageError as error:
            since = results[group.first_result :]
            results[group.first_result :] = [error if isinstance(result, Appended) else result for result in since]

    def _write_run(self, run: memoryview, batches: Sequence[Batch], now: TimestampMs) -> None:
        if not batches:
            return
        begin, end = batches[0].position, batches[-1].position + batches[-1].size_bytes
        self.segments.active.append_run(batches, run[begin:end])
        for batch in batches:
            if batch.leader_epoch != self.epochs.latest:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
            completed = replay(self.producers, batch)
            if completed is not None:
                self._note_aborted([completed], batches[0].base_offset)

    def _note_aborted(self, completed: Sequence[CompletedTransaction], since: Offset) -> None:
        """Indexes transactions whose abort marker was just written; if that fails, what was written since goes again.

        A marker without its entry would show the aborted records to read_committed readers.
        """
        for done in completed:
            if not done.is_aborted:
                continue
            stable = self.producers.last_stable_offset_after(done)
            aborted = AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, stable)
            try:
                self.segments.active.transaction_index.append(aborted)
            except OSError as error:
                self.truncate_to(since, now=self.segments.active.created_ms)
                raise StorageError(f"{self.folder}: cannot index an aborted transaction: {error.strerror}") from error

    def _lower_recovery_point(self, offset: Offset) -> None:
        self.truncations += 1
        if self.recovery_point > offset:
            self.recovery_point = offset
            self._persist_bounds()

    def _forget_after_cut(self) -> None:
        """Brings what was derived from the removed batches in line with those that are left."""
        end = self.end_offset
        self.epochs.truncate_from_end(end)
        self.high_watermark = min(self.high_watermark, end)
        remove_snapshots_after(self._disk, self.folder, end)
        self.producers = load_producers(self._disk, self.folder, list(self.segments), end)
        self.producers.on_high_watermark(self.high_watermark)


class _Group:
    """Batches that go into the log with one write, and what they change."""

    __slots__ = ("batches", "end_offset", "first_result", "pending", "size_bytes")

    def __init__(self, end_offset: Offset, first_result: int) -> None:
        self.batches: list[Batch] = []
        self.end_offset = end_offset
        self.first_result = first_result
        self.pending = Appends()
        self.size_bytes = 0

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.end_offset = batch.next_offset
        self.size_bytes += batch.size_bytes
