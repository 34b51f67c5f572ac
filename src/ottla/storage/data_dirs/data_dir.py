"""One data dir: its lock, its identity, its checkpoints and its clean-shutdown mark. The logs belong to `LogStore`."""

import logging
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ottla.env.ports import Disk, Lock, Random
from ottla.model.base64_ids import id_text, new_id
from ottla.model.errors import CorruptError, StorageError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import (
    TEMPORARY,
    encode_offsets,
    read_properties,
    read_sealed_offsets,
    replace_file,
    write_file,
    write_properties,
    write_synced,
)
from ottla.storage.data_dirs.metadata_seen import MetadataSeen, encode_seen, read_seen
from ottla.storage.data_dirs.misplaced_folders import NameOf, place
from ottla.storage.data_dirs.partition_identity import PartitionIdentity, read_identity
from ottla.storage.segments.closed_segments import ClosedLog, read_closed, write_closed

_LOGGER: Final = logging.getLogger(__name__)
_META_VERSION: Final = "1"
_WHAT_TO_DO: Final = {
    "node.id": "this data dir belongs to another broker: start it with its own --data folder, or its own --node-id",
    "cluster.id": "this data dir belongs to another cluster: start the broker with the metadata store of that cluster,"
    " or with another --data folder",
}
_DIRECTORY_ID: Final = "directory.id"
_NO_BOOT: Final = "none"
"""Precedes the boot id, or replaces it, in a data dir that may lack records."""
_CLEAN_MARK: Final = b'{"version":0,"brokerEpoch":-1}'
"""Kafka's format. Kafka itself writes its broker epoch, which is never -1."""


