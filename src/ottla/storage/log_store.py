"""All logs of one broker, in one or more data dirs: opening, creating, deleting and clean shutdown.

The recurring work (retention, cleaning, flushing by time) is in `housekeeping.py`, the writing of checkpoints in
`log_checkpoints.py`. A partition that cannot be opened goes offline with the reason, and so do the partitions of a data
dir that fails; all others are served.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.env.ports import Clock, Disk, Random
from ottla.model.errors import CorruptError, InvalidTopicNameError, OttlaError, StorageError, UnknownPartitionError
from ottla.model.ids import LeaderEpoch, Offset, TopicPartition
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import replace_file, write_file
from ottla.storage.data_dirs.data_dir import DataDir
from ottla.storage.data_dirs.metadata_seen import MetadataSeen
from ottla.storage.data_dirs.misplaced_folders import NameOf
from ottla.storage.data_dirs.partition_identity import PartitionIdentity, encode_identity
from ottla.storage.data_dirs.trash import Trash
from ottla.storage.future_log import FutureLog, HalfMovedError
from ottla.storage.log import Log, LogParts
from ottla.storage.log_checkpoints import LogCheckpoints
from ottla.storage.log_config import LogConfig
from ottla.storage.recovery.log_recovery import Opening, open_parts
from ottla.storage.segments.closed_segments import ClosedLog, OffsetRange
from ottla.storage.segments.scanner import EPOCH_MAX

_LOGGER: Final = logging.getLogger(__name__)
OPENERS: Final = 4
"""How many partitions are opened at a time: scans run without the GIL, and disks perform better with a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningProgress:
    """Progress of opening the store."""

    partitions_done: int
    partitions_total: int
    bytes_scanned: int


LeaderEpochOf = Callable[[TopicPartition, str | None], LeaderEpoch | None]

NOTHING_LOST: Final = OffsetRange(Offset(0), Offset(0))


class Shortfall(NamedTuple):
    """Offsets that a log had according to the checkpoint files and no longer has: from `start` to `end` (exclusive)."""

    start: Offset
    end: Offset
    is_exact: bool = False
    """Whether the log ended exactly at `end`, because it was closed cleanly; otherwise it may have ended later."""


_OPENED_AT_ONCE: Final = 32
"""The most partitions that one job opens."""

CLOSERS: Final = 16
"""How many logs are closed at the same time."""

_DELETIONS_PER_BREATH: Final = 100
"""The event loop gets a turn after this many deletions."""


