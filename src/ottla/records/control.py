"""Control batches: transaction markers, the progress that queues note in their own logs, and ends of gaps.

Covers their bytes only. When a marker is written and what it means for readers is decided in `storage` and
`coordination`; what progress is, in `queues`.
"""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.model.errors import CorruptBatchError
from ottla.records.batch import Batch
from ottla.records.builder import BatchBuilder
from ottla.records.decode import decode_records
from ottla.records.layout import Marker

MARKER_BYTES: Final = 78
"""Every marker is a batch of this size."""

PROGRESS_TYPE: Final = 100
"""The type of control records in which a queue notes its progress. Kafka has none of this number: its clients skip
control batches, whatever their type."""

_GAP_TYPE: Final = 101
"""The type of the control record behind records that are lost."""

_VERSION: Final = 0
_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")


def marker_batch(
    marker: Marker,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch with the one record that ends a producer's transaction."""
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    builder.append(timestamp, _KEY.pack(_VERSION, marker), _VALUE.pack(_VERSION, coordinator_epoch))
    return builder.build()


def read_marker(batch: Batch) -> tuple[Marker, int] | None:
    """How the transaction ended, and the epoch of the coordinator that says so.

    None for a control batch of another kind, which readers pass over, and for one that compaction has emptied. Raises
    `CorruptBatchError` if the batch is not a control batch, or its record is too short.
    """
    if not batch.is_control:
        raise CorruptBatchError(f"batch with base offset {batch.base_offset} holds data, not a marker")
    records = decode_records(batch)
    if not records:
        return None
    key, value = records[0].key or b"", records[0].value or b""
    try:
        _, kind = _KEY.unpack_from(key)
        if kind not in (Marker.ABORT, Marker.COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(value)
    except StructError as error:
        raise CorruptBatchError(
            f"marker with base offset {batch.base_offset}: {len(key)} bytes of key or {len(value)} of value are too few"
        ) from error
    return Marker(kind), coordinator_epoch


def progress_batch(values: Sequence[bytes], timestamp: int) -> bytearray:
    """A control batch with the progress of a queue, to be appended by the partition's leader."""
    builder = BatchBuilder(control=True)
    key = _KEY.pack(_VERSION, PROGRESS_TYPE)
    for value in values:
        builder.append(timestamp, key, value)
    return bytearray(builder.build())


def gap_batch(timestamp: int, *, base_offset: int, leader_epoch: int) -> bytearray:
    """A control batch behind records that are lost, so that consumers that wait before them continue."""
    builder = BatchBuilder(control=True, base_offset=base_offset, leader_epoch=leader_epoch)
    builder.append(timestamp, _KEY.pack(_VERSION, _GAP_TYPE), b"")
    return bytearray(builder.build())


def read_progress(batch: Batch) -> list[tuple[int, bytes]]:
    """Offset and value of each progress record in a control batch; none if it is of another kind."""
    key = _KEY.pack(_VERSION, PROGRESS_TYPE)
    return [(record.offset, record.value) for record in decode_records(batch) if record.key == key and record.value]
