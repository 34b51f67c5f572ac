"""Arrow batches of a task to a producer: by topic, whole columns at a time, and what was written where.

No Python object for a row. Which columns are what is in `sink_columns.py`; transactions are the caller's.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.client.producer.blocking_producer import Producer
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition
from ottla.spark.sink.columns import SinkColumns
from ottla.spark.sink.decision import FirstOffset

if TYPE_CHECKING:
    from ottla.client.producer.table_delivery import TableDelivery

_PIECE_BYTES: Final = 4 * 1024 * 1024
"""Batches that come in small pieces are put together: a larger batch costs all who handle it less."""
_DELIVERIES_MAX: Final = 256


class NullTopicError(InvalidRequestError):
    """A row does not say where it goes."""


class RowWriter:
    """Writes one task's rows. `first_offsets` and the counts are whole after `finish`."""

    def __init__(self, producer: Producer, columns: SinkColumns, topic: str | None) -> None:
        self.row_count = 0
        self.byte_count = 0
        self._producer = producer
        self._columns = columns
        self._topic = topic
        self._names = columns.record
        self._deliveries: list[TableDelivery] = []
        self._first: dict[TopicPartition, int] = {}

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Sends all rows; they are under way when this returns. Raises what is wrong with one of them."""
        piece: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if batch.num_rows:
                piece.append(batch)
                size += batch.nbytes
            if size >= _PIECE_BYTES:
                self._write(piece)
                piece, size = [], 0
        if piece:
            self._write(piece)

    def finish(self) -> tuple[FirstOffset, ...]:
        """Waits until every row is written; where the first row of each partition is. Raises the first failure."""
        while self._deliveries:
            self._settle()
        return tuple(FirstOffset(topic, index, offset) for (topic, index), offset in sorted(self._first.items()))

    def _write(self, piece: list[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(piece).combine_chunks() if len(piece) > 1 else pa.Table.from_batches(piece)
        record = rows.select(list(self._names.values())).rename_columns(list(self._names))
        self.row_count += rows.num_rows
        self.byte_count += sum(_text_bytes(record.column(name)) for name in ("key", "value") if name in self._names)
        if self._topic is not None:
            self._send(self._topic, record)
        else:
            for topic, some in _by_topic(rows.column(self._columns.topic), record):
                self._send(topic, some)

    def _send(self, topic: str, rows: pa.Table) -> None:
        self._deliveries.append(self._producer.send_table(topic, rows))
        if len(self._deliveries) > _DELIVERIES_MAX:
            self._settle()

    def _settle(self) -> None:
        for written in self._deliveries.pop(0).get():
            known = self._first.get(written.topic_partition)
            if known is None or written.offset < known:
                self._first[written.topic_partition] = written.offset


def _by_topic(topics: pa.ChunkedArray, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each topic, in their order."""
    if topics.null_count:
        raise NullTopicError(
            "a row has no topic: its column topic is null; give every row one, or all the same with the option topic"
        )
    codes = pa.chunked_array([topics.combine_chunks().dictionary_encode()]).combine_chunks()
    names = codes.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    order = pc.array_sort_indices(codes.indices)
    sorted_rows = rows.take(order)
    counts = {each["values"]: each["counts"] for each in pc.value_counts(codes.indices).to_pylist()}
    start = 0
    for code, name in enumerate(names):
        yield name, sorted_rows.slice(start, counts[code])
        start += counts[code]


def _text_bytes(column: pa.ChunkedArray) -> int:
    """How many bytes the column's values have; a look at the offsets of each chunk."""
    found: int = pc.sum(pc.binary_length(column)).as_py() or 0
    return found
