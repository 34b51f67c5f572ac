"""A copy of a log in another data dir of the broker, which takes the log's place when it has caught up.

The copy is a log of its own in a folder `<topic>-<partition>.<unique>-future`, as Kafka names it. Batches are read from
the log and appended to the copy like those of a leader to a follower, so that all indexes are built as usual. When
nearly everything is copied, the last piece is copied and the folders are swapped without giving the event loop back:
nothing can be appended in between.

    step                                          after a crash, the next start
    1  a mark in the copy's folder, synced        removes the copy; the move begins again
    2  the checkpoints of the copy's data dir     the same
    3  the copy gets the partition's own name     finds two folders; the mark says that the copy is the log, and the
                                                  other one is deleted
    4  the log's old folder is renamed for        uses the copy
       deletion
    5  the mark is removed                        uses the copy

So there is one valid log after each step, and it has all records. A log that is truncated while it is copied, or
compacted, is copied again from its start: the copy could have records that the log no longer has.
"""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.env.ports import Disk
from ottla.model.errors import OttlaError, StorageError
from ottla.model.ids import Offset, TimestampMs
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import write_synced
from ottla.storage.data_dirs.data_dir import DataDir
from ottla.storage.epoch_history import EpochHistory
from ottla.storage.log import Log, LogParts
from ottla.storage.log_config import LogConfig
from ottla.storage.recovery.log_recovery import Opening, open_parts
from ottla.storage.segments.closed_segments import ClosedLog

_LOGGER: Final = logging.getLogger(__name__)
_OFFSET_BYTES: Final = 8
_ASIDE_PIECE_BYTES: Final = 1024 * 1024
LAST_PIECE_BYTES: Final = 256 * 1024
"""How much `take_over` copies at most while the event loop waits."""


