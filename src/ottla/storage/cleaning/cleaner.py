"""Compaction of whole logs: which log is next, the passes in the helper process, and the swap of their result.

The passes only write files beside the log (`cleaning_work.py`), so that appends and reads continue. The result is
swapped in group by group, the oldest first and each one durably (`swap.py`): a younger group may lack the tombstone, or
the transaction index, of records that an older one still has. The swap itself runs on the event loop without yielding:
nothing may truncate the log between its decision and its end. If the log was truncated, closed or shortened while the
passes ran, their result is discarded.

A cleaning needs free disk space for the rewritten segments.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from ottla.env.ports import Clock, Disk, Helper
from ottla.model.errors import CorruptError, MisuseError, OttlaError, StorageError
from ottla.model.ids import Offset, ProducerId, TimestampMs, TopicPartition
from ottla.records.compaction import OffsetMap
from ottla.storage.cleaning.cleaning_plan import Cleanable, look_at, sources_below
from ottla.storage.cleaning.cleaning_work import (
    CleanedGroup,
    CleaningJob,
    CleaningOutcome,
    LastRecord,
    clean_segments,
    remove_leftovers,
)
from ottla.storage.cleaning.swap import complete_swap, decide_swap, retire_sources
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from ottla.storage.log_config import MIB
from ottla.storage.segments.segment import Segment

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerConfig:
    """Kafka's `log.cleaner.*` broker configs."""

    dedupe_buffer_bytes: int = 128 * MIB
    """The memory limit of the key map. If it is full, the rest of a log waits for the next cleaning."""
    dedupe_buffer_load_factor: float = 0.9
    io_max_bytes_per_second: float | None = None
    """Reads and writes together; None for no limit."""
    hash_key: bytes = bytes(16)
    """Gives each broker its own key digests: with 16 random bytes, clients cannot construct keys that collide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningReport:
    """What one cleaning did."""

    partition: TopicPartition
    first_dirty_offset: Offset
    next_dirty_offset: Offset
    """Where the next cleaning begins: the new `cleaned_offset` of the log."""
    is_abandoned: bool = False
    """The log was changed in the meantime, and the result was discarded."""
    segments_before: int = 0
    segments_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_kept: int = 0
    records_removed: int = 0
    keys_mapped: int = 0
    keys_max: int = 0


class Cleaner:
    """Cleans one log at a time.

    `pause` blocks for a number of seconds in the helper process; an I/O limit needs it. `uncleanable` has the logs with
    a batch that cannot be read, and the error. They are not cleaned again, unless another log takes their place.
    """

    def __init__(
        self,
        disk: Disk,
        helper: Helper,
        clock: Clock,
        config: CleanerConfig,
        *,
        pause: Callable[[float], None] | None = None,
    ) -> None:
        if config.io_max_bytes_per_second is not None and (config.io_max_bytes_per_second <= 0 or pause is None):
            raise MisuseError("an I/O limit for the cleaner must be above 0 and needs `pause`")
        # Refuses invalid sizes and keys now instead of at the first cleaning; an empty map is small.
        OffsetMap(config.dedupe_buffer_bytes, config.hash_key, config.dedupe_buffer_load_factor)
        self.uncleanable: WeakKeyDictionary[Log, str] = WeakKeyDictionary()
        self._disk = disk
        self._helper = helper
        self._clock = clock
        self._config = config
        self._pause = pause
        self._busy: set[TopicPartition] = set()

    def cleanable(self, logs: Iterable[Log], now: TimestampMs) -> Cleanable | None:
        """The log that most needs cleaning, by the ratio of its dirty bytes; None if none is due."""
        best: Cleanable | None = None
        for log in logs:
            if not log.config.cleanup_compact or log.failure is not None:
                continue
            if log in self.uncleanable or log.partition in self._busy or log.is_moving:
                continue
            try:
                with log.health.noting_damage():
                    found = look_at(log, now)
            except (OttlaError, OSError) as error:
                _LOGGER.error("partition %s: cannot check whether the log needs cleaning: %s", log.partition, error)
                continue
            if found.is_due and (best is None or found.dirty_ratio > best.dirty_ratio):
                best = found
        return best

    async def clean(
        self, log: Log, now: TimestampMs, *, discard: Callable[[Sequence[str], int], None]
    ) -> CleaningReport:
        """Compacts a log from its `cleaned_offset` on, as far as it may, and moves that offset.

        `discard` takes the paths of files that are no longer part of the log, and a delay in ms after which to unlink
        them. Raises CorruptError, which names file and position, if a batch is damaged: the log is unchanged, and is
        not offered for cleaning again. Raises StorageError if the disk fails.
        """
        log.check_usable()
        if log.partition in self._busy:
            raise MisuseError(f"{log.partition} is being cleaned already")
        if log.is_moving:
            offset = log.cleaned_offset
            return CleaningReport(
                partition=log.partition, first_dirty_offset=offset, next_dirty_offset=offset, is_abandoned=True
            )
        self._busy.add(log.partition)
        log.is_cleaning = True
        try:
            with log.health.noting_damage():
                report = await self._clean(log, now, discard)
        except CorruptError as error:
            self.uncleanable[log] = str(error)
            raise
        finally:
            self._busy.discard(log.partition)
            log.is_cleaning = False
        if not report.is_abandoned:
            log.cleaned_offset = report.next_dirty_offset
        return report

    async def _clean(self, log: Log, now: TimestampMs, discard: Callable[[Sequence[str], int], None]) -> CleaningReport:
        found = look_at(log, now)
        job = self._job(found, now)
        sources = list(log.segments)[: len(job.sources)]
        state = _LogState(log, sources)
        outcome = await self._run(job, state)
        swapped = 0
        for group in outcome.groups if outcome is not None else ():
            if not state.is_unchanged():
                break
            self._swap(log, group, now, discard)
            state.on_swap(group)
            swapped += 1
            await asyncio.sleep(0)
        if outcome is None or swapped < len(outcome.groups):
            await self._remove_leftovers(log.folder, [source.base_offset for source in job.sources])
            _LOGGER.info("partition %s was changed while it was cleaned; discarded the result", log.partition)
            return CleaningReport(
                partition=log.partition,
                first_dirty_offset=found.first_dirty_offset,
                next_dirty_offset=found.first_dirty_offset,
                is_abandoned=True,
            )
        return _report(found, outcome, len(sources), len(state.segments))

    async def _run(self, job: CleaningJob, state: "_LogState") -> CleaningOutcome | None:
        """The result of the passes; None if they failed because the log's files were removed."""
        try:
            return await self._helper.run(clean_segments, self._disk, self._clock, self._pause, job)
        except (OttlaError, OSError) as error:
            await self._remove_leftovers(job.folder, [source.base_offset for source in job.sources])
            if not state.is_unchanged():
                return None
            if isinstance(error, OSError):
                where = error.filename or job.folder
                raise StorageError(f"{where}: cannot clean the log: {error.strerror or error}") from error
            raise

    def _job(self, found: Cleanable, now: TimestampMs) -> CleaningJob:
        log, end = found.log, found.first_uncleanable_offset
        return CleaningJob(
            folder=log.folder,
            config=log.config,
            sources=tuple(sources_below(log, end)),
            first_dirty_offset=found.first_dirty_offset,
            aborted=tuple(log.segments.aborted_transactions(log.segments[0].base_offset, end)),
            last_records=_last_records(log),
            now=now,
            map_bytes=self._config.dedupe_buffer_bytes,
            map_load_factor=self._config.dedupe_buffer_load_factor,
            hash_key=self._config.hash_key,
            io_bytes_per_second=self._config.io_max_bytes_per_second,
        )

    def _swap(
        self, log: Log, group: CleanedGroup, now: TimestampMs, discard: Callable[[Sequence[str], int], None]
    ) -> None:
        """Replaces source segments by their cleaned segment, on disk and then in memory."""
        disk, bases = self._disk, group.source_bases
        first = log.segments.index_of(bases[0])
        sources = [log.segments[at] for at in range(first, first + len(bases))]
        try:
            decide_swap(disk, log.folder, group.base_offset)
            for source in sources:
                source.release()
            # The first source's snapshot stays with the segment that replaces it.
            doomed = _retire_snapshots(disk, log.folder, bases[1:])
            doomed += retire_sources(disk, log.folder, bases)
            complete_swap(disk, log.folder, group.base_offset)
            cleaned = Segment.open(disk, log.folder, group.base_offset, log.config, now)
            cleaned.transaction_index.reset()  # It has no records of aborted transactions.
        except OSError as error:
            raise log.fail(error, f"swap in the cleaned segment {group.base_offset}") from error
        log.segments.replace(sources, cleaned)
        discard(doomed, log.config.file_delete_delay_ms)

    async def _remove_leftovers(self, folder: str, bases: Sequence[Offset]) -> None:
        await self._disk.in_background(remove_leftovers, self._disk, folder, bases)


