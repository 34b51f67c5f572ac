"""Making a log survive a power cut: what one flush covers, and group commit.

A `FlushJob` is taken on the event loop, run in a thread, and reported back to the log. `GroupCommit` lets any number of
appends wait for one fsync, and starts the next for those that came meanwhile.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.env.ports import Disk, File
from ottla.model.errors import StorageError
from ottla.model.ids import LeaderEpoch, Offset
from ottla.storage import names
from ottla.storage.checkpoints import write_epochs

if TYPE_CHECKING:
    from ottla.storage.log import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushJob:
    """Everything that must be durable before the recovery point may move to `end_offset`."""

    disk: Disk
    folder: str
    end_offset: Offset
    truncations: int
    """How often the log had been cut when the job was taken: a later cut makes its outcome worthless."""
    sealed_paths: tuple[str, ...]
    active: File
    epochs: dict[LeaderEpoch, Offset] | None
    """What to write down, if it has changed."""
    sync_folders: tuple[str, ...]
    """Folders in which names were made that a power cut might still take back."""

    def run(self) -> None:
        """Blocks until all of it is on disk. The active segment's indexes are left out: a recovery rebuilds them."""
        for path in self.sealed_paths:
            self._sync_if_there(path)
        self.active.sync()
        if self.epochs is not None:
            write_epochs(self.disk, f"{self.folder}/{names.EPOCHS}", self.epochs)
        for folder in self.sync_folders:
            self.disk.sync_dir(folder)

    def _sync_if_there(self, path: str) -> None:
        try:
            file = self.disk.open(path, writable=False)
        except FileNotFoundError:
            return  # Retention or the cleaner has taken it out of the log meanwhile.
        try:
            file.sync()
        finally:
            file.close()


class _Waiter:
    """Somebody who waits for everything below `offset`; `is_cut` once a part of that was truncated."""

    __slots__ = ("is_cut", "offset")

    def __init__(self, offset: Offset, *, is_cut: bool) -> None:
        self.offset = offset
        self.is_cut = is_cut


class GroupCommit:
    """Flushes one log: at most one fsync at a time, each for all who wait."""

    __slots__ = ("_disk", "_flushing", "_log", "_waiters")

    def __init__(self, log: "Log", disk: Disk) -> None:
        self._log = log
        self._disk = disk
        self._flushing: asyncio.Future[None] | None = None
        self._waiters: dict[_Waiter, None] = {}

    async def wait_flushed(self, offset: Offset) -> None:
        """Returns once everything below `offset` would survive a power cut.

        Raises StorageError if the disk refuses; the log is offline then, since nobody knows what was written.
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
        """Says that the log now ends here: who waits for more must not take what comes instead for what they wrote."""
        for waiter in self._waiters:
            waiter.is_cut = waiter.is_cut or waiter.offset > end_offset

    async def _flush(self) -> None:
        try:
            job = self._log.begin_flush()
            try:
                await self._disk.in_background(job.run)
            except OSError as error:
                raise self._log.fail(error, "flush") from error
            self._log.end_flush(job)
        finally:
            self._flushing = None
