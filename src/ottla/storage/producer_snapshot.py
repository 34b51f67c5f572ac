"""The `.snapshot` file: all producers of a log as of the offset in its name.

Version 1: int16 version, uint32 CRC-32C of the rest, int32 count, then 46 bytes a producer. Only the last batch of each
producer is kept, as Kafka does: a retry of an older one after a restart is answered as out of order.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from ottla.model.errors import CorruptError
from ottla.model.ids import NO_OFFSET, NO_SEQUENCE, Offset, ProducerEpoch, ProducerId, Sequence, TimestampMs
from ottla.records.batch import crc32c
from ottla.storage.producer_state import BatchSpan, ProducerEntry

_HEADER: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The file's content."""
    packed = [_encode_entry(entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(path: str, content: bytes) -> list[ProducerEntry]:
    """The producers in a file's content; raises CorruptError naming `path`."""
    if len(content) < _HEADER.size + _COUNT.size:
        raise CorruptError(f"{path}: {len(content)} bytes is too short for a producer snapshot")
    version, crc = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise CorruptError(f"{path}: producer snapshot version {version}, not {_VERSION}")
    body = memoryview(content)[_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptError(f"{path}: the checksum of the producer snapshot does not match")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptError(f"{path}: {count} producers are promised in {len(body)} bytes")
    return [_decode_entry(*fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]


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
