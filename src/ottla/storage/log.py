"""One partition's log: its segments in order, its producers and leader epochs, and its bounds.

Covers append as leader (assigns offsets) and as follower (keeps them), reads as file ranges, search by time,
truncation, moving the start, rolling, flushing and closing. Not here: recovery after a crash
(`recovery/log_recovery.py`), which segments expire (`retention.py`), compaction (`cleaning/cleaner.py`) and all logs
together (`log_store.py`).

    start_offset <= last_stable_offset <= high_watermark <= end_offset;  recovery_point <= end_offset

All methods run on the event loop and block only for the disk; `begin_flush` hands out the part that blocks for long.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ottla.env.ports import Disk
from ottla.model.errors import (
    CorruptBatchError,
    CorruptError,
    DecompressionLimitError,
    OffsetOutOfRangeError,
    OttlaError,
    RemovedLogError,
    StorageError,
)
from ottla.model.ids import (
    NO_OFFSET,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    QUEUE_PRODUCER_BIT,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
    TimestampMs,
    TopicPartition,
)
from ottla.model.invariants import violated
from ottla.records.batch import Batch, scan
from ottla.records.control import gap_batch, marker_batch
from ottla.records.decode import find_time
from ottla.records.layout import Marker, TimestampType
from ottla.records.payload import INLINE_BYTES_MAX, InBackground
from ottla.storage.append_group import AppendGroup
from ottla.storage.batch_validation import validate
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import write_epochs
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.flush import FlushJob, GroupCommit
from ottla.storage.log_config import LogConfig
from ottla.storage.log_health import LogHealth
from ottla.storage.producers.producer_files import load_producers, remove_snapshots_after, replay, write_snapshot
from ottla.storage.producers.producer_state import Appends, CompletedTransaction, ProducerStates
from ottla.storage.producers.refused_batches import RefusedBatches
from ottla.storage.segments.closed_segments import ClosedLog, OffsetRange
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.storage.segments.segment import RELATIVE_OFFSET_MAX, FileRange, Segment
from ottla.storage.segments.segment_list import SegmentList, run_search
from ottla.storage.segments.time_index import TimestampOffset
from ottla.storage.segments.transaction_index import AbortedTransaction

_LOGGER: Final = logging.getLogger(__name__)


class Appended(Struct, frozen=True):
    """The offsets of an appended batch, and the append time if the topic uses LogAppendTime (otherwise -1)."""

    base_offset: Offset
    last_offset: Offset
    append_time: TimestampMs = NO_TIMESTAMP
    is_duplicate: bool = False
    """The batch had been appended before; the offsets are those of the first append."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogParts:
    """The parts of a log, as `recovery/log_recovery.py` opens them."""

    segments: list[Segment]
    epochs: EpochHistory
    producers: ProducerStates
    start_offset: Offset
    recovery_point: Offset
    is_settled: bool
    """Whether the folder's name is known to survive a power cut; if not, the first flush makes sure of it."""
    damage: CorruptError | None = None
    """The first damage or loss that was found."""
    has_segments: bool = True
    """Whether the folder had any segment; if not, one was created."""
    lost: tuple[OffsetRange, ...] = ()
    """Offsets of records that were written and cannot be read."""
    is_damage_in_lost: bool = True
    """Whether the damage is gone once the log start has passed `lost`."""
    is_start_lost: bool = False
    """Whether the log may begin later than at `start_offset`: the checkpoint that says so is missing or damaged."""


