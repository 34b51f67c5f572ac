"""The recurring work of a log store: retention, compaction, flushing by time, checkpoints, unlinking, idle handles.

Each task runs for one log at a time and yields to the event loop in between; the failure of one log is logged and does
not stop the others. CPU-bound work runs in the helper process, blocking work in a thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ottla.env.ports import Clock, Disk
from ottla.model.errors import OttlaError, RemovedLogError
from ottla.model.ids import Offset, TimestampMs
from ottla.storage.cleaning.cleaner import Cleaner
from ottla.storage.log import Log
from ottla.storage.log_store import LogStore
from ottla.storage.retention import expire

_LOGGER: Final = logging.getLogger(__name__)
_TICK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HousekeepingConfig:
    """How often each task runs; Kafka's broker configs."""

    retention_check_interval_ms: int = 300_000
    flush_checkpoint_interval_ms: int = 60_000
    high_watermark_checkpoint_interval_ms: int = 5_000
    idle_handles_interval_ms: int = 300_000
    cleaner_backoff_ms: int = 15_000
    """How long the cleaner waits when no log needs cleaning."""


@dataclass(slots=True)
class _Chore:
    every_ms: int
    work: Callable[[TimestampMs], Awaitable[None]]
    due: int = field(default=0)


class Housekeeping:
    """Runs the tasks of a store when they are due."""

    def __init__(self, store: LogStore, disk: Disk, clock: Clock, config: HousekeepingConfig, cleaner: Cleaner) -> None:
        self._store = store
        self._cleaner = cleaner
        self._cleaner_backoff_seconds = config.cleaner_backoff_ms / 1000
        self._disk = disk
        self._clock = clock
        self._unflushed_ms: dict[Log, TimestampMs] = {}
        """Since when a log has had records that are not flushed, as `flush_by_time` saw it."""
        self._chores = [
            _Chore(1_000, self.sweep),
            _Chore(1_000, self.flush_by_time),
            _Chore(1_000, self.remember_metadata),
            _Chore(config.retention_check_interval_ms, self.expire),
            _Chore(config.flush_checkpoint_interval_ms, self.checkpoint),
            _Chore(config.high_watermark_checkpoint_interval_ms, self.checkpoint_high_watermarks),
            _Chore(config.idle_handles_interval_ms, self.release_idle),
        ]

    async def run(self) -> None:
        """Runs until cancelled. The cleaner runs concurrently, since it may take long."""
        await asyncio.gather(self._run_chores(), self._run_cleaner())

    async def _run_chores(self) -> None:
        now = self._clock.now_ms()
        for chore in self._chores:
            chore.due = now + chore.every_ms
        while True:
            await self._clock.sleep(_TICK_SECONDS)
            await self.do_due()

    async def _run_cleaner(self) -> None:
        while True:
            while await self.clean_one():
                pass
            await self._clock.sleep(self._cleaner_backoff_seconds)

    async def clean_one(self) -> bool:
        """Compacts the log that needs it most; False if none does."""
        now = self._clock.now_ms()
        store = self._store
        found = self._cleaner.cleanable(store, now)
        if found is None:
            return False
        partition = found.log.partition
        try:
            # A recovery treats gaps beyond the recovery point as losses, so compaction makes gaps only below it.
            await found.log.wait_flushed(found.first_uncleanable_offset)
            await store.checkpoints.save_in_background()
            report = await self._cleaner.clean(found.log, now, discard=store.discard)
        except RemovedLogError:
            return False
        except OttlaError as error:
            _LOGGER.error("partition %s was not cleaned: %s", partition, error)
            return False
        if report.is_abandoned:
            return False
        _LOGGER.info(
            "partition %s: cleaned up to offset %d, %d records kept, %d removed, from %d bytes to %d",
            partition,
            report.next_dirty_offset,
            report.records_kept,
            report.records_removed,
            report.bytes_read,
            report.bytes_written,
        )
        await store.checkpoints.save_in_background()
        return True

    async def do_due(self) -> None:
        """Runs the tasks that are due now."""
        now = self._clock.now_ms()
        for chore in self._chores:
            if now >= chore.due:
                chore.due = now + chore.every_ms
                try:
                    await chore.work(now)
                except (OttlaError, OSError) as error:
                    _LOGGER.error("%s", error)

    async def sweep(self, now: TimestampMs) -> None:
        """Unlinks files whose delay is over."""
        due = self._store.trash.take_due(now)
        if due:
            await self._disk.in_background(self._store.trash.unlink, due)

    async def expire(self, now: TimestampMs) -> None:
        """Deletes expired segments and forgets expired producers.

        The starts of all logs are checkpointed once, in the background, before the first file is deleted.
        """
        shrinking: list[Log] = []
        for log in self._usable():
            try:
                if expire(log, now):
                    shrinking.append(log)
            except RemovedLogError:
                continue
            except (OttlaError, OSError) as error:
                _LOGGER.error("%s", error)
                continue
            log.producers.expire(now, log.config.producer_id_expiration_ms)
            await asyncio.sleep(0)
        if shrinking:
            await self._store.checkpoints.save_in_background()
        for log in shrinking:
            try:
                log.delete_below_start()
            except RemovedLogError:
                continue
            except OttlaError as error:
                _LOGGER.error("%s", error)
                continue
            await asyncio.sleep(0)

    async def flush_by_time(self, now: TimestampMs) -> None:
        """Flushes logs whose oldest unflushed record has waited for `flush.ms`."""
        # A new dict each time, since a deleted log would stay in memory.
        self._unflushed_ms = {
            log: self._unflushed_ms.get(log, now) for log in self._usable() if log.recovery_point != log.end_offset
        }
        for log, since in list(self._unflushed_ms.items()):
            if now - since >= log.config.flush_ms:
                del self._unflushed_ms[log]
                await self._flush(log, log.end_offset)

    async def remember_metadata(self, now: TimestampMs) -> None:
        """Records the version of the metadata that the broker acts on, if it has changed."""
        await self._store.save_metadata_seen()

    async def checkpoint_high_watermarks(self, now: TimestampMs) -> None:
        """Writes high watermarks that have changed: at the next start they show whether a log lost its end."""
        await self._store.checkpoints.save_high_watermarks_in_background()

    async def checkpoint(self, now: TimestampMs) -> None:
        """Writes the checkpoints, so that a recovery has little to scan."""
        for log in self._usable():
            if len(log.segments) > 1 and log.recovery_point < log.segments.active.base_offset:
                await self._flush(log, log.segments.active.base_offset)
        await self._store.checkpoints.save_in_background()

    async def release_idle(self, now: TimestampMs) -> None:
        """Releases handles and maps that were not used lately."""
        for log in self._usable():
            log.segments.release_idle()
            await asyncio.sleep(0)

    async def _flush(self, log: Log, offset: Offset) -> None:
        """Flushes one log; a failure takes only that log offline."""
        try:
            await log.wait_flushed(offset)
        except RemovedLogError:
            return
        except OttlaError as error:
            _LOGGER.error("%s", error)

    def _usable(self) -> list[Log]:
        return [log for log in self._store if log.failure is None]
