"""Sends the Arrow batches of a task to a producer, by topic, and keeps the first offset of each partition.

Makes no Python object per row. `columns.py` finds the columns; the caller handles transactions.
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
    from ottla.client.producer.tables.table_delivery import TableDelivery
    from ottla.spark.values.value_encoder import ValueEncoder

_PIECE_BYTES: Final = 4 * 1024 * 1024
"""Small batches are combined up to this size: larger batches cost less per row."""
_DELIVERIES_MAX: Final = 256
_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


class NullTopicError(InvalidRequestError):
    """A row has no topic."""


class RowWriter:
    """Writes the rows of one task. The counts are complete after `finish`."""

    def __init__(
        self, producer: Producer, columns: SinkColumns, topic: str | None, encoder: "ValueEncoder | None" = None
    ) -> None:
        self.row_count = 0
        self.byte_count = 0
        self._producer = producer
        self._columns = columns
        self._topic = topic
        self._names = columns.record
        self._encoder = encoder
        self._deliveries: list[TableDelivery] = []
        self._first: dict[TopicPartition, int] = {}

    def write_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Sends all rows; they may be in flight when this returns. Raises if a row is invalid."""
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
        """Waits until every row is written; returns the first offset in each partition. Raises the first failure."""
        while self._deliveries:
            self._settle()
        return tuple(FirstOffset(topic, index, offset) for (topic, index), offset in sorted(self._first.items()))

    def _write(self, piece: list[pa.RecordBatch]) -> None:
        rows = pa.Table.from_batches(piece).combine_chunks() if len(piece) > 1 else pa.Table.from_batches(piece)
        record = rows.select(list(self._names.values())).rename_columns(list(self._names))
        if self._encoder is not None:
            record = record.append_column("value", rows.select(self._columns.fields).to_struct_array())
        self.row_count += rows.num_rows
        if self._topic is not None:
            self._send(self._topic, record)
        else:
            for topic, some in _by_topic(rows.column(self._columns.topic), record):
                self._send(topic, some)

    def _send(self, topic: str, rows: pa.Table) -> None:
        if self._encoder is not None:
            rows = _encoded(rows, topic, self._encoder)
        self.byte_count += sum(_text_bytes(rows.column(name)) for name in ("key", "value") if name in rows.column_names)
        self._deliveries.append(self._producer.send_table(topic, rows))
        if len(self._deliveries) > _DELIVERIES_MAX:
            self._settle()

    def _settle(self) -> None:
        for written in self._deliveries.pop(0).get():
            known = self._first.get(written.topic_partition)
            if known is None or written.offset < known:
                self._first[written.topic_partition] = written.offset


def _encoded(rows: pa.Table, topic: str, encoder: "ValueEncoder") -> pa.Table:
    """The rows with bytes in place of the fields of the value, and with the headers that belong to them."""
    place = rows.column_names.index("value")
    fields = rows.column("value").combine_chunks()
    if isinstance(fields, pa.ChunkedArray):
        fields = fields.chunk(0)
    values, added = encoder.encode(topic, fields)
    rows = rows.set_column(place, "value", values)
    if not added:
        return rows
    extra = [{"key": name, "value": value} for name, value in added]
    if "headers" not in rows.column_names:
        return rows.append_column("headers", pa.repeat(pa.scalar(extra, _HEADERS), rows.num_rows))
    own = rows.column("headers").to_pylist()
    place = rows.column_names.index("headers")
    return rows.set_column(place, "headers", pa.array([[*(each or ()), *extra] for each in own], _HEADERS))


def _by_topic(topics: pa.ChunkedArray, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each topic, in order."""
    if topics.null_count:
        raise NullTopicError(
            "a row has no topic: its column topic is null; set it in every row, or set the option topic"
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
    """The total size of the values of a column, from the offsets of each chunk."""
    found: int = pc.sum(pc.binary_length(column)).as_py() or 0
    return found
