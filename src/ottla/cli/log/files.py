"""Decodes the files of a log: segments, indexes, snapshots and checkpoints of Ottla or Kafka. Only reads.

The results are findings, dictionaries with a `kind`. Damage is a finding with its position; reading continues after it
if the length of the batch can be trusted. `command.py` prints the findings.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final

from ottla.env.ports import Disk, File
from ottla.model.errors import CorruptError, OttlaError
from ottla.records.batch import Batch
from ottla.records.control import read_marker
from ottla.records.decode import decode_records
from ottla.records.layout import HEADER_BYTES, LENGTH_AT, LENGTH_PREFIX_BYTES, MAGIC_AT, Codec
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import read_epochs, read_offsets, read_properties
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.segments.scanner import DamagedSegmentError, scan_file
from ottla.storage.segments.transaction_index import TransactionIndex

Finding = dict[str, Any]

_OFFSET_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_LENGTH: Final = Struct(">i")
_ZEROS_BYTES: Final = 1024 * 1024
"""How much is looked at at once for zeros."""


def read_path(disk: Disk, path: str, *, records: bool) -> Iterator[Finding]:
    """The findings in a file, a partition folder, or a data dir with all its partitions; each names its file."""
    if not disk.exists(path):
        raise CorruptError(f"{path}: no such file or folder")
    if not disk.is_dir(path):
        yield from _read_file(disk, path, records=records)
        return
    listed = disk.list_dir(path)
    known = [name for name in listed if _belongs_to_a_log(name)]
    folders = [name for name in listed if names.partition_of(name) is not None and disk.is_dir(f"{path}/{name}")]
    if not known and not folders:
        raise CorruptError(f"{path}: not a partition folder or a data dir: it has no log files")
    for name in known:
        # A running broker may delete a file in between.
        if disk.exists(f"{path}/{name}"):
            yield from _read_file(disk, f"{path}/{name}", records=records)
    for name in folders:
        yield from read_path(disk, f"{path}/{name}", records=records)


def _read_file(disk: Disk, path: str, *, records: bool) -> Iterator[Finding]:
    name = path.rpartition("/")[2]
    reader = _reader_of(name)
    if reader is None:
        raise CorruptError(f"{path}: not a log file; the name must end in .log, .index, .timeindex or the like")
    if disk.size(path) == 0:
        # A new segment, or a checkpoint that was never written.
        yield {"file": path, "kind": "empty"}
        return
    found = _read_segment(disk, path, records=records) if reader is _read_segment else reader(disk, path)
    try:
        for finding in found:
            yield {"file": path, **finding}
    except (OttlaError, OSError) as error:
        yield {"file": path, "kind": "damage", "problem": str(error)}


# Segments


def _read_segment(disk: Disk, path: str, *, records: bool = False) -> Iterator[Finding]:
    file = disk.open(path, writable=False)
    try:
        size = file.size()
        position: int | None = 0
        while position is not None and position < size:
            start = position
            position = size
            try:
                for piece in scan_file(file, start, size):
                    for batch in piece.batches:
                        yield _batch(batch, piece.position + batch.position)
                        if records:
                            yield from _records(batch)
            except DamagedSegmentError as error:
                if _is_unwritten(file, error.position, size):
                    yield {"kind": "unwritten", "position": error.position, "size_bytes": size - error.position}
                    return
                position = _next_batch(file, error.position, size)
                yield {
                    "kind": "damage",
                    "position": error.position,
                    "problem": str(error).partition(": ")[2],
                    "continues_at": position,
                }
    finally:
        file.close()


def _is_unwritten(file: File, position: int, size: int) -> bool:
    """Whether a file has nothing but zeros from here on, as segments have that Kafka preallocates."""
    return all(
        not any(file.read_at(start, min(_ZEROS_BYTES, size - start))) for start in range(position, size, _ZEROS_BYTES)
    )


def _next_batch(file: File, position: int, size: int) -> int | None:
    """Where reading continues after a damaged batch: its end, if its length leads to another batch."""
    header = file.read_at(position, HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    end = position + LENGTH_PREFIX_BYTES + int(_LENGTH.unpack_from(header, LENGTH_AT)[0])
    if not position + HEADER_BYTES <= end < size:
        return None
    following = file.read_at(end, HEADER_BYTES)
    return end if len(following) > MAGIC_AT and following[MAGIC_AT] == header[MAGIC_AT] else None


def _batch(batch: Batch, position: int) -> Finding:
    found: Finding = {
        "kind": "batch",
        "position": position,
        "size_bytes": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "leader_epoch": batch.leader_epoch,
        "codec": Codec(batch.codec).name.lower() if batch.codec in list(Codec) else f"unknown ({batch.codec})",
        "timestamp_type": "append_time" if batch.timestamp_type else "create_time",
        "base_timestamp": batch.base_timestamp,
        "max_timestamp": batch.max_timestamp,
        "crc": batch.crc,
    }
    if batch.has_producer_id:
        found |= {
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "last_sequence": batch.last_sequence,
            "transactional": batch.is_transactional,
        }
    if batch.has_delete_horizon:
        found["delete_horizon"] = batch.delete_horizon
    if batch.is_control:
        marker = read_marker(batch)
        found["marker"] = None if marker is None else marker[0].name.lower()
        found["coordinator_epoch"] = None if marker is None else marker[1]
    return found


def _records(batch: Batch) -> Iterator[Finding]:
    if batch.is_control:
        return
    try:
        decoded = decode_records(batch)
    except OttlaError as error:
        yield {"kind": "damage", "problem": str(error)}
        return
    for record in decoded:
        yield {"kind": "record", **record._asdict()}


# Indexes


def _read_offset_index(disk: Disk, path: str) -> Iterator[Finding]:
    base = names.base_offset_of(path.rpartition("/")[2]) or 0
    before = 0
    for slot, (relative, position) in enumerate(_OFFSET_ENTRY.iter_unpack(_entries(disk, path, _OFFSET_ENTRY.size))):
        if relative == 0 and position == 0:
            # Kafka preallocates the index of the active segment.
            return
        if slot and relative <= before:
            raise CorruptError(f"entry {slot}: offset {base + relative} follows {base + before}")
        before = relative
        yield {"kind": "offset_entry", "offset": base + relative, "position": position}


def _read_time_index(disk: Disk, path: str) -> Iterator[Finding]:
    base = names.base_offset_of(path.rpartition("/")[2]) or 0
    before = 0
    for slot, (timestamp, relative) in enumerate(_TIME_ENTRY.iter_unpack(_entries(disk, path, _TIME_ENTRY.size))):
        if timestamp == 0 and relative == 0:
            return
        if slot and timestamp < before:
            raise CorruptError(f"entry {slot}: timestamp {timestamp} follows {before}")
        before = timestamp
        yield {"kind": "time_entry", "timestamp": timestamp, "offset": base + relative}


def _entries(disk: Disk, path: str, size: int) -> memoryview:
    content = memoryview(disk.read(path))
    if len(content) % size:
        raise CorruptError(f"size of {len(content)} bytes is not a multiple of the entry size {size}")
    return content


def _read_transaction_index(disk: Disk, path: str) -> Iterator[Finding]:
    for aborted in TransactionIndex(disk, path).entries():
        yield {"kind": "aborted_transaction", **aborted._asdict()}


# Snapshots and checkpoints


def _read_snapshot(disk: Disk, path: str) -> Iterator[Finding]:
    for entry in decode_snapshot(path, disk.read(path)):
        last = entry.batches[-1] if entry.batches else None
        yield {
            "kind": "producer",
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": -1 if last is None else last.last_sequence,
            "last_offset": -1 if last is None else last.last_offset,
            "last_timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_start": entry.transaction_start,
        }


def _read_epochs(disk: Disk, path: str) -> Iterator[Finding]:
    for epoch, start in read_epochs(disk, path).items():
        yield {"kind": "leader_epoch", "leader_epoch": epoch, "start_offset": start}


def _read_offsets(disk: Disk, path: str) -> Iterator[Finding]:
    for partition, offset in read_offsets(disk, path).items():
        yield {"kind": "checkpoint", "topic": partition.topic, "partition": partition.partition, "offset": offset}


def _read_properties(disk: Disk, path: str) -> Iterator[Finding]:
    yield {"kind": "properties", **read_properties(disk, path)}


def _read_partition_metadata(disk: Disk, path: str) -> Iterator[Finding]:
    yield {"kind": "properties", **read_properties(disk, path, ":")}


_BY_SUFFIX: Final[dict[str, Callable[[Disk, str], Iterator[Finding]]]] = {
    names.LOG: _read_segment,
    names.OFFSET_INDEX: _read_offset_index,
    names.TIME_INDEX: _read_time_index,
    names.TRANSACTION_INDEX: _read_transaction_index,
    names.SNAPSHOT: _read_snapshot,
    names.EPOCHS: _read_epochs,
    names.PARTITION_METADATA: _read_partition_metadata,
    names.META_PROPERTIES: _read_properties,
    names.RECOVERY_POINTS: _read_offsets,
    names.LOG_STARTS: _read_offsets,
    names.HIGH_WATERMARKS: _read_offsets,
    names.CLEANER_OFFSETS: _read_offsets,
}
"""By the suffix of the file name, after removing those of deleted and swapped files."""


def _reader_of(name: str) -> Callable[[Disk, str], Iterator[Finding]] | None:
    for leftover in (names.DELETED, names.SWAP, names.CLEANED):
        name = name.removesuffix(leftover)
    return next((reader for suffix, reader in _BY_SUFFIX.items() if name.endswith(suffix)), None)


def _belongs_to_a_log(name: str) -> bool:
    """Whether a file belongs to a log; other programs also write files that end in .log."""
    is_segment = name.startswith(".") is False and "." in name and not name.endswith((".metadata", ".properties"))
    return _reader_of(name) is not None and (not is_segment or names.base_offset_of(name) is not None)
