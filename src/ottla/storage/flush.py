"""Makes a log survive a power cut: what one flush covers, and group commit.

A `FlushJob` is taken on the event loop, run in a thread, and reported back to the log. With `GroupCommit` any number of
appends wait for one fsync; appends that arrive during it wait for the next one.
"""

import asyncio
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.env.ports import Disk, File
from ottla.model.errors import StorageError
from ottla.model.ids import LeaderEpoch, Offset
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import write_epochs

if TYPE_CHECKING:
    from ottla.storage.log import Log

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Everything that must be durable before the recovery point may move to `end_offset`."""

    disk: Disk
    folder: str
    end_offset: Offset
    truncations: int
    """How often the log had been truncated when the job was taken: a later truncation invalidates the job."""
    sealed_paths: tuple[str, ...]
    active: File
    epochs: dict[LeaderEpoch, Offset] | None
    """The leader epochs to write, if they have changed."""
    sync_folders: tuple[str, ...]
    """Folders with new names that a power cut could still undo."""

    def run(self) -> None:
        """Blocks until everything is on disk. The indexes of the active segment are left out: a recovery rebuilds
        them.

        Raises OSError if it is unknown what is on disk. Raises StorageError if all records are, but there was no space
        for the leader epochs; then the recovery point must not move.
        """
        for path in self.sealed_paths:
            self._sync_if_there(path)
        self.active.sync()
        for folder in self.sync_folders:
            self.disk.sync_dir(folder)
        if self.epochs is not None:
            self._write_epochs(self.epochs)

    def _write_epochs(self, epochs: dict[LeaderEpoch, Offset]) -> None:
        path = f"{self.folder}/{names.EPOCHS}"
        try:
            write_epochs(self.disk, path, epochs)
        except OSError as error:
            if error.errno in _FULL:
                raise StorageError(f"{path}: cannot write: {error.strerror}") from error
            raise

    def _sync_if_there(self, path: str) -> None:
        try:
            file = self.disk.open(path, writable=False)
        except FileNotFoundError:
            return  # Retention or the cleaner has removed it in the meantime.
        try:
            file.sync()
        finally:
            file.close()


class _Waiter:
    """Waits for everything below `offset`; `is_cut` once a part of that was truncated."""

    __slots__ = ("is_cut", "offset")

    def __init__(self, offset: Offset, *, is_cut: bool) -> None:
        self.offset = offset
        self.is_cut = is_cut


class GroupCommit:
    """Flushes one log: at most one fsync at a time, each for all waiting appends."""

    __slots__ = ("_disk", "_flushing", "_log", "_waiters")

    def __init__(self, log: "Log", disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._flushing: asyncio.Future[None] | None = None
        self._waiters: dict[_Waiter, None] = {}

    async def wait_flushed(self, offset: Offset) -> None:
        """Returns once everything below `offset` would survive a power cut.

        Raises StorageError if the disk fails. The log is offline then, since it is unknown what was written, unless the
        disk is only full.
        """
        waiter = _Waiter(offset, is_cut=self._log.end_offset < offset)
        self._waiters[waiter] = None
        try:
            while waiter.is_cut or self._log.recovery_point < offset:
                self._log.check_usable()
                if waiter.is_cut:
                    raise StorageError(f"{self._log.folder}: offset {offset} was truncated before it was flushed")
                if self._flushing is None:
                    self._flushing = asyncio.ensure_future(self._flush())
                await asyncio.shield(self._flushing)
        finally:
            self._waiters.pop(waiter, None)

    def on_cut(self, end_offset: Offset) -> None:
        """The log was truncated to this offset: waiters for later offsets must not take other records for their
        own."""
        for waiter in self._waiters:
            waiter.is_cut = waiter.is_cut or waiter.offset > end_offset

    async def _flush(self) -> None:
        try:
            job = self._log.begin_flush()
            try:
                await self._disk.in_background(job.run)
            except OSError as error:
                if job.folder != self._log.folder:
                    return  # The log was moved to another data dir, where all of it is flushed.
                raise self._log.fail(error, "flush") from error
            except StorageError as error:
                if job.folder != self._log.folder:
                    return
                raise self._log.health.note_refusal(error) from error.__cause__
            self._log.end_flush(job)
        finally:
            self._flushing = None
