"""Records as the Arrow columns that Spark expects: exactly its types, in the order of the query.

`ottla.records.columns` decodes; this module selects columns and adds those that are constant for many rows (topic,
partition, timestampType).
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.records.aborted import AbortedTransactions
from ottla.records.arrow import to_record_batch
from ottla.records.batch import Batch
from ottla.records.columns import decode

ROWS_PER_BATCH: Final = 10_000
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""The Arrow types that Spark expects for the source's columns; it refuses others."""


class MalformedTimestampError(OttlaError):
    """A record's timestamp is out of Spark's range: its producer probably used another unit."""


class SparkColumns:
    """Decodes batches of one partition into Arrow batches with the given columns, in that order."""

    def __init__(self, partition: TopicPartition, columns: Sequence[str]) -> None:
        self._partition = partition
        self._columns = tuple(columns)
        self._schema = pa.schema([pa.field(name, ARROW_TYPES[name]) for name in columns])
        self._constants: dict[tuple[str, int], pa.Array] = {}

    def decode(
        self, batches: Sequence[Batch], start: int, end: int, aborted: list[tuple[int, int]] | None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of these batches from `start` to `end`, exclusive, without those of aborted transactions.

        Raises `CorruptError` for a corrupt batch after the rows before it.
        """
        left_out = None if aborted is None else AbortedTransactions(aborted)
        for timestamp_type, some in _by_timestamp_type(batches):
            data = some[0].buffer if len(some) == 1 else b"".join(each.buffer for each in some)
            position = 0
            while position < len(data):
                columns = decode(
                    data,
                    position,
                    start_offset=start,
                    end_offset=end,
                    headers="headers" in self._columns,
                    aborted=left_out,
                )
                if columns.consumed_bytes == 0:
                    break
                if columns.count:
                    yield from self._shaped(to_record_batch(columns), timestamp_type)
                position += columns.consumed_bytes

    def _shaped(self, decoded: pa.RecordBatch, timestamp_type: int) -> Iterator[pa.RecordBatch]:
        rows = decoded.num_rows
        size = rows if rows <= ROWS_PER_BATCH * 3 // 2 else ROWS_PER_BATCH
        for begin in range(0, rows, size):
            part = decoded if size == rows else decoded.slice(begin, size)
            arrays = [self._column(part, name, timestamp_type) for name in self._columns]
            if not arrays:
                # Spark counts the rows of a batch without columns.
                yield pa.RecordBatch.from_struct_array(pa.nulls(part.num_rows, pa.struct([])))
                continue
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, decoded: pa.RecordBatch, name: str, timestamp_type: int) -> pa.Array:
        if name == "topic":
            return self._constant(name, self._partition.topic, decoded.num_rows)
        if name == "partition":
            return self._constant(name, self._partition.partition, decoded.num_rows)
        if name == "timestampType":
            return self._constant(name, timestamp_type, decoded.num_rows)
        column = decoded.column(name)
        if name == "timestamp":
            return self._microseconds(column)
        if name == "headers":
            return _nullable_headers(column)
        return column

    def _constant(self, name: str, value: str | int, rows: int) -> pa.Array:
        """The same value in all rows; a slice of the longest array made so far."""
        known = self._constants.get((name, value if isinstance(value, int) else 0))
        if known is None or len(known) < rows:
            known = pa.repeat(pa.scalar(value, ARROW_TYPES[name]), max(rows, ROWS_PER_BATCH * 3 // 2))
            self._constants[name, value if isinstance(value, int) else 0] = known
        return known.slice(0, rows)

    def _microseconds(self, column: pa.Array) -> pa.Array:
        try:
            return column.cast(TIMESTAMP)
        except pa.ArrowInvalid as error:
            raise MalformedTimestampError(
                f"{self._partition}: a record's timestamp is out of range ({error}); its producer probably used "
                "microseconds or nanoseconds. Leave out the column timestamp by .schema(...) to read the records"
            ) from error


def _by_timestamp_type(batches: Sequence[Batch]) -> Iterator[tuple[int, Sequence[Batch]]]:
    """Runs of batches with the same timestamp type: nearly always all of them."""
    kinds = [each.timestamp_type for each in batches]
    begin = 0
    for at in range(1, len(kinds) + 1):
        if at == len(kinds) or kinds[at] != kinds[begin]:
            yield kinds[begin], batches[begin:at]
            begin = at


def _nullable_headers(column: pa.Array) -> pa.Array:
    """The same memory with the nullability of Spark's type: everything is nullable."""
    return pa.Array.from_buffers(
        HEADERS,
        len(column),
        column.buffers()[:2],
        offset=column.offset,
        children=[
            pa.Array.from_buffers(
                HEADERS.value_type,
                len(column.values),
                [None],
                offset=column.values.offset,
                children=[column.values.field(0), column.values.field(1)],
            )
        ],
    )
