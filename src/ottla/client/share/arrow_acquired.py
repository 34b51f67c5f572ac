"""Acquired records as Arrow batches, for `poll_arrow` of share consumers; needs pyarrow.

The columns are those of a consumer's Arrow batches, and `delivery_count`.
"""

from dataclasses import dataclass
from typing import Final

from ottla.client.consumer.errors import UnreadableRecordError
from ottla.client.fetch.arrow_chunks import decode_chunk
from ottla.client.fetch.chunk import Chunk
from ottla.client.needed_arrow import pa
from ottla.client.share.acquired_chunk import AcquiredChunk, AcquiredRanges
from ottla.client.share.values import AcknowledgeType
from ottla.model.errors import OttlaError
from ottla.protocol.share_frames import AcknowledgementBatch

_COUNT: Final = pa.field("delivery_count", pa.int16(), nullable=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowAcquired:
    """The acquired records of a chunk, or those before a corrupt batch in it."""

    batches: list[pa.RecordBatch]
    offsets: list[int]
    own: list[AcknowledgementBatch]
    """Acquired offsets without a record, and how they are to be acknowledged."""
    rest: AcquiredChunk | None
    """What was not decoded: it begins at a corrupt batch, or after one."""
    error: OttlaError | None
    """The error to raise, if there are no records before the corrupt batch."""


def acquired_columns(chunk: AcquiredChunk, *, headers: bool) -> ArrowAcquired:
    """The acquired records up to the first corrupt batch, whose acquired records are rejected once it is the first."""
    ranges = AcquiredRanges(chunk.ranges)
    decoded = decode_chunk(
        Chunk(
            partition=chunk.partition,
            batches=list(chunk.batches),
            start=chunk.ranges[0].first_offset,
            end=chunk.ranges[-1].last_offset + 1,
            aborted=None,
            high_watermark=-1,
            size_bytes=0,
        ),
        headers=headers,
    )
    found: list[pa.RecordBatch] = []
    offsets: list[int] = []
    for batch in decoded.batches:
        rows: list[int] = []
        counts: list[int] = []
        for row, offset in enumerate(batch.column("offset").to_pylist()):
            count = ranges.count_at(offset)
            if count is not None:
                ranges.pass_record(offset)
                rows.append(row)
                counts.append(count)
                offsets.append(offset)
        if rows:
            taken = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int32()))
            found.append(taken.append_column(_COUNT, pa.array(counts, pa.int16())))
    if decoded.error is None:
        ranges.pass_to(None)
        return ArrowAcquired(batches=found, offsets=offsets, own=ranges.own, rest=None, error=None)
    bad = decoded.next_offset
    ranges.pass_to(bad)
    error: OttlaError | None = None
    if not found:
        end = next((each.next_offset for each in chunk.batches if each.next_offset > bad), bad + 1)
        ranges.pass_to(end, AcknowledgeType.REJECT)
        words = f"{chunk.partition} at offset {bad}: {decoded.error}; the records of the batch are rejected"
        error = UnreadableRecordError(chunk.partition, bad, words)
    rest = None
    if not ranges.is_done:
        start = ranges.left[0].first_offset
        left = [each for each in chunk.batches if each.next_offset > start]
        rest = AcquiredChunk(partition=chunk.partition, lock=chunk.lock, batches=left, ranges=ranges.left)
    return ArrowAcquired(batches=found, offsets=offsets, own=ranges.own, rest=rest, error=error)
