"""One partition's log: segments in order, the producers and leader epochs that belong to them, and its bounds.

Covers append as leader (stamps offsets) and as follower (keeps them), reading as file ranges, search by time,
truncation, moving the start, rolling, flushing and closing. Not here: what a crash leaves (`recovery.py`), which
segments are old (`retention.py`), compaction (`cleaner.py`), and many logs together (`log_store.py`).

    start_offset <= last_stable_offset <= high_watermark <= end_offset;  recovery_point <= end_offset

All methods run on the event loop and return at once, but for the disk's own time; `begin_flush` hands out what blocks.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.env.ports import Disk
from ottla.model.errors import CorruptBatchError, CorruptError, OffsetOutOfRangeError, OttlaError, StorageError
from ottla.model.ids import (
    NO_OFFSET,
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
from ottla.storage.append_group import AppendGroup
from ottla.storage.checkpoints import write_epochs
from ottla.storage.closed_segments import ClosedLog, OffsetRange
from ottla.storage.config import LogConfig
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.flush import FlushJob, GroupCommit
from ottla.storage.log_health import LogHealth
from ottla.storage.producer_files import load_producers, remove_snapshots_after, replay, write_snapshot
from ottla.storage.producer_state import Appends, CompletedTransaction, ProducerStates
from ottla.storage.scanner import DamagedSegmentError
from ottla.storage.segment import RELATIVE_OFFSET_MAX, FileRange, Segment
from ottla.storage.segment_list import SegmentList
from ottla.storage.time_index import TimestampOffset
from ottla.storage.transaction_index import AbortedTransaction
from ottla.storage.validation import validate

_LOGGER: Final = logging.getLogger(__name__)


class Appended(NamedTuple):
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
    is_settled: bool
    """Whether the folder's own name is known to survive a power cut; if not, the first flush sees to it."""
    damage: CorruptError | None = None
    """The first thing that was found to be damaged or missing."""
    has_segments: bool = True
    """Whether the folder had any segment; if not, one was made."""
    lost: tuple[OffsetRange, ...] = ()
    """Offsets of records that were written and cannot be read."""


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
        on_trouble: Callable[[], None] = lambda: None,
    ) -> None:
        self.partition = partition
        self.folder = folder
        self.config = config
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.start_offset = parts.start_offset
        self.recovery_point = parts.recovery_point
        self.high_watermark = parts.start_offset
        self.persisted_start = Offset(0)
        """What the checkpoint on disk says of the start; the store keeps this true."""
        self.persisted_high_watermark = Offset(0)
        """The same for the high watermark."""
        self.cleaned_offset = Offset(0)
        """Up to where compaction has made keys unique."""
        self.lost_end = Offset(0)
        """If the log ends early: where it had ended. Stays in the high-watermark checkpoint, so that the next start
        finds the same loss, until the cluster has decided what replaces the records."""
        self.lost = parts.lost
        """Offsets of records that were written and cannot be read, as far as the opening found out."""
        self.truncations = 0
        self.health = LogHealth(on_trouble, parts.damage, name=str(partition), offsets_of=self._offsets_of)
        self.segments = SegmentList(
            disk, folder, parts.segments, lambda paths: discard(paths, self.config.file_delete_delay_ms)
        )
        self._disk = disk
        self._is_settled = parts.is_settled
        self._group_commit = GroupCommit(self, disk)
        self._persist_bounds = persist_bounds

    # What it is

    @property
    def end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.segments.active.next_offset

    @property
    def readable_end(self) -> Offset:
        """Where the records end that can be read: before the end if the last ones are lost and none came after them."""
        active = self.segments.active
        if active.size_bytes == 0:
            for first, end in self.lost:
                if end == active.base_offset:
                    return first
        return self.end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Below it every transaction is decided; what a read_committed reader may see."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(self.start_offset, min(unstable, self.high_watermark))

    @property
    def size_bytes(self) -> int:
        """Of all batches."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def failure(self) -> StorageError | None:
        """Why it cannot be used any more."""
        return self.health.failure

    def check_usable(self) -> None:
        """Raises if the disk has failed under this log, or if it is closed."""
        if self.health.failure is not None:
            raise self.health.failure

    def fail(self, error: OSError, what: str) -> StorageError:
        """Takes the log offline after an error that leaves its files in doubt; answers the error to raise."""
        where = error.filename or self.folder
        why = f"{where}: cannot {what}: {error.strerror or error}; the partition is offline"
        return self.health.fail(StorageError(why))

    def advance_high_watermark(self, offset: Offset) -> None:
        """Moves the high watermark forward, at most to the end."""
        if offset > self.end_offset:
            violated(f"{self.partition}: high watermark {offset} beyond the end {self.end_offset}")
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)

    def as_closed(self) -> ClosedLog:
        """What the next opening should find."""
        return ClosedLog(
            sizes={segment.base_offset: segment.size_bytes for segment in self.segments},
            lost=tuple(each for each in self.lost if each.end > self.start_offset),
        )

    # Appending

    def append(
        self, batches: Sequence[Batch], *, leader_epoch: LeaderEpoch, now: TimestampMs, is_own: bool = False
    ) -> list[Appended | OttlaError]:
        """Appends batches of clients, or the broker's own, as the leader; each gets its place or the reason why not.

        Batches must lie in writable memory: offset and epoch are stamped into them. One that repeats an earlier one is
        answered with the earlier one's offsets. Neighbours are written together.
        """
        self.check_usable()
        results: list[Appended | OttlaError] = []
        group = AppendGroup(self.end_offset, 0)
        config = self.config
        append_time = now if config.timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        for batch in batches:
            try:
                batch = validate(batch, config, now, is_own=is_own)
                if self._must_roll(batch, Offset(group.end_offset + batch.last_offset_delta), group.size_bytes, now):
                    self._write(group, results)
                    group = AppendGroup(self.end_offset, len(results))
                    self.roll(now)
                if batch.producer_id != NO_PRODUCER_ID:
                    group.pending = group.pending or Appends()
                    earlier = self.producers.duplicate_of(batch, group.pending)
                    if earlier is not None:
                        results.append(
                            Appended(earlier.first_offset, earlier.last_offset, NO_TIMESTAMP, is_duplicate=True)
                        )
                        continue
                    batch.stamp(group.end_offset, leader_epoch)
                    self.producers.prepare(batch, group.pending, group.end_offset, check=True)
                else:
                    batch.stamp(group.end_offset, leader_epoch)
            except OttlaError as error:
                results.append(error)
                continue
            results.append(Appended(group.end_offset, batch.last_offset, append_time))
            group.add(batch)
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
        must_exceed_epoch: bool = False,
    ) -> Appended:
        """Ends a producer's transaction in this partition, as its coordinator decided.

        Where every transaction has an epoch of its own, `must_exceed_epoch` refuses the late marker of an earlier one.
        """
        self.check_usable()
        self._mend_transaction_index(self.end_offset)
        group = AppendGroup(self.end_offset, 0)
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
        pending = group.pending = Appends()
        self.producers.prepare_marker(
            batch,
            marker,
            coordinator_epoch,
            pending,
            group.end_offset,
            check=True,
            must_exceed_epoch=must_exceed_epoch,
        )
        if self._must_roll(batch, batch.last_offset, 0, now):
            self.roll(now)
        group.add(batch)
        appended = Appended(batch.base_offset, batch.last_offset)
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
                # A segment begins where the log ends, so that a recovery can tell a lost tail from a gap.
                is_far = batch.last_offset - self.end_offset > RELATIVE_OFFSET_MAX
                self.roll(now, base_offset=batch.base_offset if is_far else None)
                start = at
        self._write_run(run, batches[start:], now)
        if problem is not None:
            raise CorruptBatchError(f"{self.partition}: replicated after offset {self.end_offset}: {problem}")
        return len(batches)

    def roll(self, now: TimestampMs, *, base_offset: Offset | None = None) -> None:
        """Seals the active segment and starts a new one, unless it is empty and may stay."""
        self.check_usable()
        active = self.segments.active
        base_offset = max(self.end_offset, base_offset or Offset(0))
        if active.size_bytes == 0 and base_offset == active.base_offset:
            return
        try:
            active.seal()
            if active.is_new and len(self.segments) == 1:
                # Were this name lost and the next one kept, the log would seem to begin there.
                self._disk.sync_dir(self.folder)
            if self.config.cleanup_compact:
                # Were its tail lost and the next segment kept, that hole would look like one that compaction left.
                active.file.sync()
            write_snapshot(self._disk, self.folder, base_offset, self.producers)
            self.segments.add(Segment.create(self._disk, self.folder, base_offset, self.config, now))
        except OSError as error:
            where = error.filename or self.folder
            refusal = StorageError(f"{where}: cannot start a segment at {base_offset}: {error.strerror}")
            raise self.health.note_refusal(refusal) from error

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, *, upper: Offset | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """The batches from the one that holds `offset` on, below `upper` (unless told, the high watermark), as a range.

        At most `max_bytes`, but with `at_least_one` the first batch whole; the last may be cut off. None if there is
        nothing to read yet. Raises OffsetOutOfRangeError outside the log.
        """
        self.check_usable()
        upper = self.high_watermark if upper is None else upper
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"{self.partition}: offset {offset} is outside the log, {self.start_offset} to {self.end_offset}"
            )
        if offset >= upper:
            return None
        try:
            return self.segments.read(offset, max_bytes, upper, at_least_one=at_least_one)
        except DamagedSegmentError as damage:
            self.health.note_damage(damage)
            raise
        except OSError as error:
            raise StorageError(f"{error.filename or self.folder}: cannot read at {offset}: {error.strerror}") from error

    def aborted_transactions(
        self, start: Offset, upper: Offset, found: FileRange | None = None
    ) -> list[AbortedTransaction]:
        """The aborted transactions that a reader of [start, upper) must leave out; or of `found` alone, read there."""
        self.check_usable()
        with self._disk_errors("find aborted transactions"):
            return self.segments.aborted_transactions(start, upper, found)

    def find_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record with at least this timestamp, and its own."""
        self.check_usable()
        with self._disk_errors(f"find timestamp {timestamp}"):
            return self.segments.find_timestamp(timestamp, self.start_offset)

    def largest_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp of the log."""
        self.check_usable()
        with self._disk_errors("find the largest timestamp"):
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
        before = self.end_offset
        with self._disk_errors(f"truncate to {offset}"):
            end = self.segments.end_after_cut(offset)
        if end < self.start_offset:
            # The start lies within the batch that goes, so that nothing is left to read.
            self.truncate_fully(self.start_offset, now=now)
            return True
        self._mend_transaction_index(offset)
        self._lower_high_watermark(end)
        self._lower_recovery_point(end)
        try:
            self.segments.drop_after(offset)
            self.segments.active.truncate_to(offset)
            self._forget_after_cut()
        except OSError as error:
            raise self.fail(error, f"truncate to {offset}") from error
        _LOGGER.info("%s: truncated from offset %d to %d", self.partition, before, self.end_offset)
        return True

    def truncate_fully(self, start_at: Offset, *, now: TimestampMs) -> None:
        """Removes everything; the next record gets `start_at`."""
        self.check_usable()
        first, before = self.segments[0].base_offset, self.end_offset
        # Before the start changes: what is about to go counts as unflushed, so that none of it can look like a loss.
        self._lower_recovery_point(min(start_at, first))
        if start_at >= first:
            self._move_start(start_at)
        else:
            self._lower_high_watermark(self.start_offset)
        try:
            # First, so that neither epochs nor a snapshot as of `start_at` outlive the batches that they were made of.
            self.epochs.clear()
            write_epochs(self._disk, f"{self.folder}/{names.EPOCHS}", self.epochs.starts)
            remove_snapshots_after(self._disk, self.folder, NO_OFFSET)
            self.segments.drop_all(lambda: Segment.create(self._disk, self.folder, start_at, self.config, now))
            self.recovery_point = start_at
            self._forget_after_cut()
        except OSError as error:
            raise self.fail(error, f"start again at {start_at}") from error
        if start_at < first:
            # Not before the segments are gone: those that begin behind a checkpointed start look like a lost first one.
            self._move_start(start_at)
        _LOGGER.info("%s: removed offsets %d to %d, goes on at %d", self.partition, first, before, start_at)

    def _move_start(self, start_at: Offset) -> None:
        bounds = self.start_offset, self.recovery_point, self.high_watermark
        self.start_offset = self.high_watermark = start_at
        try:
            self._persist_bounds()
        except StorageError:
            self.start_offset, self.recovery_point, self.high_watermark = bounds
            raise

    def advance_start(self, offset: Offset) -> None:
        """Forgets the records below `offset`; `delete_below_start` later deletes what holds nothing else."""
        self.check_usable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.partition}: cannot delete up to {offset}, beyond the high watermark {self.high_watermark}"
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)

    def delete_below_start(self) -> int:
        """Deletes the segments that lie wholly below the start; says how many.

        A recovery that finds some of them must know that they are to go: unless the start has been checkpointed since
        it moved, it is now, which waits for the disk.
        """
        self.check_usable()
        count = self.segments.index_of(self.start_offset)
        if count == 0:
            return 0
        if self.persisted_start < self.segments[count].base_offset:
            self._persist_bounds()
        try:
            if any(segment.is_new for segment in self.segments.from_offset(self.start_offset)):
                self._disk.sync_dir(self.folder)  # The names of those that stay must survive before the others go.
            self.segments.drop_before(count)
        except OSError as error:
            raise self.fail(error, "delete old segments") from error
        _LOGGER.info("%s: %d old segments deleted, starts at %d", self.partition, count, self.start_offset)
        return count

    # Durability

    def begin_flush(self, *, closing: bool = False) -> FlushJob:
        """What must reach the disk for everything appended so far; run it in the background, then `end_flush`."""
        self.check_usable()
        # From the last flushed record's segment on: if it was sealed since, its indexes are not flushed yet.
        dirty = self.segments.from_offset(Offset(self.recovery_point - 1))
        sealed = dirty if closing else dirty[:-1]
        paths = [path for segment in sealed for path in segment.paths()]
        snapshots = [segment.base_offset for segment in dirty[1:]] + ([self.end_offset] if closing else [])
        paths += [names.segment_path(self.folder, offset, names.SNAPSHOT) for offset in snapshots]
        folders = [self.folder] if closing or any(segment.is_new for segment in dirty) else []
        if not self._is_settled:
            folders.append(self.folder.rpartition("/")[0])
            paths.append(f"{self.folder}/{names.PARTITION_METADATA}")
        return FlushJob(
            disk=self._disk,
            folder=self.folder,
            end_offset=self.end_offset,
            truncations=self.truncations,
            sealed_paths=tuple(paths),
            active=self.segments.active.file,
            epochs=self.epochs.starts if self.epochs.dirty else None,
            sync_folders=tuple(folders),
        )

    def end_flush(self, job: FlushJob) -> None:
        """Moves the recovery point after a job that ran through, unless the log was cut meanwhile."""
        if job.truncations != self.truncations:
            return
        for segment in self.segments.from_offset(self.recovery_point):
            if segment.base_offset <= job.end_offset:
                segment.is_new = segment.is_new and segment.base_offset == job.end_offset
        self.recovery_point = max(self.recovery_point, job.end_offset)
        self._is_settled = True
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
        self.health.fail(StorageError(why))
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
        return waited > config.roll_ms

    def _write(self, group: "AppendGroup", results: list[Appended | OttlaError]) -> None:
        """Writes a group and makes its changes true; if the disk refuses, nothing changes and its results say so."""
        if not group.batches:
            return
        first = group.batches[0]
        try:
            self.segments.active.append(group.batches)
            self.health.refusal = None
            if first.leader_epoch != self.epochs.latest:
                self.epochs.assign(first.leader_epoch, first.base_offset)
            if group.pending is not None:
                self.producers.apply(group.pending)
                self._note_aborted(group.pending.completed, first.base_offset)
        except (StorageError, CorruptError) as error:
            if isinstance(error, StorageError):
                self.health.note_refusal(error)
            since = results[group.first_result :]
            results[group.first_result :] = [error if isinstance(result, Appended) else result for result in since]

    def _write_run(self, run: memoryview, batches: Sequence[Batch], now: TimestampMs) -> None:
        if not batches:
            return
        if any(batch.is_control for batch in batches):
            self._mend_transaction_index(self.end_offset)
        begin, end = batches[0].position, batches[-1].position + batches[-1].size_bytes
        with self.health.noting_refusals():
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

    def _mend_transaction_index(self, offset: Offset) -> None:
        with self._disk_errors("check a transaction index"):
            self.segments.mend_transaction_index(offset)

    def _offsets_of(self, damage: DamagedSegmentError) -> str:
        """Which offsets a corrupt batch covers, as far as its header can be believed."""
        segment = next((each for each in self.segments if each.log_path == damage.path), None)
        with suppress(OSError, CorruptError):
            place = segment.place_at(damage.position) if segment is not None else None
            if place is not None and place.last_offset < self.end_offset:
                first, last = place.base_offset, place.last_offset
                return f"offsets {first} to {last} cannot be read, offset {last + 1} is the next one"
        return f"the offsets of the batch are unknown, the log covers {self.start_offset} to {self.end_offset}"

    @contextmanager
    def _disk_errors(self, what: str) -> Iterator[None]:
        try:
            with self.health.noting_damage():
                yield
        except OSError as error:
            raise StorageError(f"{error.filename or self.folder}: cannot {what}: {error.strerror or error}") from error

    def _lower_recovery_point(self, offset: Offset) -> None:
        self.truncations += 1
        self._group_commit.on_cut(offset)
        if self.recovery_point > offset:
            before, self.recovery_point = self.recovery_point, offset
            try:
                self._persist_bounds()
            except StorageError:
                self.recovery_point = before  # As the disk has it, so that the next attempt writes it down again.
                raise

    def _lower_high_watermark(self, end: Offset) -> None:
        """Before a cut below it: a checkpoint beyond the log's end would look like a loss at the next start."""
        if self.persisted_high_watermark > end:
            before, self.high_watermark = self.high_watermark, min(self.high_watermark, end)
            try:
                self._persist_bounds()
            except StorageError:
                self.high_watermark = before
                raise

    def _forget_after_cut(self) -> None:
        """Brings what was derived from the removed batches in line with those that are left."""
        end = self.end_offset
        self.lost = tuple(OffsetRange(first, min(until, end)) for first, until in self.lost if first < end)
        self.epochs.truncate_from_end(end)
        self.high_watermark = min(self.high_watermark, end)
        self.cleaned_offset = min(self.cleaned_offset, end)
        remove_snapshots_after(self._disk, self.folder, end)
        self.producers = load_producers(self._disk, self.folder, list(self.segments), end)
        self.producers.on_high_watermark(self.high_watermark)
