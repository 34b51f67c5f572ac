"""Reads from a broker's data dirs what a recovery of lost metadata needs: the partitions, and where each log ends.

Nothing is changed, and no log is opened. After a clean shutdown the checkpoints have all of it; otherwise the end of
each log is read, up to the first incomplete batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from ottla.env.ports import Disk
from ottla.metadata.records import ClaimsRecord, FolderClaim
from ottla.model.base64_ids import parse_id
from ottla.model.errors import CorruptError
from ottla.model.ids import QUEUE_PRODUCER_BIT, Offset, TopicPartition
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import read_epochs, read_offsets, read_properties
from ottla.storage.data_dirs.data_dir import DataDir, read_applied_revision
from ottla.storage.data_dirs.metadata_seen import MetadataSeen, read_seen
from ottla.storage.data_dirs.partition_identity import read_identity
from ottla.storage.producers.producer_files import snapshot_offsets
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.segments.scanner import DamagedSegmentError, scan_file

_NO_EPOCH: Final = -1


def cluster_id_of(disk: Disk, data_dirs: Sequence[str]) -> str | None:
    """The cluster that the data dirs belong to; None if they are new."""
    for path in data_dirs:
        file = f"{path}/{names.META_PROPERTIES}"
        if disk.exists(file):
            return read_properties(disk, file).get("cluster.id")
    return None


def seen_by(disk: Disk, data_dirs: Sequence[str]) -> list[MetadataSeen]:
    """The newest metadata that was applied to each data dir, if it is known."""
    found: list[MetadataSeen] = []
    for path in data_dirs:
        seen = read_seen(disk, f"{path}/{names.METADATA_SEEN}")
        if seen is not None:
            # Topics created in the last second before a kill are in the other file only.
            applied = read_applied_revision(disk, path) or 0
            found.append(replace(seen, revision=max(seen.revision, applied)))
    return found


def read_claims(disk: Disk, data_dirs: Sequence[str]) -> ClaimsRecord:
    """All partition folders of a broker. Blocks."""
    claims: list[FolderClaim] = []
    all_seen = seen_by(disk, data_dirs)
    next_producer_id = max((seen.next_producer_id for seen in all_seen), default=0)
    leader_epoch = max((seen.leader_epoch for seen in all_seen), default=_NO_EPOCH)
    for path in data_dirs:
        if not disk.exists(path):
            continue
        ends = _clean_ends(disk, path)
        for partition, folder in DataDir(disk, path).partitions().items():
            claims.append(read_claim(disk, partition, folder, ends))
            next_producer_id = max(next_producer_id, _highest_producer_id(disk, folder) + 1)
    return ClaimsRecord(folders=tuple(claims), next_producer_id=next_producer_id, leader_epoch=leader_epoch)


def read_claim(
    disk: Disk, partition: TopicPartition, folder: str, clean_ends: Mapping[TopicPartition, Offset]
) -> FolderClaim:
    """One folder. Its partition metadata counts for more than its name: folders may have been renamed."""
    identity = read_identity(disk, folder)
    epochs = _epochs(disk, folder)
    if epochs is not None and partition in clean_ends:
        end_offset, batch_epoch = clean_ends[partition], _NO_EPOCH
    else:
        end_offset, batch_epoch = _last_batch(disk, folder)
    starts = epochs or {}
    return FolderClaim(
        topic=identity.topic or partition.topic,
        partition=partition.partition if identity.index is None else identity.index,
        topic_id=parse_id(identity.topic_id or ""),
        last_epoch=max([batch_epoch, *(epoch for epoch, start in starts.items() if start <= end_offset)]),
        end_offset=end_offset,
        known_epoch=max([batch_epoch, *starts]),
    )


def _clean_ends(disk: Disk, data_dir: str) -> dict[TopicPartition, Offset]:
    """Where each log ended at a clean shutdown; empty after an unclean one."""
    if not disk.exists(f"{data_dir}/{names.CLEAN_SHUTDOWN}"):
        return {}
    try:
        return read_offsets(disk, f"{data_dir}/{names.RECOVERY_POINTS}")
    except CorruptError:
        return {}


def _epochs(disk: Disk, folder: str) -> dict[int, Offset] | None:
    """The history of leader epochs with their first offsets; None if it is missing or cannot be read."""
    path = f"{folder}/{names.EPOCHS}"
    if not disk.exists(path):
        return None
    try:
        return {int(epoch): start for epoch, start in read_epochs(disk, path).items()}
    except CorruptError:
        return None


def _last_batch(disk: Disk, folder: str) -> tuple[Offset, int]:
    """Where the log ends, and the epoch of its last complete batch; -1 if it has none. Epochs never decrease."""
    bases = {
        base: name
        for name in disk.list_dir(folder)
        if name.endswith(names.LOG) and (base := names.base_offset_of(name)) is not None
    }
    end_offset = max(bases, default=Offset(0))
    for base in sorted(bases, reverse=True):
        epoch = _NO_EPOCH
        segment = disk.open(f"{folder}/{bases[base]}", writable=False)
        try:
            for piece in scan_file(segment, 0, segment.size()):
                for batch in piece.batches:
                    epoch = max(epoch, batch.leader_epoch)
                    end_offset = max(end_offset, batch.next_offset)
        except DamagedSegmentError:
            pass  # The log ends there, unless later batches were flushed; its recovery will tell.
        finally:
            segment.close()
        if epoch != _NO_EPOCH:
            return end_offset, epoch
    return end_offset, _NO_EPOCH


def _highest_producer_id(disk: Disk, folder: str) -> int:
    """The highest producer id of the newest snapshot that can be read; -1 if there is none.

    The ids of queues are allocated like others; the bit that marks them is not part of the number.
    """
    for offset in reversed(snapshot_offsets(disk, folder)):
        path = names.segment_path(folder, offset, names.SNAPSHOT)
        try:
            entries = decode_snapshot(path, disk.read(path))
            return max((entry.producer_id & ~QUEUE_PRODUCER_BIT for entry in entries), default=-1)
        except CorruptError:
            continue
    return -1