class DataDir:
    """A folder of partition folders. `failure` is set when its disk fails; the other data dirs are still used."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.failure: StorageError | None = None
        self.is_clean = False
        """Whether the last broker that used it shut down cleanly."""
        self.is_intact = False
        """Whether it has everything that was written to it: not if it is new, the machine went down, or a log was
        truncated."""
        self.is_new = False
        """Whether it had no identity yet: it was never used, or replaces one that was."""
        self.lost_power = False
        """Whether the machine may have gone down since the last use, so that unflushed records may be missing."""
        self.applied_revision: int | None = None
        """The newest metadata revision of which every partition had its folder, if the data dir knows one."""
        self.starts: int | None = None
        """How often the broker had started when it last used the data dir, if known."""
        self.keeps_writes = False
        """Whether no completed write is missing, synced or not: the machine has not gone down since the last use, or
        that use ended with a clean shutdown."""
        self._is_recovered = False
        self.is_ours = False
        """Whether Ottla, not Kafka, used it last, so that the checkpoints are Ottla's."""
        self.properties: dict[str, str] = {}
        self.seen: MetadataSeen | None = None
        """The newest metadata that the data dir was last used with; known once it is open."""
        self.identities: dict[TopicPartition, PartitionIdentity] = {}
        """The identity of each partition's folder when it was opened."""
        self._disk = disk
        self._lock: Lock | None = None
        self._writes: Counter[str] = Counter()
        """How often each checkpoint file was written: a slow writer must not replace what a later one wrote."""
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        self._sealed: set[str] = set()
        """The checkpoint files whose seal is right."""
        self._aside: set[TopicPartition] = set()
        self._written_seen: MetadataSeen | None = None

    def open(self, *, owner: str, node_id: int, cluster_id: str, random: Random) -> None:
        """Locks the folder, checks that it belongs to this broker, and removes the clean-shutdown mark.

        `owner` is the name that another broker gets if it finds the folder locked.
        """
        self._disk.make_dirs(self.path)
        taken = self._disk.try_lock(self._file(names.LOCK), owner)
        if isinstance(taken, str):
            raise StorageError(
                f"{self.path} is in use by {taken or 'another process'}; stop it, or choose another --data folder"
            )
        self._lock = taken
        self.is_new = not self._disk.exists(self._file(names.META_PROPERTIES))
        self._check_identity(node_id, cluster_id, random)
        if self.is_new and not self._disk.exists(self._file(names.LOG_STARTS)):
            # From now on a log that is not in the file begins at offset 0, also if the broker is killed before it
            # writes the checkpoints.
            replace_file(self._disk, self._file(names.LOG_STARTS), self._encode(names.LOG_STARTS, {}))
        self.applied_revision = read_applied_revision(self._disk, self.path)
        self.starts = _read_number(self._disk, self._file(names.STARTS))
        self.seen = self._written_seen = read_seen(self._disk, self._file(names.METADATA_SEEN))
        for name in self._disk.list_dir(self.path):
            if name.endswith(TEMPORARY):
                self._disk.remove(self._file(name))
        mark = self._file(names.CLEAN_SHUTDOWN)
        self.is_clean = self._disk.exists(mark)
        used_in, is_whole = self._last_boot()
        is_same_boot = used_in is not None and used_in == self._disk.boot_id
        self.is_ours = self._disk.exists(self._file(names.BOOT_ID)) and (
            not self.is_clean or self._disk.read(mark) == _CLEAN_MARK
        )
        self.keeps_writes = self.is_clean or is_same_boot
        if is_whole and (is_same_boot or self.is_clean):
            # Last used since the machine booted, so that the page cache has what the disk lacks; or shut down cleanly.
            self.note_boot()
        self.lost_power = not self.is_intact and not self.is_new
        if self.is_clean:
            self._disk.remove(mark)
            self._disk.sync_dir(self.path)

    def _last_boot(self) -> tuple[str | None, bool]:
        """The boot id of the last use, if known, and whether nothing was missing then."""
        path = self._file(names.BOOT_ID)
        text = self._disk.read(path).decode("utf-8", "replace") if self._disk.exists(path) else ""
        if text == _NO_BOOT or text.startswith(f"{_NO_BOOT} "):
            return text.removeprefix(_NO_BOOT).strip() or None, False
        return text or None, True

    def note_boot(self) -> None:
        """From now on, until the machine goes down, the data dir counts as complete: no partition relies on what it
        lost."""
        # If a power cut loses this file, the data dir counts as incomplete, which is right.
        self._write_boot(self._disk.boot_id)
        self.is_intact = True

    def note_loss(self) -> None:
        """Records may be missing, now and in later starts, until `note_boot`. Thread-safe."""
        # Until every log has been recovered from a power cut, the next start must know about it.
        self._write_boot(self._lossy_boot() if self.keeps_writes or self._is_recovered else _NO_BOOT)
        self.is_intact = False

    def note_applied(self, revision: int, *, is_synced: bool = False) -> None:
        """Records that all partitions which this metadata revision assigns here have had a folder.

        Usually not synced: after a power cut, folders that were not synced may be missing too. Raises OSError.
        """
        # Always the same size, so that it can be written on a full disk.
        write = write_synced if is_synced else write_file
        write(self._disk, self._file(names.APPLIED_REVISION), f"{revision:020d}\n".encode())
        self.applied_revision = revision

    def note_start(self, count: int) -> None:
        """Records how often the broker has started, durably; blocks. Raises OSError."""
        replace_file(self._disk, self._file(names.STARTS), f"{count}\n".encode())
        self.starts = count

    def note_recovered(self) -> None:
        """Every log has been opened: from now on, until the machine goes down, completed writes are kept."""
        self._is_recovered = True
        if not self.is_intact:
            self._write_boot(self._lossy_boot())

    def _lossy_boot(self) -> str:
        return f"{_NO_BOOT} {self._disk.boot_id}"

    def _write_boot(self, boot_id: str) -> None:
        file = self._disk.open(self._file(names.BOOT_ID), create=True)
        try:
            file.truncate(0)
            file.write_at(0, [boot_id.encode()])
        finally:
            file.close()

    def partitions(self) -> dict[TopicPartition, str]:
        """The partition folders in the data dir."""
        found: dict[TopicPartition, str] = {}
        for name in self._disk.list_dir(self.path):
            partition = names.partition_of(name)
            if partition is None or partition.topic == names.KAFKA_METADATA_TOPIC:
                continue
            if self._disk.is_dir(self._file(name)):
                found[partition] = self._file(name)
        return found

    def place_folders(self, name_of: NameOf, random: Random) -> dict[TopicPartition, str]:
        """Restores the names of folders that were swapped, and reads the identity of each folder.

        Returns the partitions whose folder cannot be trusted, with the reason.
        """
        found: dict[str, tuple[TopicPartition | None, PartitionIdentity]] = {
            path.rpartition("/")[2]: (partition, read_identity(self._disk, path))
            for partition, path in self.partitions().items()
        }
        for name in self._disk.list_dir(self.path):
            if names.is_moving(name):
                found[name] = (None, read_identity(self._disk, self._file(name)))
        placement = place(found, name_of)
        on_the_way: list[tuple[str, TopicPartition]] = []
        for name, home in placement.moves.items():
            _LOGGER.error("folder %s belongs to %s according to partition.metadata: renamed to %s", name, home, home)
            target = name
            if not names.is_moving(name):
                target = names.moving_name(home, random.randbytes(16).hex())
                self._disk.rename(self._file(name), self._file(target))
            on_the_way.append((target, home))
        for name, home in on_the_way:
            self._disk.rename(self._file(name), self._file(str(home)))
        if on_the_way:
            self._disk.sync_dir(self.path)
        self.identities = {
            partition: identity
            for name, (at, identity) in found.items()
            # Only folders on their way belong to none.
            if (partition := placement.moves.get(name, at)) is not None
        }
        return placement.refused

    def doomed_folders(self) -> list[str]:
        """Folders of deleted partitions that were not yet unlinked."""
        return [self._file(name) for name in self._disk.list_dir(self.path) if names.is_doomed(name)]

    def future_folders(self) -> dict[str, TopicPartition]:
        """Folders with copies of logs of other data dirs, by path."""
        found = {self._file(name): names.future_of(name) for name in self._disk.list_dir(self.path)}
        return {path: partition for path, partition in found.items() if partition is not None}

    def read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """The offsets in a checkpoint file. If it is damaged, or missing after a clean shutdown, the shutdown counts as
        unclean."""
        if self.is_clean and self.is_ours and not self._disk.exists(self._file(name)):
            _LOGGER.warning("%s is missing; checking every partition of this data dir", self._file(name))
            self.is_clean = False
        try:
            offsets = self._read_sealed(name)
        except CorruptError as error:
            _LOGGER.warning("%s; ignoring the file and checking every partition of this data dir", error)
            self.is_clean = False
            return {}
        self._checkpointed[name] = dict(offsets)
        return offsets

    def _read_sealed(self, name: str) -> dict[TopicPartition, Offset]:
        path, ours = self._file(name), self.properties.get(_DIRECTORY_ID, "")
        offsets, directory_id = read_sealed_offsets(self._disk, path)
        if directory_id is not None and directory_id != ours:
            raise CorruptError(f"{path}: the file was written for data dir {directory_id}, not for {ours}")
        if directory_id is not None:
            self._sealed.add(name)
        elif name == names.LOG_STARTS and names.RECOVERY_POINTS in self._sealed and self._disk.exists(path):
            # Both files are written together, by Kafka too. A log start deletes records, so it needs the checksum.
            raise CorruptError(f"{path}: the checksum is missing")
        return offsets

    def is_sealed(self, name: str) -> bool:
        """Whether a checkpoint file that was read has the right checksum; a file that Kafka wrote has none."""
        return name in self._sealed

    def has_checkpoint(self, name: str) -> bool:
        """Whether a checkpoint file exists and could be read."""
        return name in self._checkpointed and self._disk.exists(self._file(name))

    def read_closed(self) -> dict[TopicPartition, ClosedLog]:
        """The logs as Ottla closed them; empty if the shutdown was not clean or not Ottla's, or if the file is
        damaged."""
        if not (self.is_clean and self.is_ours):
            return {}
        try:
            return read_closed(self._disk, self._file(names.CLOSED_SEGMENTS), self._origin)
        except CorruptError as error:
            _LOGGER.warning("%s; ignoring the file and comparing segments with each other", error)
            return {}

    @property
    def _origin(self) -> str:
        """Differs from that of every other data dir, and from that of this one after another start."""
        return f"{self.properties.get(_DIRECTORY_ID, '')} {self.starts}"

    def put_aside(self, partition: TopicPartition) -> None:
        """A partition could not be opened: its checkpoints are kept, in case it is repaired."""
        self._aside.add(partition)

    def has_put_aside(self, partition: TopicPartition) -> bool:
        """Whether this data dir has a partition that could not be opened."""
        return partition in self._aside

    def take_back(self, partition: TopicPartition) -> None:
        """A partition that could not be opened is gone, and so are its checkpoints."""
        self._aside.discard(partition)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint file, durably; blocks."""
        content = self._content(name, offsets)
        self._writes[name] += 1
        try:
            replace_file(self._disk, self._file(name), self._encode(name, content))
        except OSError as error:
            raise StorageError(f"{self._file(name)}: cannot write: {error.strerror}") from error
        self._checkpointed[name] = content

    async def write_checkpoint_in_background(self, name: str, offsets: Mapping[TopicPartition, int]) -> bool:
        """Replaces a checkpoint file without blocking the event loop; False if a newer one was written in the
        meantime."""
        content = self._content(name, offsets)
        self._writes[name] += 1
        write = self._writes[name]
        temporary = f"{self._file(name)}.{write}{TEMPORARY}"
        try:
            await self._disk.in_background(write_synced, self._disk, temporary, self._encode(name, content))
            if self._writes[name] != write:
                self._disk.remove(temporary)
                return False
            self._disk.rename(temporary, self._file(name))
            self._checkpointed[name] = content
            await self._disk.in_background(self._disk.sync_dir, self.path)
        except OSError as error:
            raise StorageError(f"{self._file(name)}: cannot write: {error.strerror}") from error
        return True

    def _content(self, name: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        known = self._checkpointed.get(name, {})
        return {**{partition: known[partition] for partition in self._aside if partition in known}, **offsets}

    def _encode(self, name: str, offsets: Mapping[TopicPartition, int]) -> bytes:
        return encode_offsets(offsets, name=name, directory_id=self.properties.get(_DIRECTORY_ID, ""))

    def checkpointed(self, name: str) -> Mapping[TopicPartition, int]:
        """The offsets of a checkpoint file, as last read or written."""
        return self._checkpointed.get(name, {})

    def remembers(self, partition: TopicPartition) -> bool:
        """Whether a checkpoint file has the partition, which may be a deleted one of the same name."""
        return any(partition in checkpointed for checkpointed in self._checkpointed.values())

    def write_seen(self, seen: MetadataSeen) -> None:
        """Records the version of the metadata that the broker acts on, durably; blocks. It never decreases in one
        history."""
        path, before = self._file(names.METADATA_SEEN), self._written_seen
        if before is not None and before.history == seen.history and before.revision >= seen.revision:
            return
        self._writes[names.METADATA_SEEN] += 1
        temporary = f"{path}.{self._writes[names.METADATA_SEEN]}{TEMPORARY}"
        try:
            write_synced(self._disk, temporary, encode_seen(seen))
            self._disk.rename(temporary, path)
            self._disk.sync_dir(self.path)
        except OSError as error:
            with suppress(OSError):
                self._disk.remove(temporary)
            raise StorageError(f"{path}: cannot write: {error.strerror}") from error
        self._written_seen = seen

    def mark_clean(self, closed: Mapping[TopicPartition, ClosedLog] | None = None) -> None:
        """Everything is flushed and closed: the next start need not scan.

        A data dir that lacked records before still does.
        """
        boot_id = self._disk.boot_id if self.is_intact else self._lossy_boot()
        write_closed(self._disk, self._file(names.CLOSED_SEGMENTS), self._origin, closed or {})
        write_synced(self._disk, self._file(names.BOOT_ID), boot_id.encode())
        replace_file(self._disk, self._file(names.CLEAN_SHUTDOWN), _CLEAN_MARK)

    def unlock(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_identity(self, node_id: int, cluster_id: str, random: Random) -> None:
        path = self._file(names.META_PROPERTIES)
        if not self._disk.exists(path):
            self.properties = {
                "version": _META_VERSION,
                "node.id": str(node_id),
                "cluster.id": cluster_id,
                _DIRECTORY_ID: id_text(new_id(random.randbytes)),
            }
            write_properties(self._disk, path, self.properties)
            return
        self.properties = read_properties(self._disk, path)
        for key, ours in (("node.id", str(node_id)), ("cluster.id", cluster_id)):
            theirs = self.properties.get(key, self.properties.get("broker.id") if key == "node.id" else None)
            if theirs is None:
                raise CorruptError(f"{path}: {key} is missing")
            if theirs != ours:
                raise StorageError(f"{path}: {key} is {theirs}, not {ours}; {_WHAT_TO_DO[key]}")

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"


def read_applied_revision(disk: Disk, data_dir: str) -> int | None:
    """The newest metadata revision of which every partition had its folder in a data dir, if known."""
    return _read_number(disk, f"{data_dir}/{names.APPLIED_REVISION}")


def _read_number(disk: Disk, path: str) -> int | None:
    text = disk.read(path).decode("ascii", "replace").strip() if disk.exists(path) else ""
    return int(text) if text.isascii() and text.isdigit() else None
