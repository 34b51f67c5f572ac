"""Tables to batches and into a producer's queues: the columnar way of sending, with no Python object per row.

A table goes piece by piece, so that its size does not matter. The rows of each piece are numbered by partition
(`row_split.pyx`), encoded from where they lie (`ottla.records.arrow`) and appended as whole batches, which the producer
numbers, sends and sends again like any others. Serializers and interceptors have no part in it: rows are never
objects. The way back is `arrow_consumer.py`.
"""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.client.loop_thread import LoopThread
from ottla.client.needed_arrow import pa
from ottla.client.producer.core import ProducerCore
from ottla.client.producer.deliveries import BatchPromise
from ottla.client.producer.partition_queue_state import PartitionQueue
from ottla.client.producer.record_fields import shown
from ottla.client.producer.row_split import split_rows
from ottla.client.producer.table_delivery import AsyncTableDelivery, TableDelivery
from ottla.client.producer.topic_routes import TopicRoutes
from ottla.model.errors import MisuseError
from ottla.records.arrow import encode_arrow
from ottla.records.layout import Codec
from ottla.records.packed import BinaryColumn

Rows: TypeAlias = "pa.Table | pa.RecordBatch | pa.RecordBatchReader"
"""What can be sent: rows that are there, or that come in pieces."""

_PIECE_BYTES: Final = 8 * 1024 * 1024
"""About how much is encoded at once."""
_ROW_OVERHEAD_BYTES: Final = 8
_BINARY_TYPES: Final = frozenset({pa.binary(), pa.string(), pa.large_binary(), pa.large_string()})
_WIDE_TYPES: Final = frozenset({pa.large_binary(), pa.large_string()})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumns:
    """Which columns are what. A column of the default name may be missing; one that was named must be there."""

    key: str = "key"
    value: str = "value"
    timestamp: str = "timestamp"
    headers: str = "headers"
    partition: int | str = "partition"
    """A partition for all rows, or a column of partitions; null and -1 in it leave the choice to the key."""

    def names_in(self, schema: pa.Schema) -> list[str]:
        """Those that a schema has. Raises `MisuseError` if it lacks one that was named, or both key and value."""
        found = []
        for role in ("key", "value", "timestamp", "headers", "partition"):
            name = getattr(self, role)
            if role == "partition" and isinstance(name, int):
                continue
            if not isinstance(name, str):
                kinds = "a column's name or a partition's number" if role == "partition" else "a column's name"
                raise MisuseError(f"{role} is {shown(name)}, and must be {kinds}")
            places = schema.get_all_field_indices(name)
            if len(places) > 1:
                raise MisuseError(f"the table has {len(places)} columns {name!r}; rename all but one")
            if places:
                found.append(name)
            elif name != role:
                raise MisuseError(f"the table has no column {name!r} for {role}; it has {', '.join(schema.names)}")
        if self.key not in found and self.value not in found:
            raise MisuseError(
                f"the table has neither a column {self.key!r} nor {self.value!r}; it has {', '.join(schema.names)}:"
                " say which is which, as in value='payload'"
            )
        return found


class EncodedBatch(NamedTuple):
    """A batch that only needs room."""

    queue: PartitionQueue
    data: memoryview
    row_count: int


async def send_table(core: ProducerCore, topic: str, rows: Rows, columns: TableColumns) -> AsyncTableDelivery:
    """What `AsyncProducer.send_table` promises."""
    pieces = _pieces(rows, columns)
    routes = await core.wait_topic(topic, columns.partition if isinstance(columns.partition, int) else None)
    promises: list[BatchPromise] = []
    while (piece := await _next(pieces, is_slow=isinstance(rows, pa.RecordBatchReader))) is not None:
        for batch in encoded_batches(core, routes, piece, columns):
            promise = core.append_batch(*batch)
            promises.append(promise if promise is not None else await _wait_room(core, batch))
        core.loop.wake()
        # A program that only sends would never let the sender run.
        await asyncio.sleep(0)
    return AsyncTableDelivery(promises, core.cluster.clock.monotonic)


async def _next(pieces: Iterator[pa.RecordBatch], *, is_slow: bool) -> pa.RecordBatch | None:
    """The next piece; one that may have to be read from somewhere is waited for in another thread."""
    return await asyncio.to_thread(next, pieces, None) if is_slow else next(pieces, None)


async def _wait_room(core: ProducerCore, batch: EncodedBatch) -> BatchPromise:
    monotonic = core.cluster.clock.monotonic
    started = monotonic()
    try:
        async with asyncio.timeout(core.config.max_block_ms / 1000):
            while True:
                room = asyncio.Event()
                core.add_room_waiter(room.set)
                core.loop.wake()
                await room.wait()
                promise = core.append_batch(*batch)
                if promise is not None:
                    core.loop.wake()
                    return promise
    except TimeoutError:
        raise core.no_room(batch.queue, monotonic() - started) from None


def send_table_blocking(
    core: ProducerCore, thread: LoopThread, topic: str, rows: Rows, columns: TableColumns
) -> TableDelivery:
    """What `Producer.send_table` promises; all but waiting happens in the caller's thread."""
    if core.is_closed:
        raise core.closed_error()
    pieces = _pieces(rows, columns)
    routes = thread.call(core.wait_topic(topic, columns.partition if isinstance(columns.partition, int) else None))
    promises: list[BatchPromise] = []
    for piece in pieces:
        for batch in encoded_batches(core, routes, piece, columns):
            promise = core.append_batch(*batch)
            promises.append(promise if promise is not None else _wait_room_blocking(core, thread, batch))
        thread.post(core.loop.wake)
    return TableDelivery(promises, core.cluster.clock.monotonic)


