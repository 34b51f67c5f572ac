"""Producer state on disk: writing snapshots, and loading the newest usable one with the batches behind it."""

import logging
from collections.abc import Sequence
from typing import Final

from ottla.env.ports import Disk
from ottla.model.errors import CorruptError
from ottla.model.ids import NO_PRODUCER_ID, Offset
from ottla.records.batch import Batch, crc32c
from ottla.records.control import read_marker
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import write_file
from ottla.storage.producers.producer_snapshot import EndedSegment, encode_snapshot, read_snapshot
from ottla.storage.producers.producer_state import Appends, CompletedTransaction, ProducerStates
from ottla.storage.segments.scanner import DamagedSegmentError
from ottla.storage.segments.segment import Segment

_LOGGER: Final = logging.getLogger(__name__)


def write_snapshot(
    disk: Disk, folder: str, offset: Offset, producers: ProducerStates, ended: EndedSegment | None = None
) -> str:
    """Writes the state as of `offset`, where the segment `ended` ends, and returns the path; durable only once the file
    is synced."""
    path = names.segment_path(folder, offset, names.SNAPSHOT)
    write_file(disk, path, encode_snapshot(producers, ended))
    return path


def aborted_count(disk: Disk, folder: str, segment: Segment, end: Offset) -> int | None:
    """How many transactions were aborted in a segment, according to the snapshot at its end; None if it does not say.

    A snapshot that Kafka wrote has no such number. It says that there are none if no producer has ended a transaction.
    """
    path = names.segment_path(folder, end, names.SNAPSHOT)
    try:
        entries, ended = read_snapshot(path, disk.read(path)) if disk.exists(path) else (None, None)
    except CorruptError:
        return None
    if entries is None or (ended is not None and ended.partition_crc != partition_crc(folder)):
        return None
    # Compaction may have replaced the segment since.
    if ended is not None and (ended.base_offset, ended.size_bytes) == (segment.base_offset, segment.opened_bytes):
        return ended.aborted_count if ended.aborted_count >= 0 else None
    is_plain = all(each.coordinator_epoch < 0 and each.transaction_start is None for each in entries)
    return 0 if is_plain else None


def partition_crc(folder: str) -> int:
    """The CRC-32C of the name of the partition that a folder belongs to."""
    name = folder.rpartition("/")[2]
    return crc32c(str(names.future_of(name) or name).encode())


def snapshot_offsets(disk: Disk, folder: str) -> list[Offset]:
    """The offsets of all snapshots in a partition's folder, in order."""
    found = (names.base_offset_of(name) for name in disk.list_dir(folder) if name.endswith(names.SNAPSHOT))
    return [offset for offset in found if offset is not None]


def remove_snapshots_after(disk: Disk, folder: str, offset: Offset) -> None:
    """Removes snapshots of truncated offsets, durably: one that came back would be trusted."""
    stale = [found for found in snapshot_offsets(disk, folder) if found > offset]
    for found in stale:
        disk.remove(names.segment_path(folder, found, names.SNAPSHOT))
    if stale:
        disk.sync_dir(folder)


def load_producers(disk: Disk, folder: str, segments: Sequence[Segment], end: Offset) -> ProducerStates:
    """The state as of `end`, which must be the end of a batch, from the newest usable snapshot and the batches behind
    it.

    Damaged batches are left out.
    """
    producers, reached = _newest_snapshot(disk, folder, segments[0].base_offset, end)
    for at, segment in enumerate(segments):
        below = segments[at + 1].base_offset if at + 1 < len(segments) else end
        if below <= reached or segment.base_offset >= end:
            continue
        try:
            place = segment.locate(reached)
        except DamagedSegmentError:
            position = 0
        else:
            if place is None:
                continue
            position = place.position
        for piece in segment.batches(position, segment.size_bytes, is_lenient=True):
            for batch in piece.batches:
                if reached <= batch.base_offset < end:
                    replay(producers, batch)
    return producers


def replay(producers: ProducerStates, batch: Batch) -> CompletedTransaction | None:
    """Applies a batch that is already in the log; returns the transaction that it completed."""
    if batch.producer_id == NO_PRODUCER_ID:
        return None
    pending = Appends()
    if batch.is_control:
        marker = read_marker(batch)
        if marker is None:
            return None
        kind, coordinator_epoch = marker
        producers.prepare_marker(batch, kind, coordinator_epoch, pending, batch.base_offset, check=False)
    else:
        producers.prepare(batch, pending, batch.base_offset, check=False)
    producers.apply(pending)
    return pending.completed[0] if pending.completed else None


def _newest_snapshot(disk: Disk, folder: str, start: Offset, end: Offset) -> tuple[ProducerStates, Offset]:
    for offset in reversed(snapshot_offsets(disk, folder)):
        if not start <= offset <= end:
            continue
        path = names.segment_path(folder, offset, names.SNAPSHOT)
        try:
            entries, ended = read_snapshot(path, disk.read(path))
            if ended is not None and ended.partition_crc != partition_crc(folder):
                raise CorruptError(f"{path}: the producer snapshot is of another partition")
            return ProducerStates(entries), offset
        except CorruptError as error:
            _LOGGER.warning("%s; removed the snapshot, rebuilding producer state from an older one", error)
            disk.remove(path)
    return ProducerStates(), start
