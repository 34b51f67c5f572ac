"""All logs of one broker, over one or more data dirs: opening, creating, deleting, checkpoints, and clean shutdown.

The recurring work (retention, cleaning, flushing by time, checkpoints) is in `housekeeping.py`. A partition that cannot
be opened, or a data dir that fails, is put aside with its reason; the rest goes on.
"""

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.env.ports import Clock, Disk, Random
from ottla.model.errors import CorruptError, OttlaError, StorageError, UnknownPartitionError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage import names
from ottla.storage.checkpoints import replace_file, write_file
from ottla.storage.closed_segments import ClosedLog
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log, LogParts
from ottla.storage.metadata_seen import MetadataSeen
from ottla.storage.misplaced_folders import NameOf
from ottla.storage.partition_identity import PartitionIdentity, encode_identity
from ottla.storage.recovery import Opening, open_parts
from ottla.storage.trash import Trash

_LOGGER: Final = logging.getLogger(__name__)
_PASSING: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
"""What an operator can mend under a running broker, and what leaves the data readable meanwhile."""
_CHECKPOINTS: Final[Mapping[str, Callable[[Log], int | None]]] = {
    # The starts first: a log that begins anew far ahead must never look as if it had lost what was flushed. Even where
    # a start is the first segment's base: that the older ones are gone may not be durable yet.
    names.LOG_STARTS: lambda log: log.start_offset or None,
    names.RECOVERY_POINTS: lambda log: log.recovery_point,
    names.HIGH_WATERMARKS: lambda log: max(log.high_watermark, log.lost_end),
    names.CLEANER_OFFSETS: lambda log: log.cleaned_offset or None,
}
OPENERS: Final = 4
"""How many partitions are opened at a time: scans run outside the interpreter lock, and disks like a queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningProgress:
    """How far the opening of a store has come."""

    partitions_done: int
    partitions_total: int
    bytes_scanned: int


FIRST_OFFSET: Final = Offset(0)


class Shortfall(NamedTuple):
    """Offsets that a partition's log had by the checkpoint files, and has not any more: from `start` up to `end`."""

    start: Offset
    end: Offset
    is_exact: bool = False
    """Whether the log ended at `end`, since it was closed cleanly; else it may have ended later."""


_OPENED_AT_ONCE: Final = 32
"""How many one job opens, where there are many."""

CLOSERS: Final = 16
"""How many logs are closed at the same time."""

_DELETIONS_PER_BREATH: Final = 100
"""After so many the event loop may do something else."""


