"""Fetched batches to Arrow: what `poll_arrow`, `poll_table` and the range reader decode with.

Chunks come from the fetcher; records of aborted transactions and before the position are left out by the kernel
(`ottla.records.columns`). Damage is the consumer's to meet in its place: what is good before it is handed out first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.consumer.reader import Chunk
from ottla.client.needed_arrow import pa
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.records.aborted import AbortedTransactions
from ottla.records.arrow import SCHEMA, to_record_batch
from ottla.records.batch import spanned
from ottla.records.columns import decode

_TOPIC: Final = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The records of one chunk, or those before the damage in it."""

    batches: list[pa.RecordBatch]
    """None of them empty."""
    next_offset: int
    """Where to go on."""
    error: OttlaError | None
    """What is wrong with the batch there, if decoding ended before the chunk did."""


def decode_chunk(chunk: Chunk, *, headers: bool = True) -> Decoded:
    """All good records from the chunk's start on, in as few Arrow batches as the kernel's limit allows."""
    data = spanned(chunk.batches)
    aborted = None if chunk.aborted is None else AbortedTransactions(chunk.aborted)
    found: list[pa.RecordBatch] = []
    position, next_offset = 0, chunk.start
    while position < len(data):
        try:
            columns = decode(
                data, position, start_offset=chunk.start, end_offset=chunk.end, headers=headers, aborted=aborted
            )
        except OttlaError as error:
            return Decoded(batches=found, next_offset=next_offset, error=error)
        if columns.consumed_bytes == 0:
            break
        if columns.count:
            found.append(to_record_batch(columns))
        position += columns.consumed_bytes
        next_offset = columns.next_offset
    return Decoded(batches=found, next_offset=next_offset, error=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """What one poll found."""

    batches: dict[TopicPartition, list[pa.RecordBatch]]
    """Only partitions that have records, and no empty batches."""
    rewinds: dict[TopicPartition, int]
    """Where partitions must go back to: before a batch that cannot be decoded."""
    error: OttlaError | None
    """What to raise: a damaged batch is the next of its partition. Then there are no records of any."""


def decode_polled(chunks: Sequence[Chunk], *, headers: bool = True) -> Polled:
    """The records of all chunks, in order for each partition."""
    found: dict[TopicPartition, list[pa.RecordBatch]] = {}
    rewinds: dict[TopicPartition, int] = {}
    for chunk in chunks:
        partition = chunk.partition
        if partition in rewinds:
            continue
        decoded = decode_chunk(chunk, headers=headers)
        found.setdefault(partition, []).extend(decoded.batches)
        if decoded.error is not None:
            rewinds[partition] = decoded.next_offset
            if not found[partition]:
                # Raised now, lest partitions that always have more hide it; these then come again.
                return Polled(batches={}, rewinds=_all_starts(chunks), error=decoded.error)
    return Polled(batches={partition: some for partition, some in found.items() if some}, rewinds=rewinds, error=None)


def _all_starts(chunks: Sequence[Chunk]) -> dict[TopicPartition, int]:
    starts: dict[TopicPartition, int] = {}
    for chunk in chunks:
        starts.setdefault(chunk.partition, chunk.start)
    return starts


def as_batches(found: Mapping[TopicPartition, list[pa.RecordBatch]]) -> dict[TopicPartition, pa.RecordBatch]:
    """One batch for each partition; copies what came in several."""
    return {partition: some[0] if len(some) == 1 else pa.concat_batches(some) for partition, some in found.items()}


def as_table(found: Mapping[TopicPartition, list[pa.RecordBatch]], *, headers: bool = True) -> pa.Table:
    """All partitions' records as one table, with columns `topic` and `partition` in front; copies no values."""
    schema = pa.schema(
        [
            pa.field("topic", _TOPIC, nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            *(SCHEMA if headers else list(SCHEMA)[:-1]),
        ]
    )
    labelled = [_labelled(schema, partition, batch) for partition, some in found.items() for batch in some]
    return pa.Table.from_batches(labelled, schema=schema)


def _labelled(schema: pa.Schema, partition: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
    zeros = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
    topic = pa.DictionaryArray.from_arrays(zeros, pa.array([partition.topic]))
    indexes = pa.repeat(pa.scalar(partition.partition, pa.int32()), batch.num_rows)
    return pa.RecordBatch.from_arrays([topic, indexes, *batch.columns], schema=schema)