def _wait_room_blocking(core: ProducerCore, thread: LoopThread, batch: EncodedBatch) -> BatchPromise:
    monotonic = core.cluster.clock.monotonic
    started = monotonic()
    while True:
        room = threading.Event()
        core.add_room_waiter(room.set)
        thread.post(core.loop.wake)
        if not room.wait(max(started + core.config.max_block_ms / 1000 - monotonic(), 0)):
            raise core.no_room(batch.queue, monotonic() - started)
        promise = core.append_batch(*batch)
        if promise is not None:
            core.loop.counts.buffer_wait_ms += (monotonic() - started) * 1000
            thread.post(core.loop.wake)
            return promise


def _pieces(rows: Rows, columns: TableColumns) -> Iterator[pa.RecordBatch]:
    """The columns that count, in pieces of bounded size. Raises `MisuseError` at once for what is not a table."""
    if not isinstance(rows, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        raise MisuseError(
            f"a {type(rows).__name__} is not a table; give a pyarrow Table, RecordBatch or RecordBatchReader"
        )
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
    """About what a row takes."""
    size: int = batch.nbytes
    count: int = batch.num_rows
    return size // max(count, 1) + _ROW_OVERHEAD_BYTES


def encoded_batches(
    core: ProducerCore, routes: TopicRoutes, piece: pa.RecordBatch, columns: TableColumns
) -> Iterator[EncodedBatch]:
    """A piece's rows as batches for their partitions, each as large as a request may be.

    Their rows are all there, so `batch_size`, which is for records that come one by one, does not apply.
    """
    config = core.config
    bytes_max = min(config.max_request_size, config.buffer_memory)
    if config.codec is not Codec.NONE:
        # What cannot be compressed grows a little.
        bytes_max = max(bytes_max - bytes_max // 64 - 1024, 1)
    encode = partial(
        encode_arrow,
        key=columns.key,
        value=columns.value,
        timestamp=columns.timestamp,
        headers=columns.headers,
        default_timestamp=core.cluster.clock.now_ms(),
        batch_bytes_max=bytes_max,
        codec=config.codec,
        level=config.compression_level,
        transactional=config.transactional_id is not None,
    )
    for index, rows, order in by_partition(core, routes, piece, columns, bytes_max):
        queue = routes.queues[index]
        for data in encode(rows, order=order):
            # Brokers number records themselves and take only batches that begin at 0; the checksum leaves it out.
            data[:8] = bytes(8)
            yield EncodedBatch(queue, data, int.from_bytes(data[_COUNT_AT : _COUNT_AT + 4], "big"))


_COUNT_AT: Final = 57
"""Where a batch says how many records it has."""


def by_partition(
    core: ProducerCore, routes: TopicRoutes, piece: pa.RecordBatch, columns: TableColumns, run_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch, memoryview | None]]:
    """The rows of each partition that gets any, in their order: all of a piece, or those of the numbers given.

    Rows without a key go to partitions in turn.
    """
    if isinstance(columns.partition, int):
        yield columns.partition, piece, None
        return
    count = len(routes.queues)
    chosen = _chosen(core, routes, piece, columns)
    if count == 1 and chosen is None:
        yield 0, piece, None
        return
    run = max(run_bytes // _row_bytes(piece), 1)
    keyless = routes.available or routes.all
    first = core.cluster.random.randrange(len(keyless))
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
    """The keys as they will be written; None if there are none."""
    place = piece.schema.get_field_index(name)
    if place < 0 or piece.column(place).null_count == piece.num_rows:
        return None
    array = piece.column(place)
    if array.type not in _BINARY_TYPES:
        try:
            array = array.cast(pa.binary())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MisuseError(f"column {name} of type {array.type} cannot be sent as binary: {error}") from error
    validity, offsets, data = array.buffers()
    return BinaryColumn(
        validity=validity if array.null_count else None,
        offsets=offsets,
        data=data if data is not None else b"",
        null_count=array.null_count,
        start=array.offset,
        wide=array.type in _WIDE_TYPES,
    )


def _chosen(core: ProducerCore, routes: TopicRoutes, piece: pa.RecordBatch, columns: TableColumns) -> Any | None:
    """The partition of each row as int32, -1 where its key decides; None if it does for all."""
    place = piece.schema.get_field_index(columns.partition)
    if place >= 0:
        try:
            array = piece.column(place).cast(pa.int32()).fill_null(-1)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise MisuseError(f"column {columns.partition} holds no partitions: {error}") from error
        return memoryview(array.buffers()[1]).cast("B")[4 * array.offset : 4 * (array.offset + len(array))]
    partitioner = core.config.partitioner
    if partitioner is None:
        return None
    # Somebody's own choice is somebody's own code: it must see each key.
    place = piece.schema.get_field_index(columns.key)
    keys = [None] * piece.num_rows if place < 0 else piece.column(place).cast(pa.binary()).to_pylist()
    array = pa.array([routes.choose_by(partitioner, key).partition.partition for key in keys], pa.int32())
    return memoryview(array.buffers()[1]).cast("B")
