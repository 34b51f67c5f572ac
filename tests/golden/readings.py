"""How Ottla reads golden bytes, in the form of the manifests: batch headers, records one by one, records as columns.

Used by the tests beside this file and by those of `tests/compat`, which read logs that were just written.
"""

from collections.abc import Iterable
from typing import Any, Final

from ottla.records.batch import Batch
from ottla.records.decode import decode_records
from ottla.records.layout import Codec, TimestampType
from ottla.records.packed import BinaryColumn, Columns
from tests.golden.manifest import ExpectedRecord, expected_record

_TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}


def header(batch: Batch, position: int) -> dict[str, Any]:
    """A batch's header as a manifest has it, but for the file's name."""
    return {
        "position": position,
        "size_bytes": batch.size_bytes,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "base_sequence": batch.base_sequence,
        "last_sequence": batch.last_sequence,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "leader_epoch": batch.leader_epoch,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "delete_horizon": batch.delete_horizon,
        "timestamp_type": _TIMESTAMP_TYPES[TimestampType(batch.timestamp_type)],
        "max_timestamp": batch.max_timestamp,
        "codec": Codec(batch.codec).name.lower(),
        "crc": batch.crc,
    }


def records(batches: Iterable[Batch]) -> list[ExpectedRecord]:
    """The records of all data batches, read one by one."""
    return [expected_record(*record) for batch in batches if not batch.is_control for record in decode_records(batch)]


def column_records(columns: Columns) -> list[ExpectedRecord]:
    """Columns turned back into records, by the rules of Arrow's memory layout."""
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    keys = _binary(columns.keys, columns.count)
    values = _binary(columns.values, columns.count)
    if columns.headers is None:
        raise ValueError("decode with headers=True")
    header_ends = memoryview(columns.headers.offsets).cast("B").cast("i")
    names = [(name or b"").decode() for name in _binary(columns.headers.keys, columns.headers.count)]
    contents = _binary(columns.headers.values, columns.headers.count)
    headers = list(zip(names, contents, strict=True))
    return [
        expected_record(
            offsets[row], timestamps[row], keys[row], values[row], headers[header_ends[row] : header_ends[row + 1]]
        )
        for row in range(columns.count)
    ]


def _binary(column: BinaryColumn, count: int) -> list[bytes | None]:
    data = memoryview(column.data).cast("B")
    ends = memoryview(column.offsets).cast("B").cast("q" if column.wide else "i")
    validity = None if column.validity is None else memoryview(column.validity).cast("B")
    return [
        bytes(data[ends[row] : ends[row + 1]]) if validity is None or validity[row // 8] >> row % 8 & 1 else None
        for row in range(column.start, column.start + count)
    ]
