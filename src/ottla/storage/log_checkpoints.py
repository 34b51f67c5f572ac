"""Writes the checkpoint files of the data dirs: recovery points, log starts, high watermarks and cleaned offsets.

The file format is in `data_dirs/checkpoints.py`. `LogStore` reads the files when it opens.
"""

import errno
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ottla.model.errors import StorageError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.data_dir import DataDir
from ottla.storage.log import Log

_LOGGER: Final = logging.getLogger(__name__)
_PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""Errors that an operator can fix while the broker runs, and during which the data can still be read."""
_CHECKPOINTS: Final[Mapping[str, Callable[[Log], int | None]]] = {
    # Log starts first: a log that was restarted at a higher offset must never look as if it had lost flushed records. A
    # start is written even if it is the first segment's base offset, since the deletion of older segments may not be
    # durable yet.
    names.LOG_STARTS: lambda log: log.start_offset or None,
    names.RECOVERY_POINTS: lambda log: log.recovery_point,
    names.HIGH_WATERMARKS: lambda log: max(log.high_watermark, log.lost_end),
    names.CLEANER_OFFSETS: lambda log: log.cleaned_offset or None,
}


class LogCheckpoints:
    """The checkpoints of all logs of a broker.

    `logs_in` returns the logs of a data dir, `find` that of a partition. `on_failed` is called when a data dir cannot
    be written, unless the cause may be temporary.
    """

    def __init__(
        self,
        dirs: Sequence[DataDir],
        logs_in: Callable[[DataDir], Iterable[Log]],
        find: Callable[[TopicPartition], Log | None],
        on_failed: Callable[[DataDir, OSError], None],
    ) -> None:
        self._dirs = dirs
        self._logs_in = logs_in
        self._find = find
        self._on_failed = on_failed

    def save(self) -> None:
        """Writes all checkpoints of all healthy data dirs. A data dir that fails goes offline."""
        for folder in self._dirs:
            if folder.failure is not None:
                continue
            try:
                self.save_dir(folder)
            except StorageError as error:
                self._on_refused(folder, error)

    def save_bounds(self, folder: DataDir) -> None:
        """Writes the recovery points and log starts of a data dir, and before them high watermarks that decreased."""
        if any(log.persisted_high_watermark > max(log.high_watermark, log.lost_end) for log in self._logs_in(folder)):
            self._save(folder, (names.HIGH_WATERMARKS,))
        self._save(folder, (names.LOG_STARTS, names.RECOVERY_POINTS))

    async def save_in_background(self) -> None:
        """Writes all checkpoints of all healthy data dirs without blocking the event loop. Failures are logged."""
        for folder in self._dirs:
            if folder.failure is not None:
                continue
            try:
                for name in _CHECKPOINTS:
                    await self._save_in_background(folder, name, self._offsets_for(name, folder))
            except StorageError as error:
                self._on_refused(folder, error)

    async def save_high_watermarks_in_background(self) -> None:
        """Writes only the high watermarks, in data dirs where one has changed."""
        name = names.HIGH_WATERMARKS
        for folder in self._dirs:
            offsets = self._offsets_for(name, folder) if folder.failure is None else {}
            if offsets.items() <= folder.checkpointed(name).items():
                continue
            try:
                await self._save_in_background(folder, name, offsets)
            except StorageError as error:
                self._on_refused(folder, error)

    async def _save_in_background(self, folder: DataDir, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        if await folder.write_checkpoint_in_background(name, offsets):
            self._on_written(name, offsets)

    def save_dir(self, folder: DataDir) -> None:
        """Writes all checkpoints of one data dir; blocks. Raises StorageError."""
        self._save(folder, _CHECKPOINTS)

    def _save(self, folder: DataDir, checkpoints: Iterable[str]) -> None:
        for name in checkpoints:
            offsets = self._offsets_for(name, folder)
            folder.write_checkpoint(name, offsets)
            self._on_written(name, offsets)

    def _offsets_for(self, name: str, folder: DataDir) -> dict[TopicPartition, int]:
        offset_of = _CHECKPOINTS[name]
        return {log.partition: offset for log in self._logs_in(folder) if (offset := offset_of(log)) is not None}

    def _on_written(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items() if name in (names.LOG_STARTS, names.HIGH_WATERMARKS) else ():
            log = self._find(partition)
            if log is None:
                continue
            if name == names.LOG_STARTS:
                log.persisted_start = Offset(offset)
            else:
                log.persisted_high_watermark = Offset(offset)

    def _on_refused(self, folder: DataDir, error: StorageError) -> None:
        """Logs a checkpoint that could not be written. The data dir fails, unless the cause may be temporary."""
        _LOGGER.error("%s", error)
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in _PASSING:
            self._on_failed(folder, error.__cause__)
