"""Chunks decoded to Arrow, for `poll_arrow`, `poll_table` and the range readers.

`ottla.records.columns` leaves out aborted transactions and records before the position. A corrupt batch is reported
when it is the next of its partition: the records before it are handed out first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.fetch.chunk import Chunk
from ottla.client.needed_arrow import pa
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.records.aborted import AbortedTransactions
from ottla.records.arrow import SCHEMA, to_record_batch
from ottla.records.batch import spanned
from ottla.records.columns import decode

_TOPIC: Final = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The records of one chunk, or those before a corrupt batch in it."""

    batches: list[pa.RecordBatch]
    """Without empty batches."""
    next_offset: int
    """Where to read on."""
    error: OttlaError | None
    """What is wrong with the batch at `next_offset`; None if the whole chunk was decoded."""


def decode_chunk(chunk: Chunk, *, headers: bool = True) -> Decoded:
    """The records up to the first corrupt batch, in as few Arrow batches as the decoder's limit allows."""
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
    """The outcome of one poll."""

    batches: dict[TopicPartition, list[pa.RecordBatch]]
    """Without partitions that have no records, and without empty batches."""
    rewinds: dict[TopicPartition, int]
    """Partitions that must go back to an offset, before a batch that cannot be decoded."""
    error: OttlaError | None
    """The error to raise: a corrupt batch is the next of its partition. Then there are no records at all."""


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
                # Raised now: partitions that always have more records must not hide it. Their records come again.
                return Polled(batches={}, rewinds=all_starts(chunks), error=decoded.error)
    return Polled(batches={partition: some for partition, some in found.items() if some}, rewinds=rewinds, error=None)


def all_starts(chunks: Sequence[Chunk]) -> dict[TopicPartition, int]:
    """Where each partition was before the poll."""
    starts: dict[TopicPartition, int] = {}
    for chunk in chunks:
        starts.setdefault(chunk.partition, chunk.start)
    return starts


def as_batches(found: Mapping[TopicPartition, list[pa.RecordBatch]]) -> dict[TopicPartition, pa.RecordBatch]:
    """One Arrow batch per partition; several are copied into one."""
    return {partition: some[0] if len(some) == 1 else pa.concat_batches(some) for partition, some in found.items()}


def as_table(found: Mapping[TopicPartition, list[pa.RecordBatch]], *, headers: bool = True) -> pa.Table:
    """One table of all partitions, with the columns `topic` and `partition` in front. Copies no values.

    Raises `MisuseError` if topics have typed columns that differ.
    """
    columns = SCHEMA if headers else pa.schema(list(SCHEMA)[:-1])
    first: TopicPartition | None = None
    for partition, some in found.items():
        if first is not None and some[0].schema != columns:
            raise MisuseError(
                f"topics {first.topic} and {partition.topic} have different columns, which one table cannot hold; use"
                " poll_arrow, or a consumer for each topic"
            )
        first, columns = partition, some[0].schema
    schema = pa.schema(
        [
            pa.field("topic", _TOPIC, nullable=False),
            pa.field("partition", pa.int32(), nullable=False),
            *columns,
        ]
    )
    labelled = [_labelled(schema, partition, batch) for partition, some in found.items() for batch in some]
    return pa.Table.from_batches(labelled, schema=schema)


def _labelled(schema: pa.Schema, partition: TopicPartition, batch: pa.RecordBatch) -> pa.RecordBatch:
    zeros = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
    topic = pa.DictionaryArray.from_arrays(zeros, pa.array([partition.topic]))
    indexes = pa.repeat(pa.scalar(partition.partition, pa.int32()), batch.num_rows)
    return pa.RecordBatch.from_arrays([topic, indexes, *batch.columns], schema=schema)
