"""The `.snapshot` file: all producers of a log as of the offset in its name.

Version 1: int16 version, uint32 CRC-32C of the rest, int32 count, then 46 bytes per producer, with its last batch.
Kafka writes and reads only that. The producers' earlier batches follow, int32 count and 32 bytes each, so that a retry
of one of them is recognised after a restart too, instead of being refused as out of order. The last 24 bytes are about
the segment that ended where the snapshot was made (`EndedSegment`).
"""

from collections.abc import Iterable
from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.errors import CorruptError
from ottla.model.ids import NO_OFFSET, NO_SEQUENCE, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from ottla.records.batch import crc32c
from ottla.storage.producers.producer_state import BatchSpan, ProducerEntry

_HEADER: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_SPAN: Final = Struct(">qiqiq")
_ENDED: Final = Struct(">Iqqi")
_VERSION: Final = 1


class EndedSegment(NamedTuple):
    """The segment that ends where a snapshot was made."""

    partition_crc: int
    """The CRC-32C of the partition's name: a snapshot of another partition has another one."""
    base_offset: Offset
    size_bytes: int
    aborted_count: int
    """How many aborted transactions have their marker in it; -1 if that is not known."""


def encode_snapshot(entries: Iterable[ProducerEntry], ended: EndedSegment | None = None) -> bytes:
    """The file's content."""
    packed: list[bytes] = []
    earlier: list[bytes] = []
    for entry in entries:
        packed.append(_encode_entry(entry))
        earlier += [_SPAN.pack(entry.producer_id, *span) for span in entry.batches[:-1]]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    if earlier or ended is not None:
        body += _COUNT.pack(len(earlier)) + b"".join(earlier)
    if ended is not None:
        body += _ENDED.pack(*ended)
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(path: str, content: bytes) -> list[ProducerEntry]:
    """The producers in a file's content; raises CorruptError naming `path`."""
    return read_snapshot(path, content)[0]


def read_snapshot(path: str, content: bytes) -> tuple[list[ProducerEntry], EndedSegment | None]:
    """The producers in a file's content, and the segment that it is about; raises CorruptError naming `path`."""
    if len(content) < _HEADER.size + _COUNT.size:
        raise CorruptError(f"{path}: {len(content)} bytes is too short for a producer snapshot")
    version, crc = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise CorruptError(f"{path}: producer snapshot version {version}, not {_VERSION}")
    body = memoryview(content)[_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptError(f"{path}: the checksum of the producer snapshot does not match")
    packed, rest = _counted(path, body, _ENTRY, "producers")
    entries = [_decode_entry(*fields) for fields in _ENTRY.iter_unpack(packed)]
    if not rest:
        return entries, None
    packed, rest = _counted(path, rest, _SPAN, "earlier batches")
    if len(rest) not in (0, _ENDED.size):
        raise CorruptError(f"{path}: {len(rest)} bytes follow the producer snapshot")
    ended = EndedSegment(*_ENDED.unpack(rest)) if rest else None
    earlier: dict[int, list[BatchSpan]] = {}
    for producer_id, last_sequence, last_offset, offset_delta, timestamp in _SPAN.iter_unpack(packed):
        span = BatchSpan(Sequence(last_sequence), Offset(last_offset), offset_delta, TimestampMs(timestamp))
        earlier.setdefault(producer_id, []).append(span)
    if earlier:
        entries = [
            replace(entry, batches=(*earlier.get(entry.producer_id, ()), *entry.batches)) if entry.batches else entry
            for entry in entries
        ]
    return entries, ended


def _counted(path: str, body: memoryview, item: Struct, name: str) -> tuple[memoryview, memoryview]:
    """A counted list of items of one size, and the bytes behind it."""
    count = _COUNT.unpack_from(body)[0] if len(body) >= _COUNT.size else -1
    end = _COUNT.size + count * item.size
    if count < 0 or len(body) < end:
        raise CorruptError(f"{path}: {count} {name} do not fit into {len(body)} bytes")
    return body[_COUNT.size : end], body[end:]


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        last.last_sequence if last else NO_SEQUENCE,
        last.last_offset if last else NO_OFFSET,
        last.offset_delta if last else 0,
        entry.last_timestamp,
        entry.coordinator_epoch,
        NO_OFFSET if entry.transaction_start is None else entry.transaction_start,
    )


def _decode_entry(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> ProducerEntry:
    span = BatchSpan(Sequence(last_sequence), Offset(last_offset), offset_delta, TimestampMs(timestamp))
    return ProducerEntry(
        producer_id=ProducerId(producer_id),
        epoch=ProducerEpoch(epoch),
        batches=(span,) if last_offset >= 0 else (),
        coordinator_epoch=coordinator_epoch,
        transaction_start=None if transaction_start < 0 else Offset(transaction_start),
        last_timestamp=TimestampMs(timestamp),
    )