class FutureLog:
    """The copy of one log in the data dir `target`."""

    def __init__(self, disk: Disk, log: Log, folder: str, config: LogConfig, target: DataDir) -> None:
        self.log: Final = log
        """The log that is copied."""
        self.folder: Final = folder
        self.target: Final = target
        self._disk = disk
        self._config = config
        self._copy: Log | None = None
        self._truncations = log.truncations
        self._cleaned_offset = log.cleaned_offset
        self._is_begun = False
        self._closed: ClosedLog | None = None

    @property
    def size_bytes(self) -> int:
        """The size of the batches that were copied."""
        return 0 if self._copy is None else self._copy.size_bytes

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind the log."""
        copied = self._copy.end_offset if self._copy is not None and self._is_begun else self.log.start_offset
        return max(0, self.log.end_offset - copied)

    @property
    def is_nearly_complete(self) -> bool:
        """Whether the rest is small enough for `take_over`."""
        if self._copy is None or not self._is_begun or self._is_outdated:
            return False
        left = self.log.read(self._copy.end_offset, LAST_PIECE_BYTES + 1, upper=self.log.end_offset)
        return left is None or left.size <= LAST_PIECE_BYTES

    @property
    def _is_outdated(self) -> bool:
        """Whether the copy may have records that the log no longer has."""
        return (self._truncations, self._cleaned_offset) != (self.log.truncations, self.log.cleaned_offset)

    # Copying

    def create(self, now: TimestampMs) -> None:
        """Creates the folder. Raises StorageError."""
        try:
            self._disk.make_dir(self.folder)
            metadata = f"{self.log.folder}/{names.PARTITION_METADATA}"
            if self._disk.exists(metadata):
                write_synced(self._disk, f"{self.folder}/{names.PARTITION_METADATA}", self._disk.read(metadata))
            parts = open_parts(
                Opening(
                    disk=self._disk,
                    folder=self.folder,
                    config=self._config,
                    start_offset=Offset(0),
                    recovery_point=Offset(0),
                    is_clean=True,
                    now=now,
                )
            )
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot create the future log: {error.strerror}") from error
        # Nothing of a copy is trusted after a crash, so that its bounds need not be durable.
        self._copy = Log(
            self.log.partition,
            self.folder,
            self._disk,
            self._config,
            parts,
            persist_bounds=lambda: None,
            discard=lambda paths, _: self._remove(paths),
        )

    async def copy_some(self, bytes_max: int, now: TimestampMs) -> int:
        """Copies the next batches, about that many bytes; returns how many bytes, 0 if the copy has caught up.

        Raises OttlaError if the log cannot be read, or the copy cannot be written.
        """
        self._begin_again_if_outdated(now)
        copy = self._started(now)
        found = self.log.read(copy.end_offset, bytes_max, upper=self.log.end_offset) if self.lag else None
        if found is None:
            self._follow_gap(copy, now)
            return 0
        try:
            content = await self._disk.in_background(found.file.read_at, found.position, found.size)
        except OSError as error:
            raise StorageError(f"{self.log.folder}: cannot read: {error.strerror}") from error
        if self._is_outdated:
            return 1
        return self._append(copy, content, now)

    async def flush(self) -> None:
        """Makes what was copied durable, so that little is left to do for `take_over`. Raises StorageError."""
        if self._copy is not None:
            await self._copy.wait_flushed(self._copy.end_offset)

    def _begin_again_if_outdated(self, now: TimestampMs) -> None:
        if self._is_outdated and self._copy is not None:
            _LOGGER.info("partition %s: copying the log again: it was truncated or compacted", self.log.partition)
            self._is_begun = False
        self._truncations, self._cleaned_offset = self.log.truncations, self.log.cleaned_offset

    def _started(self, now: TimestampMs) -> Log:
        """The copy; its first offset is that of the log's first batch, which may be below the log start."""
        if self._copy is None:
            raise StorageError(f"{self.folder}: the future log was removed")
        if not self._is_begun:
            log, first = self.log, self.log.start_offset
            found = log.read(first, _OFFSET_BYTES, upper=log.end_offset)
            if found is not None:
                header = found.file.read_at(found.position, _OFFSET_BYTES)
                first = min(first, Offset(int.from_bytes(header, "big", signed=True)))
            self._copy.truncate_fully(first, now=now)
            self._is_begun = True
        return self._copy

    def _append(self, copy: Log, content: bytes, now: TimestampMs) -> int:
        before = copy.size_bytes
        copy.append_as_follower(memoryview(content), now=now)
        return copy.size_bytes - before

    def _follow_gap(self, copy: Log, now: TimestampMs) -> None:
        """The last offsets of a log may have no batch: compaction removed it."""
        if (
            copy.end_offset < self.log.end_offset
            and self.log.read(copy.end_offset, 1, upper=self.log.end_offset) is None
        ):
            copy.roll(now, base_offset=self.log.end_offset)

    # Taking over

    def finish(self, now: TimestampMs) -> None:
        """Copies the rest and closes the copy, durably; blocks. `take_over` must follow at once. Raises OttlaError."""
        copy = self._started(now)
        while found := self.log.read(copy.end_offset, LAST_PIECE_BYTES, upper=self.log.end_offset):
            self._append(copy, found.file.read_at(found.position, found.size), now)
        self._follow_gap(copy, now)
        if self._is_outdated or copy.end_offset != self.log.end_offset:
            raise StorageError(f"{self.folder}: the copy ends at {copy.end_offset}, the log at {self.log.end_offset}")
        # Producers whose records were deleted since, and epochs without records, are not in the batches.
        copy.producers = self.log.producers
        copy.epochs = EpochHistory(self.log.epochs.starts)
        copy.epochs.dirty = True
        closed = copy.as_closed()
        copy.close()
        try:
            self._copy_aside()
            write_synced(self._disk, f"{self.folder}/{names.MOVED}", b"")
            self._disk.sync_dir(self.folder)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot write: {error.strerror}") from error
        self._closed = closed

    def take_over(self, now: TimestampMs) -> LogParts:
        """Gives the copy the partition's own name, and opens it there; the log's old folder is still as it was.

        If this raises, the copy is a future log again, and must be removed: the log itself has not changed. If not even
        that is certain, raises `HalfMovedError`: the partition must not be written to until the next start.
        """
        home = f"{self.target.path}/{self.log.partition}"
        try:
            self._disk.rename(self.folder, home)
        except OSError as error:
            raise StorageError(f"{self.folder}: cannot rename: {error.strerror}") from error
        try:
            self._disk.sync_dir(self.target.path)
            return open_parts(
                Opening(
                    disk=self._disk,
                    folder=home,
                    config=self._config,
                    start_offset=self.log.start_offset,
                    recovery_point=self.log.end_offset,
                    is_clean=True,
                    now=now,
                    closed=self._closed,
                    cleaned_offset=self.log.cleaned_offset,
                )
            )
        except (OSError, OttlaError) as error:
            try:
                self._disk.remove(f"{home}/{names.MOVED}")
                self._disk.sync_dir(home)
                self._disk.rename(home, self.folder)
                self._disk.sync_dir(self.target.path)
            except OSError as second:
                raise HalfMovedError(f"{home}: cannot open the moved log, nor move it back: {second}") from error
            raise StorageError(f"{home}: cannot open the moved log: {error}") from error

    def discard(self) -> None:
        """Removes the copy. Failures are logged; the next start tries again."""
        if self._copy is not None and self._copy.failure is None:
            self._copy.abandon(f"{self.folder}: the future log was removed")
        self._copy = None
        try:
            self._disk.remove_tree(self.folder)
        except OSError as error:
            _LOGGER.error("%s: cannot remove the future log: %s", self.folder, error.strerror)

    def _copy_aside(self) -> None:
        """Bytes that a recovery removed from the log stay with it."""
        for name in self._disk.list_dir(self.log.folder):
            if not name.endswith(names.ASIDE):
                continue
            source = self._disk.open(f"{self.log.folder}/{name}", writable=False)
            target = self._disk.open(f"{self.folder}/{name}", create=True)
            try:
                position = 0
                while piece := source.read_at(position, _ASIDE_PIECE_BYTES):
                    target.write_at(position, [piece])
                    position += len(piece)
                target.sync()
            finally:
                source.close()
                target.close()

    def _remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            if self._disk.exists(path):
                self._disk.remove(path)


class HalfMovedError(StorageError):
    """A moved log has two folders, and it is not certain which of them counts until the next start."""
