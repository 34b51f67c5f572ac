"""A range of one partition as Arrow batches, without a group: for backfills, and for engines that plan offsets.

`RangeReader` is for programs without an event loop, `AsyncRangeReader` for those with one. Both read ahead while the
program works on a batch. The fetching is in `ottla.client.fetch`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, Unpack

from ottla.client.arguments import ArgumentError, mismatch
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.fetch.arrow_chunks import decode_chunk
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.loop_thread import LoopThread
from ottla.client.needed_arrow import pa
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, START, list_offsets
from ottla.client.options import ClientConfig, ClientOptions, configured, option
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import parse_bootstrap

Bound = int | None


class RangeReaderOptions(ClientOptions, total=False):
    """The options of a range reader; `RangeReaderConfig` documents them."""

    fetch_max_wait_ms: int
    fetch_max_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    headers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReaderConfig(ClientConfig):
    """The options of a range reader."""

    fetch_max_wait_ms: int = option(500, least=0)
    """How long a broker waits for records that are not written yet."""
    fetch_max_bytes: int = option(4_194_304, least=1)
    """The most bytes in one response, and so in one Arrow batch before decompression. Some responses are read ahead."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """"read_committed" leaves out records of open and aborted transactions."""
    headers: bool = True
    """Whether the batches have the column `headers`; decoding is faster without."""


class AsyncRangeReader:
    """Iterates once over a range of a partition, as `pyarrow.RecordBatch`es in offset order. An async context manager.

    The range is from `start` to `end`, exclusive. None means the partition's first offset, and its end offset at the
    time when reading begins. An `end` beyond that is waited for. `RangeReaderConfig` has the other options.

        async with AsyncRangeReader("orders", 0, bootstrap_servers="localhost:9092") as reader:
            async for batch in reader:
                ...
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int | None = None,
        end: int | None = None,
        **options: Unpack[RangeReaderOptions],
    ) -> None:
        self.config = configured(RangeReaderConfig, "AsyncRangeReader", options)
        arguments = {"topic": (str, topic), "partition": (int, partition), "start": (Bound, start), "end": (Bound, end)}
        for name, (kind, value) in arguments.items():
            if (problem := mismatch(kind, value, name)) is not None:
                raise ArgumentError(f"{type(self).__name__.removeprefix('Async')}: {problem}")
        if start is not None and start < 0:
            raise MisuseError(f"start must be 0 or more, not {start}; omit it to begin at the first record")
        if start is not None and end is not None and end < start:
            raise MisuseError(f"end={end} is before start={start}")
        self._partition = TopicPartition(topic, partition)
        self._start, self._end = start, end
        self._cluster: Cluster | None = None
        self._chunks: AsyncGenerator[Chunk, None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Raises `AnswerError` for an offset out of range, and `CorruptError` for a corrupt batch when it is next."""
        while (chunk := await self._next_chunk()) is not None:
            for batch in decoded_batches(chunk, headers=self.config.headers):
                yield batch

    async def _next_chunk(self) -> Chunk | None:
        if self._is_closed:
            raise MisuseError(f"the reader of {self._partition} is closed; create another one")
        if self._chunks is None:
            self._chunks = await self._open()
        return await anext(self._chunks, None)

    async def _open(self) -> AsyncGenerator[Chunk, None]:
        config, partition = self.config, self._partition
        bootstrap = config.bootstrap_servers
        cluster = self._cluster = Cluster(
            parse_bootstrap(bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)),
            client_id=config.client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            backoff=config.backoff,
            security=config.security,
        )
        level = ISOLATION_LEVELS[config.isolation_level]
        start, end = self._start, self._end
        if start is None:
            start = (await list_offsets(cluster, {partition: START}))[partition].offset
        if end is None:
            end = (await list_offsets(cluster, {partition: END}, isolation_level=level))[partition].offset
        rules = RangeRules(
            isolation_level=level,
            wait_ms=config.fetch_max_wait_ms,
            fetch_bytes_max=config.fetch_max_bytes,
            partition_bytes_max=config.fetch_max_bytes,
        )
        return RangeFetch(cluster, {partition: OffsetRange(start=start, end=max(end, start))}, rules).chunks()

    async def close(self) -> None:
        """Stops reading and closes all connections. Calling it again does nothing."""
        self._is_closed = True
        chunks, self._chunks = self._chunks, None
        cluster, self._cluster = self._cluster, None
        if chunks is not None:
            await chunks.aclose()
        if cluster is not None:
            await cluster.close()


class RangeReader:
    """`AsyncRangeReader` for programs without an event loop, with the same arguments. A context manager.

    with RangeReader("orders", 0, 1000, 2000, bootstrap_servers="localhost:9092") as reader:
        for batch in reader:
            ...
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int | None = None,
        end: int | None = None,
        **options: Unpack[RangeReaderOptions],
    ) -> None:
        self.config = configured(RangeReaderConfig, "RangeReader", options)
        self._asynchronous = AsyncRangeReader(topic, partition, start, end, **options)
        self._thread = LoopThread("ottla range reader")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """As `AsyncRangeReader` does. Fetching goes on in a thread of its own; decoding is done in the caller's."""
        while (chunk := self._thread.call(self._asynchronous._next_chunk())) is not None:
            yield from decoded_batches(chunk, headers=self.config.headers)

    def close(self) -> None:
        """Stops reading, closes all connections and ends the thread. Calling it again does nothing."""
        if not self._asynchronous._is_closed:
            self._thread.call(self._asynchronous.close())
        self._thread.close()


def decoded_batches(chunk: Chunk, *, headers: bool) -> Iterator[pa.RecordBatch]:
    """The records of a chunk; raises `CorruptError` for a corrupt batch after those before it."""
    decoded = decode_chunk(chunk, headers=headers)
    yield from decoded.batches
    if decoded.error is not None:
        raise decoded.error