class LogStore:
    """The logs of one broker.

    `config_of` gives a partition's settings; `node_id` and `cluster_id` are written into new data dirs and must match
    those of existing ones. `on_trouble` hears when something is wrong with a log; its `health` says what. `name_of`
    tells a topic's name by its id, `metadata_seen` how new the metadata is that the broker acts on.
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
    ) -> None:
        self.dirs = [DataDir(disk, path) for path in data_dirs]
        self.offline: dict[TopicPartition, OttlaError] = {}
        """Partitions that could not be opened, and why."""
        self.shortfalls: dict[TopicPartition, Shortfall] = {}
        """Partitions that have no folder, or whose log ended early when it was opened; by the checkpoint files, which
        may also speak of partitions that were deleted."""
        self.bare: set[TopicPartition] = set()
        """Partitions whose folder had no segment when it was opened."""
        self.trash = Trash(disk)
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
        self._unseen: set[str] = set()
        """Data dirs that do not know of the newest metadata, since they could not be written."""
        self._logs: dict[TopicPartition, Log] = {}
        self._dir_of: dict[TopicPartition, DataDir] = {}
        self._log_counts: Counter[str] = Counter()
        """Logs by data dir."""

    # Life

    async def open(self, on_progress: Callable[[OpeningProgress], None] = lambda progress: None) -> None:
        """Locks the data dirs and opens every partition in them, several at a time.

        Raises StorageError only if no data dir can be used, or one is in use or belongs to another broker.
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
        openings = self._without_stale_folders(openings)
        done = 0
        # Many small jobs spend more time on changing threads than on opening; few large ones do not share well.
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

    def _find_shortfalls(self, folder: DataDir) -> None:
        """Holds the logs against what the checkpoint files of their data dir say."""
        flushed = folder.checkpointed(names.RECOVERY_POINTS)
        committed = folder.checkpointed(names.HIGH_WATERMARKS)
        starts = folder.checkpointed(names.LOG_STARTS)
        for partition in {*flushed, *committed}.difference(self.offline):
            log = self._logs.get(partition)
            if log is not None and self._dir_of[partition] is not folder:
                continue
            # A power cut may take what was committed and not flushed.
            proven = max(flushed.get(partition, 0), 0 if folder.lost_power else committed.get(partition, 0))
            known = self.shortfalls.get(partition, Shortfall(Offset(0), Offset(0)))
            if log is None and proven >= known.end:
                start = Offset(starts.get(partition, 0))
                self.shortfalls[partition] = Shortfall(start, Offset(proven), folder.is_clean)
            elif log is not None and log.readable_end < proven:
                self.shortfalls[partition] = Shortfall(log.readable_end, Offset(proven))
            elif log is not None and (lost := committed.get(partition, 0) - log.end_offset) > 0:
                _LOGGER.error(
                    "partition %s: the log ends at offset %d, below its high watermark %d: %d committed records that"
                    " had not been flushed were lost when the machine went down",
                    partition, log.end_offset, log.end_offset + lost, lost,
                )  # fmt: skip

    @property
    def applied_revision(self) -> int | None:
        """The newest revision of the metadata whose partitions all have had their folder here, if it is known."""
        return max((each.applied_revision for each in self.dirs if each.applied_revision is not None), default=None)

    def note_applied(self, revision: int) -> None:
        """Notes in every healthy data dir that all partitions which this revision assigns here have a folder."""
        for folder in self.dirs:
            if folder.failure is None:
                try:
                    folder.note_applied(revision)
                except OSError as error:
                    _LOGGER.error("%s/%s: cannot write: %s", folder.path, names.APPLIED_REVISION, error.strerror)

    def keep_checkpoints(self, partition: TopicPartition) -> None:
        """Keeps what the checkpoint files say of a partition that has no folder, until one is made."""
        for folder in self.dirs:
            if folder.remembers(partition):
                folder.put_aside(partition)

    @property
    def has_lost(self) -> bool:
        """Whether a data dir may lack what was written into it: it is new, the machine went down, or a log was cut."""
        return any(not folder.is_intact for folder in self.dirs if folder.failure is None)

    @property
    def is_intact(self) -> bool:
        """Whether every data dir has all that was ever written into it; known once it is open."""
        is_well = not self.offline and all(log.health.damage is None for log in self._logs.values())
        return is_well and not self.has_lost and all(folder.failure is None for folder in self.dirs)

    def note_intact(self) -> None:
        """What was lost is no longer counted on: from now on it has everything. Raises StorageError."""
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
        """Closes every log and marks each healthy data dir clean; a log that fails to close costs its dir the mark."""
        for folder in self.dirs:
            if folder.failure is None:
                await self._close_dir(folder)
            folder.unlock()
        self._logs.clear()
        self._dir_of.clear()
        self._log_counts.clear()

    # Logs

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self._logs.values()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> Log:
        """The log of a partition; raises UnknownPartitionError, or what keeps it offline."""
        log = self._logs.get(partition)
        if log is not None:
            return log
        if partition in self.offline:
            raise self.offline[partition]
        raise UnknownPartitionError(f"{partition} is not on this broker")

    def find(self, partition: TopicPartition) -> Log | None:
        """A partition's log, if it is here."""
        return self._logs.get(partition)

    def create(
        self, partition: TopicPartition, topic_id: str | None = None, *, start_offset: Offset = FIRST_OFFSET
    ) -> Log:
        """Makes an empty log in the data dir that has the fewest; a log that is there already is answered as it is."""
        if partition in self._logs or partition in self.offline:
            return self.get(partition)
        usable = [folder for folder in self.dirs if folder.failure is None]
        if not usable:
            raise StorageError("no data dir is usable; " + "; ".join(str(folder.failure) for folder in self.dirs))
        target = min(usable, key=lambda folder: self._log_counts[folder.path])
        path = f"{target.path}/{partition}"
        for folder in usable:
            folder.take_back(partition)
        if target.remembers(partition):
            self._save(
                target, _CHECKPOINTS
            )  # A deleted partition of this name must not lend its bounds to the new one.
        try:
            self._disk.make_dir(path)
            if topic_id is not None:
                write_file(self._disk, f"{path}/{names.PARTITION_METADATA}", encode_identity(partition, topic_id))
            parts = open_parts(self._opening(partition, path, {}, {partition: start_offset}, is_clean=True))
        except OSError as error:
            raise StorageError(f"{path}: cannot create the partition: {error.strerror}") from error
        self._note_identity(target, partition, topic_id)
        return self._adopt(target, partition, path, parts)

    def set_topic_id(self, partition: TopicPartition, topic_id: str) -> None:
        """Gives a folder the topic id that it lacks: the file is missing or damaged."""
        path = f"{self.get(partition).folder}/{names.PARTITION_METADATA}"
        try:
            replace_file(self._disk, path, encode_identity(partition, topic_id))
        except OSError as error:
            raise StorageError(f"{path}: cannot be written: {error.strerror}") from error
        self._note_identity(self._dir_of[partition], partition, topic_id)

    @staticmethod
    def _note_identity(folder: DataDir, partition: TopicPartition, topic_id: str | None) -> None:
        folder.identities[partition] = PartitionIdentity(
            topic_id=topic_id, topic=partition.topic, index=partition.partition
        )

    def identity(self, partition: TopicPartition) -> PartitionIdentity:
        """What the folder of a partition that is served said of itself when it was opened or made."""
        self.get(partition)
        return self._dir_of[partition].identities.get(partition, PartitionIdentity())

    def delete(self, partition: TopicPartition) -> None:
        """Takes a partition's log away; its folder is renamed at once and unlinked after the usual delay."""
        folder = self._doom(partition)
        try:
            self._disk.sync_dir(folder.path)
        except OSError as error:
            raise StorageError(f"{folder.path}: cannot delete {partition}: {error.strerror}") from error

    async def delete_all(self, partitions: Iterable[TopicPartition]) -> None:
        """The same for many at once, which must be here; the disk is waited for once, and not on the event loop."""
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
        """Takes a partition's log out of service and keeps its folder under another name, which is answered.

        Also one that could not be opened.
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
            if self._disk.exists(f"{folder.path}/{partition}"):  # Its only folder may have another partition's name.
                self._disk.rename(f"{folder.path}/{partition}", target)
        except OSError as error:
            raise StorageError(f"{folder.path}/{partition}: cannot set aside: {error.strerror}") from error
        folder.take_back(partition)
        del self.offline[partition]
        return target

    def take_offline(self, partition: TopicPartition, error: OttlaError) -> None:
        """Stops serving a partition whose log is not to be trusted; its folder and its checkpoints stay as they are."""
        log, folder = self.get(partition), self._dir_of[partition]
        log.abandon(str(error))
        del self._logs[partition], self._dir_of[partition]
        self._log_counts[folder.path] -= 1
        self._refuse(folder, partition, error)

    def _refuse(self, folder: DataDir, partition: TopicPartition, error: OttlaError) -> None:
        self.offline[partition] = error
        folder.put_aside(partition)
        _LOGGER.error("%s is offline: %s", partition, error)

    def is_mendable(self, partition: TopicPartition) -> bool:
        """Whether the data dir in which a partition is, or would be made, can be used."""
        folder = self._dir_of.get(partition)
        return folder.failure is None if folder is not None else any(each.failure is None for each in self.dirs)

    async def reopen(self, partition: TopicPartition) -> Log:
        """Reads the folder of a log that failed anew, and answers the log that it makes.

        It ends where the old one was last flushed: what was written since, nobody knows. Raises if the folder cannot be
        read, and then everything is as before.
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
            raise UnknownPartitionError(f"{partition} was taken away meanwhile")
        self._log_counts[folder.path] -= 1
        log = self._adopt(folder, partition, old.folder, opened)
        log.truncate_to(old.recovery_point, now=self._clock.now_ms())
        log.advance_high_watermark(min(max(old.high_watermark, log.start_offset), log.end_offset))
        return log

    async def reopen_offline(self, partition: TopicPartition) -> Log | None:
        """Tries again to open a log that could not be opened, and answers it; None if it is not offline.

        Raises StorageError or CorruptError, and then everything is as before. A corrupt log stays offline: it must be
        set aside, or repaired while the broker is stopped.
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
            raise UnknownPartitionError(f"{partition} was taken away meanwhile")
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
        _LOGGER.info("%s: deleted with offsets %d to %d", partition, log.start_offset, log.end_offset)
        self.trash.discard([target], self._clock.now_ms() + log.config.file_delete_delay_ms)
        return folder

    def _move_away(self, partition: TopicPartition, log: Log, folder: DataDir, target: str) -> None:
        log.abandon(f"{partition} was taken away")
        try:
            self._disk.rename(log.folder, target)
        except OSError as error:
            raise StorageError(f"{log.folder}: cannot rename: {error.strerror}") from error
        del self._logs[partition], self._dir_of[partition]
        self.shortfalls.pop(partition, None)
        self.bare.discard(partition)
        self._log_counts[folder.path] -= 1

    # Checkpoints

    def save_bounds(self, folder: DataDir) -> None:
        """Writes the recovery points and log starts of a data dir, and before them high watermarks that went back."""
        if any(log.persisted_high_watermark > max(log.high_watermark, log.lost_end) for log in self._logs_in(folder)):
            self._save(folder, (names.HIGH_WATERMARKS,))
        self._save(folder, (names.LOG_STARTS, names.RECOVERY_POINTS))

    def dir_of(self, partition: TopicPartition) -> DataDir:
        """The data dir of a partition that is served."""
        self.get(partition)
        return self._dir_of[partition]

    def seen_of(self, partition: TopicPartition) -> MetadataSeen | None:
        """The metadata that was acted on when the data dir of a partition was last used."""
        self.get(partition)
        return self._dir_of[partition].seen

    def has_other_history(self, history: str) -> bool:
        """Whether a data dir was last used with metadata of another history than this."""
        return any(each.seen is not None and each.seen.history != history for each in self.dirs)

    async def save_metadata_seen(self) -> None:
        """Remembers in all healthy data dirs how new the metadata is that is acted on. A failure is reported once: it
        only makes an older store harder to recognise."""
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

    async def save_checkpoints_in_background(self) -> None:
        """Writes all checkpoints of all healthy data dirs without holding the event loop; a failure is reported."""
        for folder in self.dirs:
            if folder.failure is not None:
                continue
            try:
                for name in _CHECKPOINTS:
                    await self._save_in_background(folder, name, self._offsets_for(name, folder))
            except StorageError as error:
                self._on_refused(folder, error)

    async def save_high_watermarks_in_background(self) -> None:
        """The same for high watermarks alone, in data dirs where one has changed."""
        name = names.HIGH_WATERMARKS
        for folder in self.dirs:
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

    def discard(self, paths: Sequence[str], delay_ms: int) -> None:
        """Takes files that are no longer part of a log, to be unlinked after a delay."""
        self.trash.discard(paths, self._clock.now_ms() + delay_ms)

    def save_checkpoints(self) -> None:
        """Writes all checkpoints of all healthy data dirs; one that fails is put aside."""
        for folder in self.dirs:
            if folder.failure is not None:
                continue
            try:
                self._save(folder, _CHECKPOINTS)
            except StorageError as error:
                self._on_refused(folder, error)

    # Inside

    def _open_dir(self, folder: DataDir, scanned: list[int]) -> list[tuple[DataDir, TopicPartition, Opening]]:
        folder.open(owner=self._owner, node_id=self._node_id, cluster_id=self._cluster_id, random=self._random)
        for path in folder.doomed_folders():
            _LOGGER.info("%s: removed, with a partition that was deleted", path)
            self._disk.remove_tree(path)
        refused = folder.place_folders(self._name_of, self._random)
        recovery_points = folder.read_checkpoint(names.RECOVERY_POINTS)
        starts = folder.read_checkpoint(names.LOG_STARTS)
        for partition, why in refused.items():
            self._refuse(folder, partition, CorruptError(f"{folder.path}: {why}"))
        cleaned = folder.read_checkpoint(names.CLEANER_OFFSETS)
        are_starts_known = folder.is_ours and folder.has_checkpoint(names.LOG_STARTS)
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
                    # Both files are written together, and a start of 0 is not written.
                    is_start_known=are_starts_known and partition in recovery_points,
                    cleaned_offset=cleaned.get(partition, Offset(0)),
                    closed=closed.get(partition),
                ),
            )
            for partition, path in folder.partitions().items()
            if partition not in refused
        ]

    def _without_stale_folders(
        self, openings: list[tuple[DataDir, TopicPartition, Opening]]
    ) -> list[tuple[DataDir, TopicPartition, Opening]]:
        """Leaves out folders of partitions that another data dir has too, and sets them aside.

        A data dir that was away for a while comes back with what it had; meanwhile its partitions were copied again
        into another one, which has applied newer metadata.
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
                "partition %s has a newer folder in %s; the one in %s is not used, and kept as %s",
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
        """Adopts what was opened; what could not be is put aside with the reason."""
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
            persist_bounds=lambda: self.save_bounds(folder),
            discard=self.discard,
            on_trouble=self._on_trouble,
        )
        self._logs[partition] = log
        self._dir_of[partition] = folder
        self._log_counts[folder.path] += 1
        return log

    def _logs_in(self, folder: DataDir) -> Iterator[Log]:
        return (log for partition, log in self._logs.items() if self._dir_of[partition] is folder)

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
            log = self._logs.get(partition)
            if log is None:
                continue
            if name == names.LOG_STARTS:
                log.persisted_start = Offset(offset)
            else:
                log.persisted_high_watermark = Offset(offset)

    def _on_refused(self, folder: DataDir, error: StorageError) -> None:
        """Reports a checkpoint that could not be written; unless the cause may pass, the data dir is put aside."""
        _LOGGER.error("%s", error)
        if isinstance(error.__cause__, OSError) and error.__cause__.errno not in _PASSING:
            self._fail_dir(folder, error.__cause__)

    def _fail_dir(self, folder: DataDir, error: OSError | CorruptError) -> None:
        what = f"{error.filename or folder.path}: {error.strerror}" if isinstance(error, OSError) else str(error)
        folder.failure = StorageError(f"{what}; the partitions in {folder.path} are offline")
        _LOGGER.error("%s", folder.failure)
        for log in self._logs_in(folder):
            log.abandon(str(folder.failure))

    async def _close_dir(self, folder: DataDir) -> None:
        """Closes the dir's logs, several at a time: the disk takes many syncs at once for little more than one."""
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
                    _LOGGER.error("%s was not closed cleanly: %s", log.partition, error)

        await asyncio.gather(*(closer() for _ in range(CLOSERS)))
        try:
            await self._disk.in_background(self._save, folder, _CHECKPOINTS)
            if (seen := self._metadata_seen()) is not None:
                await self._disk.in_background(folder.write_seen, seen)
            if all_closed and not self.offline:
                closed = {log.partition: log.as_closed() for log in self._logs_in(folder)}
                await self._disk.in_background(folder.mark_clean, closed)
        except (OttlaError, OSError) as error:
            _LOGGER.error("%s was not closed cleanly: %s", folder.path, error)


def _open_all(openings: Sequence[Opening]) -> list[LogParts | OttlaError | OSError]:
    """Opens several partitions; each yields its parts or the reason why not."""
    opened: list[LogParts | OttlaError | OSError] = []
    for opening in openings:
        try:
            opened.append(open_parts(opening))
        except (OttlaError, OSError) as error:
            opened.append(error)
    return opened
