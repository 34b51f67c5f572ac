"""Sends Arrow tables: rows become record batches without a Python object per row.

A table is sent piece by piece, so that memory use does not depend on its size. The rows of each piece are sorted by
partition (`row_split.pyx`), encoded from Arrow's buffers (`ottla.records.arrow`) and appended as whole batches, which
the sender treats like all others. Interceptors and serializers of single records are not called; serializers of
columns are, for each piece (`serialized_columns.py`). `ottla.client.fetch.arrow_chunks` reads records into Arrow.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.client.arguments import ArgumentError, shown
from ottla.client.needed_arrow import pa
from ottla.client.producer.batching.deliveries import BatchPromise
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.send_path import SendPath
from ottla.client.producer.tables.row_split import split_rows
from ottla.client.producer.tables.serialized_columns import ColumnSerializers
from ottla.client.producer.topic_routes import TopicRoutes
from ottla.client.serializers import NotPreparedError
from ottla.model.errors import MisuseError
from ottla.records.arrow import encode_arrow
from ottla.records.layout import Codec
from ottla.records.packed import BinaryColumn

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"
"""What `send_table` takes."""

_PIECE_BYTES: Final = 8 * 1024 * 1024
"""How much is encoded at once, approximately."""
_ROW_OVERHEAD_BYTES: Final = 8
_BINARY_TYPES: Final = frozenset({pa.binary(), pa.string(), pa.large_binary(), pa.large_string()})
_WIDE_TYPES: Final = frozenset({pa.large_binary(), pa.large_string()})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """The column of each record field. A column with the default name may be missing; one that was named must exist."""

    key: str = "key"
    value: str = "value"
    timestamp: str = "timestamp"
    headers: str = "headers"
    partition: int | str = "partition"
    """A partition for all rows, or a column of partitions, in which null and -1 mean: choose by key."""

    def names_in(self, schema: pa.Schema) -> list[str]:
        """The columns that a schema has. Raises `MisuseError` if a named one, or both key and value, are missing."""
        found = []
        for role in ("key", "value", "timestamp", "headers", "partition"):
            name = getattr(self, role)
            if role == "partition" and isinstance(name, int):
                continue
            places = schema.get_all_field_indices(name)
            if len(places) > 1:
                raise MisuseError(f"the table has {len(places)} columns named {name!r}; rename all but one")
            if places:
                found.append(name)
            elif name != role:
                raise MisuseError(
                    f"the table has no column {name!r} for {role}; its columns are {', '.join(schema.names)}"
                )
        if self.key not in found and self.value not in found:
            raise MisuseError(
                f"the table has neither a column {self.key!r} nor {self.value!r}; its columns are"
                f" {', '.join(schema.names)}: name them, as in value='payload'"
            )
        return found


class EncodedBatch(NamedTuple):
    """An encoded batch and the queue of its partition."""

    queue: PartitionQueue
    data: memoryview
    row_count: int


async def send_table(path: SendPath, topic: str, rows: Rows, columns: TableColumns) -> list[BatchPromise]:
    """Sends all rows, and returns the promises of their batches in order; see `Producer.send_table`."""
    pieces = _pieces(rows, columns)
    serializers = ColumnSerializers.of(path.config.key_serializer, path.config.value_serializer)
    routes = await path.wait_topic(topic, columns.partition if isinstance(columns.partition, int) else None)
    promises: list[BatchPromise] = []
    is_slow = isinstance(rows, pa.RecordBatchReader) and not path.is_blocking
    # A reader may wait for a file or a socket, which must not block the event loop.
    while (piece := await asyncio.to_thread(next, pieces, None) if is_slow else next(pieces, None)) is not None:
        if serializers:
            piece = await _serialized(path, serializers, topic, piece, columns)
        promises += [await path.send_batch(*batch) for batch in encoded_batches(path, routes, piece, columns)]
        path.wake()
        if not path.is_blocking:
            # Without this the sender would never run in a program that only sends.
            await asyncio.sleep(0)
    return promises


async def _serialized(
    path: SendPath, serializers: ColumnSerializers, topic: str, piece: pa.RecordBatch, columns: TableColumns
) -> pa.RecordBatch:
    while True:
        try:
            return serializers.apply(topic, piece, key=columns.key, value=columns.value, headers=columns.headers)
        except NotPreparedError as missing:
            # The thread that called the blocking producer may block; an event loop may not.
            if path.is_blocking:
                missing.prepare()
            else:
                await asyncio.to_thread(missing.prepare)


def _pieces(rows: Rows, columns: TableColumns) -> Iterator[pa.RecordBatch]:
    """The columns to send, in pieces of bounded size. Raises `MisuseError` at once for a wrong type or column."""
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise ArgumentError(f"table must be a pyarrow Table, RecordBatch or RecordBatchReader, not {shown(rows)}")
    return _sliced(rows, columns.names_in(rows.schema))


def _sliced(rows: Rows, names: list[str]) -> Iterator[pa.RecordBatch]:
    if isinstance(rows, pa.RecordBatch):
        batches: Any = [rows]
    else:
        batches = rows.to_batches() if isinstance(rows, pa.Table) else rows
    for whole in batches:
        batch = whole.select(names)
        count = max(_PIECE_BYTES // _row_bytes(batch), 1)
        for start in range(0, batch.num_rows, count):
            yield batch.slice(start, count)


def _row_bytes(batch: pa.RecordBatch) -> int:
    """The average size of a row."""
    size: int = batch.nbytes
    count: int = batch.num_rows
    return size // max(count, 1) + _ROW_OVERHEAD_BYTES


def encoded_batches(
    path: SendPath, routes: TopicRoutes, piece: pa.RecordBatch, columns: TableColumns
) -> Iterator[EncodedBatch]:
    """The rows of a piece as batches for their partitions, each as large as a request may be.

    `batch_size` does not apply: it is for records that arrive one by one.
    """
    config = path.config
    bytes_max = min(config.max_request_size, config.buffer_memory)
    if config.codec is not Codec.NONE:
        # Data that cannot be compressed grows a little.
        bytes_max = max(bytes_max - bytes_max // 64 - 1024, 1)
    encode = partial(
        encode_arrow,
        key=columns.key,
        value=columns.value,
        timestamp=columns.timestamp,
        headers=columns.headers,
        default_timestamp=path.clock.now_ms(),
        batch_bytes_max=bytes_max,
        codec=config.codec,
        level=config.compression_level,
        transactional=config.transactional_id is not None,
    )
    for index, rows, order in by_partition(path, routes, piece, columns, bytes_max):
        queue = routes.queues[index]
        for data in encode(rows, order=order):
            # Brokers only accept batches with base offset 0; the checksum does not cover it.
            data[:8] = bytes(8)
            yield EncodedBatch(queue, data, int.from_bytes(data[_COUNT_AT : _COUNT_AT + 4], "big"))


_COUNT_AT: Final = 57
"""The position of the record count in a batch."""


def by_partition(
    path: SendPath, routes: TopicRoutes, piece: pa.RecordBatch, columns: TableColumns, run_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch, memoryview | None]]:
    """The rows of each partition, in order: (partition, rows, row numbers), where None means all of the rows.

    Rows without a key go to the partitions in turn.
    """
    if isinstance(columns.partition, int):
        yield columns.partition, piece, None
        return
    count = len(routes.queues)
    chosen = _chosen(path, routes, piece, columns)
    if count == 1 and chosen is None:
        yield 0, piece, None
        return
    run = max(run_bytes // _row_bytes(piece), 1)
    keyless = routes.available or routes.all
    first = path.random.randrange(len(keyless))
    keyless = keyless[first:] + keyless[:first]
    keys = _keys(piece, columns.key)
    if keys is None and chosen is None:
        for turn, start in enumerate(range(0, piece.num_rows, run)):
            yield keyless[turn % len(keyless)], piece.slice(start, run), None
        return
    order, bounds = split_rows(
        piece.num_rows, partitions=count, keys=keys, chosen=chosen, keyless=keyless, keyless_run=run
    )
    numbers = memoryview(order)
    for index in range(count):
        start, end = bounds[index], bounds[index + 1]
        if end - start == piece.num_rows:
            yield index, piece, None
        elif end > start:
            yield index, piece, numbers[4 * start : 4 * end]


def _keys(piece: pa.RecordBatch, name: str) -> BinaryColumn | None:
    """The keys as they will be written; None without any."""
    place = piece.schema.get_field_index(name)
    if place < 0 or piece.column(place).null_count == piece.num_rows:
        return None
    array = piece.column(place)
    if array.type not in _BINARY_TYPES:
        try:
            array = array.cast(pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MisuseError(f"column {name} of type {array.type} cannot be cast to binary: {error}") from error
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        validity=validity if array.null_count else None,
        offsets=offsets,
        data=data if data is not None else b"",
        null_count=array.null_count,
        start=array.offset,
        wide=array.type in _WIDE_TYPES,
    )


def _chosen(path: SendPath, routes: TopicRoutes, piece: pa.RecordBatch, columns: TableColumns) -> Any | None:
    """The partition of each row as int32, -1 to choose by key; None to choose all by key."""
    place = piece.schema.get_field_index(columns.partition)
    if place >= 0:
        try:
            array = piece.column(place).cast(pa.int32()).fill_null(-1)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MisuseError(f"column {columns.partition} cannot be cast to int32 partitions: {error}") from error
        return memoryview(array.buffers()[1]).cast("B")[4 * array.offset : 4 * (array.offset + len(array))]
    partitioner = path.config.partitioner
    if partitioner is None:
        return None
    # A custom partitioner is Python code that takes one key at a time.
    place = piece.schema.get_field_index(columns.key)
    keys = [None] * piece.num_rows if place < 0 else piece.column(place).cast(pa.binary()).to_pylist()
    array = pa.array([routes.choose_by(partitioner, key).partition.partition for key in keys], pa.int32())
    return memoryview(array.buffers()[1]).cast("B")