class Log:
    """One partition's log.

    `persist_bounds` makes the log start and the recovery point durable before it returns. The log calls it before a
    truncation, so that a recovery never trusts bytes that were truncated and written again. `discard` takes the paths
    of files that are no longer part of the log, and a delay in ms after which to unlink them.
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
        self.refused = RefusedBatches()
        self.start_offset = parts.start_offset
        self.recovery_point = parts.recovery_point
        self.high_watermark = parts.start_offset
        self.persisted_start = Offset(0)
        """The log start in the checkpoint on disk; the store keeps this up to date."""
        self.persisted_high_watermark = Offset(0)
        """The high watermark in the checkpoint on disk."""
        self.cleaned_offset = Offset(0)
        """The offset up to which compaction has made keys unique."""
        self.lost_end = Offset(0)
        """Where the log had ended, if it ends early now. Kept in the high watermark checkpoint, so that the next start
        finds the same loss, until the cluster has decided what replaces the records."""
        self.is_start_lost = parts.is_start_lost
        """Whether records below a start that is no longer known may be visible again. The leader takes the start from
        its followers, and a follower from its leader."""
        self.lost = parts.lost
        """Offsets of records that were written and cannot be read, as found when the log was opened."""
        self._damage_of_lost = parts.damage if parts.is_damage_in_lost else None
        """The damage that is gone once the log start has passed the lost offsets."""
        self.truncations = 0
        self.health = LogHealth(on_trouble, parts.damage, name=str(partition), offsets_of=self._offsets_of)
        self.segments = SegmentList(
            disk, folder, parts.segments, lambda paths: discard(paths, self.config.file_delete_delay_ms)
        )
        self._disk = disk
        self._discard = discard
        self.is_moving = False
        """Whether the log is being copied to another data dir: it must not be compacted meanwhile."""
        self.is_cleaning = False
        """Whether the log is being compacted: it must not be copied meanwhile."""
        self._has_gaps = False
        """Whether a leader has shown that offsets are missing in its log, too."""
        self._is_settled = parts.is_settled
        self._group_commit = GroupCommit(self, disk)
        self._persist_bounds = persist_bounds

    # State

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.segments.active.next_offset

    @property
    def readable_end(self) -> Offset:
        """Where the readable records end: before the log end if the last records are lost and none were appended after
        them."""
        active = self.segments.active
        if active.size_bytes == 0:
            for first, end in self.lost:
                if end == active.base_offset:
                    return first
        return self.end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction below it is decided; read_committed consumers read up to it."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return max(self.start_offset, min(unstable, self.high_watermark))

    @property
    def size_bytes(self) -> int:
        """The size of all batches."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def failure(self) -> StorageError | None:
        """Why the log cannot be used any more."""
        return self.health.failure

    def check_usable(self) -> None:
        """Raises if the disk has failed, or if the log is closed."""
        if self.health.failure is not None:
            raise self.health.failure

    def fail(self, error: OSError, what: str) -> StorageError:
        """Takes the log offline after an error that leaves its files in an unknown state; returns the error to
        raise. If the log was removed in the meantime, that is the reason."""
        if isinstance(self.health.failure, RemovedLogError):
            return self.health.failure
        where = error.filename or self.folder
        why = f"{where}: cannot {what}: {error.strerror or error}; the partition is offline"
        return self.health.fail(StorageError(why))

    def advance_high_watermark(self, offset: Offset) -> None:
        """Moves the high watermark forward, at most to the end."""
        if offset > self.segments.active.next_offset:
            violated(f"{self.partition}: high watermark {offset} beyond the end {self.end_offset}")
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)

    def as_closed(self) -> ClosedLog:
        """The segments and lost offsets that the next start should find."""
        return ClosedLog(
            sizes={segment.base_offset: segment.size_bytes for segment in self.segments},
            lost=tuple(each for each in self.lost if each.end > self.start_offset),
        )

    def move_to(self, folder: str, parts: LogParts, persist_bounds: Callable[[], None]) -> None:
        """Continues in another folder, which has the same batches, all of them flushed. The old files are let go."""
        if parts.segments[-1].next_offset != self.end_offset:
            violated(f"{self.partition}: moved to {folder}, which ends at {parts.segments[-1].next_offset}")
        self.segments.release()
        self.folder = folder
        self.segments = SegmentList(
            self._disk, folder, parts.segments, lambda paths: self._discard(paths, self.config.file_delete_delay_ms)
        )
        self._persist_bounds = persist_bounds
        self.truncations += 1  # A flush that was begun was of other files.
        self.recovery_point = self.end_offset
        self._is_settled = True
        self.epochs.dirty = True

    # Appending

    def append(
        self, batches: Sequence[Batch], *, leader_epoch: LeaderEpoch, now: TimestampMs, is_own: bool = False
    ) -> list[Appended | OttlaError]:
        """Appends batches of clients, or the broker's own, as the leader; each result is the batch's offsets or the
        error.

        Batches must be in writable memory: offset and leader epoch are written into them. A repeated batch gets the
        offsets of the first append. Consecutive batches are written together.
        """
        if self.health.failure is not None:
            raise self.health.failure
        if len(batches) == 1 and batches[0].producer_id == NO_PRODUCER_ID:
            return [self._append_plain(batches[0], leader_epoch, now, is_own=is_own)]
        results: list[Appended | OttlaError] = []
        group = AppendGroup(self.segments.active.next_offset, 0)
        config = self.config
        append_time = now if config.timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        for batch in batches:
            try:
                batch = validate(batch, config, now, is_own=is_own)
                if self._must_roll(batch, Offset(group.end_offset + batch.last_offset_delta), group.size_bytes, now):
                    self._write(group, results, now)
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
                    if self.refused.by_producer:
                        self.refused.check(batch, self.producers.find(batch.producer_id, group.pending), now)
                    batch.stamp(group.end_offset, leader_epoch)
                    self.producers.prepare(batch, group.pending, group.end_offset, check=True)
                else:
                    batch.stamp(group.end_offset, leader_epoch)
            except OttlaError as error:
                if isinstance(error, StorageError):
                    self.refused.note(batch, error, now)
                results.append(self._repeated(batch, group) or error)
                continue
            results.append(Appended(group.end_offset, batch.last_offset, append_time))
            group.add(batch)
        self._write(group, results, now)
        return results

    def _append_plain(
        self, batch: Batch, leader_epoch: LeaderEpoch, now: TimestampMs, *, is_own: bool
    ) -> Appended | OttlaError:
        """`append` for one batch of no producer, as coordinators write them: there is nothing to gather."""
        config = self.config
        try:
            batch = validate(batch, config, now, is_own=is_own)
            base_offset = self.segments.active.next_offset
            if self._must_roll(batch, Offset(base_offset + batch.last_offset_delta), 0, now):
                self.roll(now)
            batch.stamp(base_offset, leader_epoch)
        except OttlaError as error:
            return error
        try:
            self.segments.active.append((batch,))
        except StorageError as error:
            return self.health.note_refusal(error)
        except CorruptError as error:
            return error
        self.health.refusal = None
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        append_time = now if config.timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        return Appended(base_offset, batch.last_offset, append_time)

    def _repeated(self, batch: Batch, group: AppendGroup) -> Appended | None:
        """The append that an invalid batch of a queue repeats: it was valid then, but time or a config has changed.

        A queue must learn that its batch is there, or it would deliver the records a second time.
        """
        if batch.producer_id < QUEUE_PRODUCER_BIT:
            return None
        earlier = self.producers.duplicate_of(batch, group.pending or Appends())
        if earlier is None:
            return None
        return Appended(earlier.first_offset, earlier.last_offset, NO_TIMESTAMP, is_duplicate=True)

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

        Where every transaction has its own epoch, `must_exceed_epoch` refuses the late marker of an earlier
        transaction.
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
        self._write(group, results, now)
        if isinstance(results[0], OttlaError):
            raise results[0]
        return appended

    def end_gap(self, *, leader_epoch: LeaderEpoch, now: TimestampMs) -> None:
        """If the last records of the log are lost, appends a control batch behind them, as the leader.

        Without it, consumers before the lost records would never reach the end of the log, until something is produced.
        """
        if self.health.failure is not None or self.readable_end == self.end_offset:
            return
        group, results = AppendGroup(self.end_offset, 0), list[Appended | OttlaError]()
        group.add(Batch(gap_batch(now, base_offset=self.end_offset, leader_epoch=leader_epoch)))
        self._write(group, results, now)

    def append_as_follower(self, run: memoryview, *, now: TimestampMs) -> int:
        """Appends batches as the leader sent them, with their offsets and epochs; returns how many.

        An incomplete last batch is skipped: the next fetch brings it whole. So is what follows the first gap. Raises if
        a batch is damaged or does not continue the log; the batches before it are appended.
        """
        self.check_usable()
        batches, _, problem = scan(run)
        start, expected = 0, self.end_offset
        for at, batch in enumerate(batches):
            if batch.base_offset != expected:
                if batch.base_offset < expected:
                    problem = f"offset {batch.base_offset} is below the expected offset {expected}"
                    # Of two batches that were exchanged, the first is wrong, too.
                    end = batch.base_offset
                    batches = [*batches[:start], *(each for each in batches[start:at] if each.next_offset <= end)]
                    break
                if at > 0 and not self._has_gaps:
                    # The leader checks the order of its batches if it is asked for the offset that seems to be missing.
                    batches = batches[:at]
                    break
                self._has_gaps = True  # The leader was asked for it: compaction has removed records.
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
        """Seals the active segment and starts a new one, unless the active one is empty and can stay."""
        self.check_usable()
        active = self.segments.active
        base_offset = max(self.end_offset, base_offset or Offset(0))
        if active.size_bytes == 0 and base_offset == active.base_offset:
            return
        try:
            active.seal()
            if active.is_new and len(self.segments) == 1:
                # If this name were lost and the next one kept, the log would seem to begin there.
                self._disk.sync_dir(self.folder)
            if self.config.cleanup_compact:
                # If its tail were lost and the next segment kept, the gap would look like one left by compaction.
                active.file.sync()
            write_snapshot(self._disk, self.folder, base_offset, self.producers, self.segments.ended())
            self.segments.add(Segment.create(self._disk, self.folder, base_offset, self.config, now))
        except OSError as error:
            where = error.filename or self.folder
            refusal = StorageError(f"{where}: cannot start a segment at {base_offset}: {error.strerror}")
            raise self.health.note_refusal(refusal) from error

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, *, upper: Offset | None = None, at_least_one: bool = True
    ) -> FileRange | None:
        """The batches from `offset` to `upper` (by default the high watermark), as a file range that begins with the
        batch that contains `offset`.

        At most `max_bytes`, but with `at_least_one` at least the whole first batch; the last may be cut off. None if
        there is nothing to read yet. Raises OffsetOutOfRangeError outside the log.
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
        """The aborted transactions that a reader of [start, upper) must leave out, or only those in the range
        `found`."""
        self.check_usable()
        with self._disk_errors("find aborted transactions"):
            return self.segments.aborted_transactions(start, upper, found)

    def find_timestamp(self, timestamp: TimestampMs) -> TimestampOffset | None:
        """The first record with at least this timestamp."""
        self.check_usable()
        with self._disk_errors(f"find timestamp {timestamp}"):
            return run_search(self.segments.find_timestamp(timestamp, self.start_offset))

    def largest_timestamp(self) -> TimestampOffset | None:
        """The first record with the log's largest timestamp."""
        self.check_usable()
        with self._disk_errors("find the largest timestamp"):
            return run_search(self.segments.largest_timestamp(self.start_offset))

    async def search_time(self, timestamp: TimestampMs | None, in_background: InBackground) -> TimestampOffset | None:
        """`find_timestamp`, or for None `largest_timestamp`. Looks in the background into batches that decompress to
        much."""
        while True:
            self.check_usable()
            with self._disk_errors("search by time"):
                start, first, truncations = self.start_offset, self.segments[0], self.truncations
                if timestamp is None:
                    search = self.segments.largest_timestamp(start)
                else:
                    search = self.segments.find_timestamp(timestamp, start)
                try:
                    look = next(search)
                    while True:
                        try:
                            found = find_time(*look, limit=INLINE_BYTES_MAX)
                        except DecompressionLimitError:
                            found = await in_background(find_time, *look)
                            if self.segments[0] is not first or self.truncations != truncations:
                                break  # The segments are others by now.
                        look = search.send(found)
                except StopIteration as end:
                    result: TimestampOffset | None = end.value
                    return result

    # Truncating

    def truncate_to(self, offset: Offset, *, now: TimestampMs) -> bool:
        """Removes the batch that contains `offset` and all after it; returns whether anything was removed."""
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
            # The log start is inside the batch that is removed, so that nothing is left to read.
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
        _LOGGER.info("partition %s: truncated from offset %d to %d", self.partition, before, self.end_offset)
        return True

    def truncate_fully(self, start_at: Offset, *, now: TimestampMs) -> None:
        """Removes everything; the next record gets the offset `start_at`."""
        self.check_usable()
        first, before = self.segments[0].base_offset, self.end_offset
        # Before the start changes: what is removed counts as unflushed, so that none of it can look like a loss.
        self._lower_recovery_point(min(start_at, first))
        if start_at >= first:
            self._move_start(start_at)
        else:
            self._lower_high_watermark(self.start_offset)
        try:
            # First, so that neither epochs nor a snapshot as of `start_at` outlive the batches that they were made
            # from.
            self.epochs.clear()
            write_epochs(self._disk, f"{self.folder}/{names.EPOCHS}", self.epochs.starts)
            remove_snapshots_after(self._disk, self.folder, NO_OFFSET)
            self.segments.drop_all(lambda: Segment.create(self._disk, self.folder, start_at, self.config, now))
            self.recovery_point = start_at
            self._forget_after_cut()
        except OSError as error:
            raise self.fail(error, f"start again at {start_at}") from error
        if start_at < first:
            # Only after the segments are removed: segments that begin behind a checkpointed start look like a lost
            # first one.
            self._move_start(start_at)
        _LOGGER.info(
            "partition %s: removed offsets %d to %d; the log continues at offset %d",
            self.partition,
            first,
            before,
            start_at,
        )

    def _move_start(self, start_at: Offset) -> None:
        bounds = self.start_offset, self.recovery_point, self.high_watermark
        self.start_offset = self.high_watermark = start_at
        try:
            self._persist_bounds()
        except StorageError:
            self.start_offset, self.recovery_point, self.high_watermark = bounds
            raise

    def advance_start(self, offset: Offset) -> None:
        """Moves the log start to `offset`. `delete_below_start` later deletes the segments below it."""
        self.check_usable()
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.partition}: cannot delete up to {offset}, above the high watermark {self.high_watermark}"
            )
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)
            if self._damage_of_lost is not None and all(each.end <= offset for each in self.lost):
                self.health.forget_damage(self._damage_of_lost)

    def delete_below_start(self) -> int:
        """Deletes the segments below the log start; returns how many.

        A recovery that finds some of them must know that they were to be deleted. So the log start is checkpointed
        first, if it has not been since it moved, which waits for the disk.
        """
        self.check_usable()
        count = self.segments.index_of(self.start_offset)
        if count == 0:
            return 0
        if self.persisted_start < self.segments[count].base_offset:
            self._persist_bounds()
        try:
            if any(segment.is_new for segment in self.segments.from_offset(self.start_offset)):
                self._disk.sync_dir(
                    self.folder
                )  # The names of the segments that stay must be durable before the others are deleted.
            self.segments.drop_before(count)
        except OSError as error:
            raise self.fail(error, "delete old segments") from error
        _LOGGER.info(
            "partition %s: deleted %d segments; the log starts at offset %d", self.partition, count, self.start_offset
        )
        return count

    # Durability

    def begin_flush(self, *, closing: bool = False) -> FlushJob:
        """What must be synced to make everything appended so far durable; run it in the background, then call
        `end_flush`. Raises StorageError if a file cannot be opened for it: then nothing has changed."""
        self.check_usable()
        try:
            return self._flush_job(closing)
        except OSError as error:
            refusal = StorageError(f"{error.filename or self.folder}: cannot flush: {error.strerror}")
            raise self.health.note_refusal(refusal) from error

    def end_flush(self, job: FlushJob) -> None:
        """Moves the recovery point after a job has succeeded, unless the log was truncated in the meantime."""
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
        except StorageError as error:
            raise self.health.note_refusal(error) from error.__cause__
        self.end_flush(job)

    @property
    def flush_is_due(self) -> bool:
        """Whether `flush.messages` requires a flush before the last append is acknowledged."""
        return self.segments.active.next_offset - self.recovery_point >= self.config.flush_messages

    async def wait_flushed(self, offset: Offset) -> None:
        """Returns once everything below `offset` would survive a power cut. Concurrent callers share one fsync.

        Raises StorageError if the disk fails. The log is offline then, since it is unknown what was written, unless the
        disk is only full.
        """
        await self._group_commit.wait_flushed(offset)

    def abandon(self, why: str) -> None:
        """Gives up the files as they are; every further use raises."""
        self._give_up(StorageError(why))

    def remove(self) -> None:
        """The files are about to be deleted or set aside; every further use raises RemovedLogError."""
        self._give_up(RemovedLogError(f"{self.partition} was deleted or set aside"))

    def _give_up(self, error: StorageError) -> None:
        self.health.fail(error)
        self.segments.release()

    def close(self) -> None:
        """Seals, snapshots and flushes, so that the next start need not scan anything."""
        if self.failure is None:
            try:
                write_snapshot(self._disk, self.folder, self.end_offset, self.producers, self.segments.ended())
                self.segments.active.seal()
            except OSError as error:
                raise self.fail(error, "close") from error
            self.flush(closing=True)
            self.abandon(f"{self.partition}: the log is closed")

    # Internals

    def _flush_job(self, closing: bool) -> FlushJob:
        # From the segment of the last flushed record on: if it was sealed since, its indexes are not flushed yet.
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

    def _must_roll(self, batch: Batch, last_offset: Offset, ahead_bytes: int, now: TimestampMs) -> bool:
        """Whether `batch` needs a new segment, if `ahead_bytes` are written to the active one before it."""
        active, config = self.segments.active, self.config
        size = active.size_bytes + ahead_bytes
        # Comparisons in place, as this runs for every batch: each call costs as much as all of them.
        if last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if size == 0:
            return False
        if size + batch.size_bytes > config.segment_bytes:
            return True
        if active.offset_index.is_full or active.time_index.is_full:
            return True
        began = active.first_timestamp
        waited = batch.max_timestamp - began if began >= 0 else now - active.created_ms
        return waited > config.roll_ms

    def _write(self, group: "AppendGroup", results: list[Appended | OttlaError], now: TimestampMs) -> None:
        """Writes a group and applies its changes. If the disk fails, nothing changes and the results carry the
        error."""
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
            for batch in group.batches:
                self.refused.note(batch, error, now)
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
        """Indexes transactions whose abort marker was just written; if that fails, everything from `since` on is
        removed.

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
        """Which offsets a corrupt batch covers, according to its header."""
        segment = next((each for each in self.segments if each.log_path == damage.path), None)
        with suppress(OSError, CorruptError):
            place = segment.place_at(damage.position) if segment is not None else None
            if place is not None and place.last_offset < self.end_offset:
                first, last = place.base_offset, place.last_offset
                return f"offsets {first} to {last} cannot be read, the next offset is {last + 1}"
        return f"the offsets of the batch are unknown; the log covers {self.start_offset} to {self.end_offset}"

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
                self.recovery_point = before  # As on disk, so that the next attempt writes it again.
                raise

    def _lower_high_watermark(self, end: Offset) -> None:
        """Called before a truncation below it: a checkpoint beyond the log's end would look like a loss at the next
        start."""
        if self.persisted_high_watermark > end:
            before, self.high_watermark = self.high_watermark, min(self.high_watermark, end)
            try:
                self._persist_bounds()
            except StorageError:
                self.high_watermark = before
                raise

    def _forget_after_cut(self) -> None:
        """Updates everything that was derived from the removed batches."""
        end = self.end_offset
        self.lost = tuple(OffsetRange(first, min(until, end)) for first, until in self.lost if first < end)
        self.epochs.truncate_from_end(end)
        self.high_watermark = min(self.high_watermark, end)
        self.cleaned_offset = min(self.cleaned_offset, end)
        remove_snapshots_after(self._disk, self.folder, end)
        self.producers = load_producers(self._disk, self.folder, list(self.segments), end)
        self.producers.on_high_watermark(self.high_watermark)