class _LogState:
    """The part of a log that a cleaning relies on, to check that it has not changed."""

    def __init__(self, log: Log, sources: Sequence[Segment]) -> None:
        self.segments = list(sources)
        self._log = log
        self._truncations = log.truncations

    def is_unchanged(self) -> bool:
        """Whether the log is usable, was not truncated, and still begins with the same segments."""
        log = self._log
        if log.failure is not None or log.truncations != self._truncations:
            return False
        return list(log.segments)[: len(self.segments)] == self.segments

    def on_swap(self, group: CleanedGroup) -> None:
        """Applies the swap of a group."""
        at = next(at for at, segment in enumerate(self.segments) if segment.base_offset == group.base_offset)
        cleaned = self._log.segments[self._log.segments.index_of(group.base_offset)]
        self.segments[at : at + len(group.source_bases)] = [cleaned]


def _last_records(log: Log) -> dict[ProducerId, LastRecord]:
    return {
        entry.producer_id: LastRecord(
            data_offset=entry.batches[-1].last_offset if entry.batches else None, epoch=entry.epoch
        )
        for entry in log.producers
    }


def _retire_snapshots(disk: Disk, folder: str, bases: Sequence[Offset]) -> list[str]:
    """Renames the producer snapshots of removed segments; a recovery starts from an older one."""
    doomed: list[str] = []
    for base in bases:
        path = names.segment_path(folder, base, names.SNAPSHOT)
        if disk.exists(path):
            disk.rename(path, path + names.DELETED)
            doomed.append(path + names.DELETED)
    return doomed


def _report(found: Cleanable, outcome: CleaningOutcome, before: int, after: int) -> CleaningReport:
    totals = outcome.totals
    return CleaningReport(
        partition=found.log.partition,
        first_dirty_offset=found.first_dirty_offset,
        next_dirty_offset=outcome.end_offset,
        segments_before=before,
        segments_after=after,
        bytes_read=totals.bytes_read,
        bytes_written=totals.bytes_written,
        records_kept=totals.records_kept,
        records_removed=totals.records_removed,
        keys_mapped=totals.keys_mapped,
        keys_max=totals.keys_max,
    )