class LogStore:
    """The logs of one broker.

    `config_of` returns a partition's config. `node_id` and `cluster_id` are written into new data dirs and must match
    those of existing ones. `on_trouble` is called when a log has a problem; its `health` says which. `name_of` returns
    a topic's name by its id, `metadata_seen` the version of the metadata that the broker acts on, `leader_epoch_of` the
    leader epoch of a partition in that metadata, if its topic has this id.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        random: Random,
        data_dirs: Sequence[str],
        *,
        node_id: int,
        cluster_id: str,
        owner: str,
        config_of: Callable[[TopicPartition], LogConfig],
        on_trouble: Callable[[], None] = lambda: None,
        name_of: NameOf = lambda topic_id: None,
        metadata_seen: Callable[[], MetadataSeen | None] = lambda: None,
        leader_epoch_of: LeaderEpochOf = lambda partition, topic_id: None,
    ) -> None:
        self.dirs = [DataDir(disk, path) for path in data_dirs]
        self.offline: dict[TopicPartition, OttlaError] = {}
        """Partitions that could not be opened, and why."""
        self.shortfalls: dict[TopicPartition, Shortfall] = {}
        """Partitions without a folder, or whose log ended early when it was opened, according to the checkpoint files.
        These may also name partitions that were deleted."""
        self.bare: set[TopicPartition] = set()
        """Partitions whose folder had no segment when it was opened."""
        self.futures: dict[TopicPartition, FutureLog] = {}
        """Copies of logs in other data dirs, which will take the place of the logs."""
        self.interrupted_moves: dict[TopicPartition, DataDir] = {}
        """Partitions whose copy was found and removed when the store was opened, and where it was."""
        self._preferred: dict[TopicPartition, DataDir] = {}
        """Where to create logs that do not exist yet."""
        self.trash = Trash(disk)
        self.checkpoints = LogCheckpoints(self.dirs, self._logs_in, self.find, self._fail_dir)
        self._disk = disk
        self._clock = clock
        self._random = random
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._owner = owner
        self._config_of = config_of
        self._on_trouble = on_trouble
        self._name_of = name_of
        self._metadata_seen = metadata_seen
        self._leader_epoch_of = leader_epoch_of
        self._unseen: set[str] = set()
        """Data dirs in which the newest metadata version could not be recorded."""
        self._logs: dict[TopicPartition, Log] = {}
        self._dir_of: dict[TopicPartition, DataDir] = {}
        self._log_counts: Counter[str] = Counter()
        """Logs by data dir."""
        self._is_open = False
        """Whether every partition was opened, or found to be offline."""

    # Opening and closing

    async def open(self, on_progress: Callable[[OpeningProgress], None] = lambda progress: None) -> None:
        """Locks the data dirs and opens every partition in them, several at a time.

        Raises StorageError only if no data dir can be used, or if one is in use or belongs to another broker.
        """
        openings: list[tuple[DataDir, TopicPartition, Opening]] = []
        scanned = [0]
        for folder in self.dirs:
            try:
                openings += self._open_dir(folder, scanned)
            except (OSError, CorruptError) as error:
                self._fail_dir(folder, error)
            except StorageError:
                self._unlock()
                raise
        if all(folder.failure for folder in self.dirs):
            self._unlock()
            raise StorageError("; ".join(str(folder.failure) for folder in self.dirs))
        openings = self._without_stale_folders(self._without_moved_folders(openings))
        done = 0
        # Many small jobs spend more time on thread switches than on opening; a few large ones are not spread evenly.
        size = max(1, min(_OPENED_AT_ONCE, len(openings) // (4 * OPENERS)))
        waiting = iter([openings[start : start + size] for start in range(0, len(openings), size)])

        async def opener() -> None:
            nonlocal done
            for some in waiting:
                for (folder, partition, opening), opened in zip(
                    some, await self._disk.in_background(_open_all, [each[2] for each in some]), strict=True
                ):
                    self._take(folder, partition, opening, opened)
                    done += 1
                    on_progress(
                        OpeningProgress(partitions_done=done, partitions_total=len(openings), bytes_scanned=scanned[0])
                    )

        await asyncio.gather(*(opener() for _ in range(min(OPENERS, len(openings)))))
        for folder in self.dirs:
            if folder.failure is None:
                folder.note_recovered()
                high_watermarks = folder.read_checkpoint(names.HIGH_WATERMARKS)
                cleaned = folder.read_checkpoint(names.CLEANER_OFFSETS)
                for log in self._logs_in(folder):
                    log.cleaned_offset = min(cleaned.get(log.partition, Offset(0)), log.end_offset)
                    known = high_watermarks.get(log.partition, log.start_offset)
                    log.persisted_high_watermark = known
                    log.advance_high_watermark(min(max(known, log.start_offset), log.end_offset))
                self._find_shortfalls(folder)
        self._is_open = True

    def _find_shortfalls(self, folder: DataDir) -> None:
        """Compares the logs with the checkpoint files of their data dir."""
        flushed = folder.checkpointed(names.RECOVERY_POINTS)
        committed = folder.checkpointed(names.HIGH_WATERMARKS)
        starts = folder.checkpointed(names.LOG_STARTS)
        for partition in {*flushed, *committed}.difference(self.offline):
            log = self._logs.get(partition)
            if log is not None and self._dir_of[partition] is not folder:
                continue
            # A power cut can lose records that were committed but not flushed.
            proven = max(flushed.get(partition, 0), 0 if folder.lost_power else committed.get(partition, 0))
            known = self.shortfalls.get(partition, Shortfall(Offset(0), Offset(0)))
            if log is None and proven >= known.end:
                start = Offset(starts.get(partition, 0))
                self.shortfalls[partition] = Shortfall(start, Offset(proven), folder.is_clean)
            elif log is not None and log.readable_end < proven:
                self.shortfalls[partition] = Shortfall(log.readable_end, Offset(proven))
            elif log is not None and (lost := committed.get(partition, 0) - log.end_offset) > 0:
                _LOGGER.error(
                    "partition %s: the log ends at offset %d, below its high watermark %d: %d committed records"
                    " that were not flushed were lost when the machine went down",
                    partition, log.end_offset, log.end_offset + lost, lost,
                )  # fmt: skip

    @property
    def applied_revision(self) -> int | None:
        """The newest metadata revision of which every partition had its folder here, if known."""
        return max((each.applied_revision for each in self.dirs if each.applied_revision is not None), default=None)

    def note_applied(self, revision: int, *, is_synced: bool = False) -> None:
        """Records in every healthy data dir that all partitions which this revision assigns here have a folder."""
        for folder in self.dirs:
            if folder.failure is None:
                try:
                    folder.note_applied(revision, is_synced=is_synced)
                except OSError as error:
                    _LOGGER.error("%s/%s: cannot write: %s", folder.path, names.APPLIED_REVISION, error.strerror)

    def keep_checkpoints(self, partition: TopicPartition) -> None:
        """Keeps the checkpoints of a partition that has no folder until a folder is created."""
        for folder in self.dirs:
            if folder.remembers(partition):
                folder.put_aside(partition)

    @property
    def has_lost(self) -> bool:
        """Whether a data dir may lack records: it is new, the machine went down, or a log was truncated by a
        recovery."""
        return any(not folder.is_intact for folder in self.dirs if folder.failure is None)

    @property
    def is_intact(self) -> bool:
        """Whether every data dir has everything that was ever written to it; known once it is open."""
        is_well = not self.offline and all(log.health.damage is None for log in self._logs.values())
        return is_well and not self.has_lost and all(folder.failure is None for folder in self.dirs)

    def note_intact(self) -> None:
        """No partition relies on the lost records any more: from now on the data dirs count as complete. Raises
        StorageError."""
        try:
            for folder in self.dirs:
                if folder.failure is None:
                    folder.note_boot()
        except OSError as error:
            raise StorageError(f"{error.filename}: cannot write: {error.strerror}") from error

    def _unlock(self) -> None:
        for folder in self.dirs:
            folder.unlock()

    async def close(self) -> None:
        """Closes every log and writes the clean-shutdown mark of each healthy data dir in which all logs were
        closed.

        If `open` did not complete, nothing is written: a data dir may be in use by another broker, and checkpoints
        would lack the logs that were not opened.
        """
        if self._is_open:
            for folder in self.dirs:
                if folder.failure is None:
                    await self._close_dir(folder)
        self.abandon()

    def abandon(self) -> None:
        """Releases all files and locks, as a crash would: the next start recovers the logs."""
        self._is_open = False
        self.futures.clear()  # The next start finds their folders.
        for log in self._logs.values():
            if log.failure is None:
                log.abandon(f"{log.partition}: the log is closed")
        self._unlock()
        self._logs.clear()
        self._dir_of.clear()
        self._log_counts.clear()

    # Logs

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> Log:
        """The log of a partition. Raises UnknownPartitionError, or the error that keeps the partition offline."""
        log = self._logs.get(partition)
        if log is not None:
            return log
        if partition in self.offline:
            raise self.offline[partition]
        raise UnknownPartitionError(f"{partition} has no log on this broker")

    def find(self, partition: TopicPartition) -> Log | None:
        """The log of a partition, or None."""
        return self._logs.get(partition)

    def create(
        self, partition: TopicPartition, topic_id: str | None = None, *, lost: OffsetRange = NOTHING_LOST
    ) -> Log:
        """Creates an empty log in the data dir with the fewest logs; returns the existing log if there is one.

        `lost` are the offsets of an earlier log that was lost. They are not given out again, and the log counts as
        damaged until its start has passed them.
        """
        if partition in self._logs or partition in self.offline:
            return self.get(partition)
        usable = [folder for folder in self.dirs if folder.failure is None]
        if not usable:
            raise StorageError("no usable data dir: " + "; ".join(str(folder.failure) for folder in self.dirs))
        preferred = self._preferred.pop(partition, None)
        target = min(usable, key=lambda folder: (folder is not preferred, self._log_counts[folder.path]))
        path = f"{target.path}/{partition}"
        for folder in usable:
            folder.take_back(partition)
        if target.remembers(partition):
            # A deleted partition of the same name must not pass its bounds on to the new one.
            self.checkpoints.save_dir(target)
        try:
            self._disk.make_dir(path)
            if topic_id is not None:
                write_file(self._disk, f"{path}/{names.PARTITION_METADATA}", encode_identity(partition, topic_id))
            parts = open_parts(self._opening(partition, path, {}, {partition: lost.end}, is_clean=True))
        except OSError as error:
            raise StorageError(f"{path}: cannot create the partition: {error.strerror}") from error
        self._note_identity(target, partition, topic_id)
        if lost.first == lost.end:
            return self._adopt(target, partition, path, parts)
        what = f"{path}: the log was lost; {lost.unreadable}"
        damage = CorruptError(what)
        log = self._adopt(target, partition, path, replace(parts, start_offset=lost.first, lost=(lost,), damage=damage))
        self.checkpoints.save_bounds(target)  # The next start finds the loss by these checkpoints.
        return log

    def set_topic_id(self, partition: TopicPartition, topic_id: str) -> None:
        """Writes the topic id of a folder whose `partition.metadata` is missing or damaged."""
        path = f"{self.get(partition).folder}/{names.PARTITION_METADATA}"
        try:
            replace_file(self._disk, path, encode_identity(partition, topic_id))
        except OSError as error:
            raise StorageError(f"{path}: cannot write: {error.strerror}") from error
        self._note_identity(self._dir_of[partition], partition, topic_id)

    @staticmethod
    def _note_identity(folder: DataDir, partition: TopicPartition, topic_id: str | None) -> None:
        folder.identities[partition] = PartitionIdentity(
            topic_id=topic_id, topic=partition.topic, index=partition.partition
        )

    def identity(self, partition: TopicPartition) -> PartitionIdentity:
        """The identity of a served partition's folder, as it was when the folder was opened or created."""
        self.get(partition)
        return self._dir_of[partition].identities.get(partition, PartitionIdentity())

    def delete(self, partition: TopicPartition) -> None:
        """Deletes a log: its folder is renamed at once and unlinked after the usual delay."""
        folder = self._doom(partition)
        try:
            self._disk.sync_dir(folder.path)
        except OSError as error:
            raise StorageError(f"{folder.path}: cannot delete {partition}: {error.strerror}") from error

    async def delete_all(self, partitions: Iterable[TopicPartition]) -> None:
        """Deletes many logs, which must exist. Waits for the disk once, without blocking the event loop."""
        folders: dict[str, None] = {}
        for count, partition in enumerate(partitions, 1):
            folders[self._doom(partition).path] = None
            if count % _DELETIONS_PER_BREATH == 0:
                await asyncio.sleep(0)
        for path in folders:
            try:
                await self._disk.in_background(self._disk.sync_dir, path)
            except OSError as error:
                raise StorageError(f"{path}: cannot delete: {error.strerror}") from error

    def set_aside(self, partition: TopicPartition) -> str:
        """Takes a log out of service and renames its folder to a stray name, which is returned.

        Also for a log that could not be opened.
        """
        unique = self._random.randbytes(16).hex()
        if partition not in self.offline:
            log, folder = self.get(partition), self._dir_of[partition]
            target = f"{folder.path}/{names.stray_name(partition, unique)}"
            self._move_away(partition, log, folder, target)
            return target
        folder = next(each for each in self.dirs if each.has_put_aside(partition))
        target = f"{folder.path}/{names.stray_name(partition, unique)}"
        try:
            if self._disk.exists(
                f"{folder.path}/{partition}"
            ):  # Its only folder may have the name of another partition.
                self._disk.rename(f"{folder.path}/{partition}", target)
        except OSError as error:
            raise StorageError(f"{folder.path}/{partition}: cannot set aside: {error.strerror}") from error
        folder.take_back(partition)
        del self.offline[partition]
        return target

    def take_offline(self, partition: TopicPartition, error: OttlaError) -> None:
        """Stops serving a partition whose log cannot be trusted. Its folder and its checkpoints stay as they are."""
        log, folder = self.get(partition), self._dir_of[partition]
        self.cancel_move(partition)
        log.abandon(str(error))
        del self._logs[partition], self._dir_of[partition]
        self._log_counts[folder.path] -= 1
        self._refuse(folder, partition, error)

    def _refuse(self, folder: DataDir, partition: TopicPartition, error: OttlaError) -> None:
        self.offline[partition] = error
        folder.put_aside(partition)
        _LOGGER.error("partition %s is offline: %s", partition, error)

    def is_mendable(self, partition: TopicPartition) -> bool:
        """Whether the data dir that holds a partition, or would hold it, is usable."""
        folder = self._dir_of.get(partition)
        return folder.failure is None if folder is not None else any(each.failure is None for each in self.dirs)

    async def reopen(self, partition: TopicPartition) -> Log:
        """Opens the folder of a failed log again and returns the new log.

        The log ends where it was last flushed, since it is unknown what was written after that. If the folder cannot be
        opened, this raises and nothing has changed.
        """
        old, folder = self._logs[partition], self._dir_of[partition]
        old.segments.release()
        bounds = {partition: old.recovery_point}, {partition: old.start_offset}
        opening = self._opening(partition, old.folder, *bounds, is_clean=False)
        (opened,) = await self._disk.in_background(_open_all, [opening])
        if isinstance(opened, OSError):
            raise StorageError(f"{opened.filename or old.folder}: cannot open: {opened.strerror}") from opened
        if isinstance(opened, OttlaError):
            raise opened
        if opened.damage is not None:
            raise opened.damage
        if self._logs.get(partition) is not old:
            raise UnknownPartitionError(f"{partition} was deleted in the meantime")
        self._log_counts[folder.path] -= 1
        log = self._adopt(folder, partition, old.folder, opened)
        log.truncate_to(old.recovery_point, now=self._clock.now_ms())
        log.advance_high_watermark(min(max(old.high_watermark, log.start_offset), log.end_offset))
        return log

    async def reopen_offline(self, partition: TopicPartition) -> Log | None:
        """Tries again to open a log that is offline, and returns it; None if it is not offline.

        Raises StorageError or CorruptError, and nothing has changed then. A corrupt log stays offline: it must be set
        aside, or repaired while the broker is stopped.
        """
        reason = self.offline.get(partition)
        if reason is None:
            return None
        folder = next((each for each in self.dirs if each.has_put_aside(partition)), None)
        if isinstance(reason, CorruptError) or folder is None or folder.failure is not None:
            raise reason
        path = f"{folder.path}/{partition}"
        bounds = folder.read_checkpoint(names.RECOVERY_POINTS), folder.read_checkpoint(names.LOG_STARTS)
        opening = replace(self._opening(partition, path, *bounds, is_clean=False), on_loss=folder.note_loss)
        (opened,) = await self._disk.in_background(_open_all, [opening])
        if isinstance(opened, OSError):
            raise StorageError(f"{opened.filename or path}: cannot open: {opened.strerror}") from opened
        if isinstance(opened, OttlaError):
            raise opened
        if self.offline.get(partition) is not reason:
            raise UnknownPartitionError(f"{partition} was deleted in the meantime")
        log = self._adopt(folder, partition, path, opened)
        known = folder.read_checkpoint(names.HIGH_WATERMARKS).get(partition, log.start_offset)
        log.advance_high_watermark(min(max(known, log.start_offset), log.end_offset))
        del self.offline[partition]
        folder.take_back(partition)
        return log

    def _doom(self, partition: TopicPartition) -> DataDir:
        log, folder = self.get(partition), self._dir_of[partition]
        target = f"{folder.path}/{names.doomed_name(partition, self._random.randbytes(16).hex())}"
        self._move_away(partition, log, folder, target)
        _LOGGER.info("partition %s: deleted, offsets %d to %d", partition, log.start_offset, log.end_offset)
        self.trash.discard([target], self._clock.now_ms() + log.config.file_delete_delay_ms)
        return folder

    def _move_away(self, partition: TopicPartition, log: Log, folder: DataDir, target: str) -> None:
        self.cancel_move(partition)
        log.remove()
        try:
            self._disk.rename(log.folder, target)
        except OSError as error:
            raise StorageError(f"{log.folder}: cannot rename: {error.strerror}") from error
        del self._logs[partition], self._dir_of[partition]
        self.shortfalls.pop(partition, None)
        self.bare.discard(partition)
        folder.identities.pop(partition, None)
        self._log_counts[folder.path] -= 1

    # Moving a log to another data dir

    def prefer(self, partition: TopicPartition, folder: DataDir) -> None:
        """Creates the log of a partition that has none in this data dir, if it is created before the next start."""
        self._preferred[partition] = folder

    def begin_move(self, partition: TopicPartition, target: DataDir) -> FutureLog:
        """Creates the copy of a log in another data dir. Raises InvalidTopicNameError, or StorageError."""
        log = self.get(partition)
        name = names.future_name(partition, self._random.randbytes(16).hex())
        if name is None:
            raise InvalidTopicNameError(f"{partition}: the name is too long for a future log")
        if target.failure is not None:
            raise target.failure
        if log.lost or log.health.trouble is not None:
            raise StorageError(f"{log.folder}: a damaged log is not moved")
        future = FutureLog(self._disk, log, f"{target.path}/{name}", self._config_of(partition), target)
        future.create(self._clock.now_ms())
        self.futures[partition] = future
        return future

    def cancel_move(self, partition: TopicPartition) -> None:
        """Removes the copy of a log, if there is one."""
        future = self.futures.pop(partition, None)
        if future is not None:
            future.log.is_moving = False
            future.discard()

    def complete_move(self, partition: TopicPartition) -> None:
        """Copies what is left, and lets the copy take the place of the log; blocks.

        Raises OttlaError: then the log is as before and the copy is gone, or the partition is offline.
        """
        future = self.futures[partition]
        log, source = self.get(partition), self._dir_of[partition]
        now = self._clock.now_ms()
        try:
            future.finish(now)
            self._dir_of[partition] = future.target
            self.checkpoints.save_dir(future.target)
            parts = future.take_over(now)
        except HalfMovedError as error:
            self._dir_of[partition] = source
            del self.futures[partition]
            self.take_offline(partition, error)
            raise
        except (OttlaError, OSError) as error:
            self._dir_of[partition] = source
            self.cancel_move(partition)
            if isinstance(error, OSError):
                raise StorageError(f"{future.folder}: cannot complete the move: {error.strerror}") from error
            raise
        del self.futures[partition]
        log.is_moving = False
        old, target = log.folder, future.target
        home = f"{target.path}/{partition}"
        self._note_identity(target, partition, source.identities.pop(partition).topic_id)
        self._log_counts[source.path] -= 1
        self._log_counts[target.path] += 1
        log.move_to(home, parts, persist_bounds=lambda: self.checkpoints.save_bounds(target))
        self._finish_move(partition, old, source, home, log.config.file_delete_delay_ms)
        _LOGGER.info("partition %s: moved from %s to %s", partition, source.path, target.path)

    def _finish_move(self, partition: TopicPartition, old: str, source: DataDir, home: str, delay_ms: int) -> None:
        """Renames the old folder for deletion. If that fails, the next start does it: the mark stays until then."""
        doomed = f"{source.path}/{names.doomed_name(partition, self._random.randbytes(16).hex())}"
        try:
            self._disk.rename(old, doomed)
            self._disk.sync_dir(source.path)
            self._disk.remove(f"{home}/{names.MOVED}")
        except OSError as error:
            _LOGGER.error(
                "%s: cannot remove the old folder of the moved log, the next start removes it: %s", old, error.strerror
            )
            return
        self.trash.discard([doomed], self._clock.now_ms() + delay_ms)

    def _forget_futures(self, folder: DataDir) -> None:
        """Copies that were not complete are removed; the broker begins these moves again."""
        for path, partition in folder.future_folders().items():
            _LOGGER.info("%s: removed the incomplete copy; the move to this data dir starts again", path)
            self._disk.remove_tree(path)
            self.interrupted_moves[partition] = folder

    def _without_moved_folders(
        self, openings: list[tuple[DataDir, TopicPartition, Opening]]
    ) -> list[tuple[DataDir, TopicPartition, Opening]]:
        """Completes moves that were interrupted after the copy had become the log: removes the old folders."""
        moved = {
            partition: folder
            for folder, partition, opening in openings
            if self._disk.exists(f"{opening.folder}/{names.MOVED}")
        }
        kept = []
        for folder, partition, opening in openings:
            if moved.get(partition, folder) is folder:
                kept.append((folder, partition, opening))
                continue
            doomed = f"{folder.path}/{names.doomed_name(partition, self._random.randbytes(16).hex())}"
            _LOGGER.info("%s: removed, the log was moved to %s", opening.folder, moved[partition].path)
            self._disk.rename(opening.folder, doomed)
            self._disk.sync_dir(folder.path)
            self._disk.remove_tree(doomed)
        if all(each.failure is None for each in self.dirs):
            # A data dir that is missing now may still have the old folder when it returns.
            for partition, folder in moved.items():
                self._disk.remove(f"{folder.path}/{partition}/{names.MOVED}")
        return kept

    # Data dirs and metadata

    def dir_of(self, partition: TopicPartition) -> DataDir:
        """The data dir of a served partition."""
        self.get(partition)
        return self._dir_of[partition]

    def seen_of(self, partition: TopicPartition) -> MetadataSeen | None:
        """The metadata version that the data dir of a partition was last used with."""
        self.get(partition)
        return self._dir_of[partition].seen

    def has_other_history(self, history: str) -> bool:
        """Whether a data dir was last used with metadata of another history."""
        return any(each.seen is not None and each.seen.history != history for each in self.dirs)

    async def save_metadata_seen(self) -> None:
        """Records the version of the current metadata in all healthy data dirs. A failure is logged once: it only makes
        an older metadata store harder to recognise."""
        seen = self._metadata_seen()
        for folder in self.dirs:
            if seen is None or folder.failure is not None:
                continue
            try:
                await self._disk.in_background(folder.write_seen, seen)
                self._unseen.discard(folder.path)
            except StorageError as error:
                if folder.path not in self._unseen:
                    self._unseen.add(folder.path)
                    _LOGGER.warning("%s", error)

    def discard(self, paths: Sequence[str], delay_ms: int) -> None:
        """Takes files that are no longer part of a log; they are unlinked after the delay."""
        self.trash.discard(paths, self._clock.now_ms() + delay_ms)

    # Internals

    def _open_dir(self, folder: DataDir, scanned: list[int]) -> list[tuple[DataDir, TopicPartition, Opening]]:
        folder.open(owner=self._owner, node_id=self._node_id, cluster_id=self._cluster_id, random=self._random)
        for path in folder.doomed_folders():
            _LOGGER.info("%s: removed, the partition was deleted", path)
            self._disk.remove_tree(path)
        self._forget_futures(folder)
        refused = folder.place_folders(self._name_of, self._random)
        recovery_points = folder.read_checkpoint(names.RECOVERY_POINTS)
        starts = folder.read_checkpoint(names.LOG_STARTS)
        for partition, why in refused.items():
            self._refuse(folder, partition, CorruptError(f"{folder.path}: {why}"))
        cleaned = folder.read_checkpoint(names.CLEANER_OFFSETS)
        are_starts_known = folder.is_ours and folder.has_checkpoint(names.LOG_STARTS)
        are_starts_sealed = folder.is_sealed(names.LOG_STARTS)
        closed: Mapping[TopicPartition, ClosedLog] = folder.read_closed()

        def count(scanned_bytes: int) -> None:
            scanned[0] += scanned_bytes

        return [
            (
                folder,
                partition,
                replace(
                    self._opening(partition, path, recovery_points, starts, is_clean=folder.is_clean),
                    on_bytes=count,
                    on_loss=folder.note_loss,
                    keeps_writes=folder.keeps_writes,
                    # A start of 0 is not written. Without a seal the file may be older than the log; both files are
                    # written together.
                    is_start_known=are_starts_known and (are_starts_sealed or partition in recovery_points),
                    is_start_lost=folder.is_ours and not are_starts_known,
                    cleaned_offset=cleaned.get(partition, Offset(0)),
                    epoch_max=EPOCH_MAX if folder.seen is None else folder.seen.newest_epoch(is_clean=folder.is_clean),
                    leader_epoch=self._leader_epoch_of(partition, folder.identities[partition].topic_id),
                    closed=closed.get(partition),
                ),
            )
            for partition, path in folder.partitions().items()
            if partition not in refused
        ]

    def _without_stale_folders(
        self, openings: list[tuple[DataDir, TopicPartition, Opening]]
    ) -> list[tuple[DataDir, TopicPartition, Opening]]:
        """Leaves out the folders of partitions that another data dir has too, and sets them aside.

        A data dir that was missing for a while still has its old folders. In the meantime its partitions were copied
        into another data dir, which has applied newer metadata.
        """
        chosen: dict[TopicPartition, DataDir] = {}
        for folder, partition, _ in openings:
            chosen[partition] = max(chosen.get(partition, folder), folder, key=lambda each: each.applied_revision or 0)
        for folder, partition, opening in openings:
            if chosen[partition] is folder:
                continue
            kept = f"{folder.path}/{names.stray_name(partition, self._random.randbytes(16).hex())}"
            try:
                self._disk.rename(opening.folder, kept)
            except OSError as error:
                _LOGGER.error("%s: cannot rename: %s", opening.folder, error.strerror)
            _LOGGER.error(
                "partition %s has a newer folder in %s; the folder in %s is not used and was renamed to %s",
                partition, chosen[partition].path, folder.path, kept,
            )  # fmt: skip
        return [each for each in openings if chosen[each[1]] is each[0]]

    def _opening(
        self,
        partition: TopicPartition,
        path: str,
        recovery_points: dict[TopicPartition, Offset],
        starts: dict[TopicPartition, Offset],
        *,
        is_clean: bool,
    ) -> Opening:
        return Opening(
            disk=self._disk,
            folder=path,
            config=self._config_of(partition),
            start_offset=starts.get(partition, Offset(0)),
            recovery_point=recovery_points.get(partition, Offset(0)),
            is_clean=is_clean,
            now=self._clock.now_ms(),
        )

    def _take(
        self, folder: DataDir, partition: TopicPartition, opening: Opening, opened: LogParts | OttlaError | OSError
    ) -> None:
        """Adds a log that was opened; a partition that could not be opened goes offline with the reason."""
        if isinstance(opened, LogParts):
            self._adopt(folder, partition, opening.folder, opened)
            if not opened.has_segments:
                self.bare.add(partition)
            return
        if isinstance(opened, OSError):
            opened = StorageError(f"{opened.filename or opening.folder}: cannot open: {opened.strerror}")
        self._refuse(folder, partition, opened)

    def _adopt(self, folder: DataDir, partition: TopicPartition, path: str, parts: LogParts) -> Log:
        log = Log(
            partition,
            path,
            self._disk,
            self._config_of(partition),
            parts,
            persist_bounds=lambda: self.checkpoints.save_bounds(folder),
            discard=self.discard,
            on_trouble=self._on_trouble,
        )
        self._logs[partition] = log
        self._dir_of[partition] = folder
        self._log_counts[folder.path] += 1
        return log

    def _logs_in(self, folder: DataDir) -> Iterator[Log]:
        return (log for partition, log in self._logs.items() if self._dir_of[partition] is folder)

    def _fail_dir(self, folder: DataDir, error: OSError | CorruptError) -> None:
        what = f"{error.filename or folder.path}: {error.strerror}" if isinstance(error, OSError) else str(error)
        folder.failure = StorageError(f"{what}; the partitions in {folder.path} are offline")
        _LOGGER.error("%s", folder.failure)
        for log in self._logs_in(folder):
            log.abandon(str(folder.failure))

    async def _close_dir(self, folder: DataDir) -> None:
        """Closes the dir's logs, several at a time: many concurrent syncs take little longer than one."""
        all_closed = True
        waiting = iter(list(self._logs_in(folder)))

        async def closer() -> None:
            nonlocal all_closed
            for log in waiting:
                all_closed = all_closed and log.failure is None
                try:
                    await self._disk.in_background(log.close)
                except OttlaError as error:
                    all_closed = False
                    _LOGGER.error("partition %s was not closed cleanly: %s", log.partition, error)

        await asyncio.gather(*(closer() for _ in range(CLOSERS)))
        try:
            await self._disk.in_background(self.checkpoints.save_dir, folder)
            if (seen := self._metadata_seen()) is not None:
                await self._disk.in_background(folder.write_seen, seen)
            if all_closed and not self.offline:
                closed = {log.partition: log.as_closed() for log in self._logs_in(folder)}
                await self._disk.in_background(folder.mark_clean, closed)
        except (OttlaError, OSError) as error:
            _LOGGER.error("%s was not closed cleanly: %s", folder.path, error)


def _open_all(openings: Sequence[Opening]) -> list[LogParts | OttlaError | OSError]:
    """Opens several partitions; the result for each is its parts or the error."""
    opened: list[LogParts | OttlaError | OSError] = []
    for opening in openings:
        try:
            opened.append(open_parts(opening))
        except (OttlaError, OSError) as error:
            opened.append(error)
    return opened
