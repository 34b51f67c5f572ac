"""A range of one partition as Arrow batches, without a group: for backfills, and for engines that plan offsets alone.

`RangeReader` is for programs without an event loop, `AsyncRangeReader` for those with one. Both read ahead while the
program works on a batch. Fetching is `reader.py`'s, decoding `arrow_consumer.py`'s; a consumer that follows topics
and commits is in `consumer.py`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self, Unpack

from ottla.client.consumer.arrow import decode_chunk
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.consumer.reader import Chunk, OffsetRange, Reader
from ottla.client.loop_thread import LoopThread
from ottla.client.needed_arrow import pa
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, START, list_offsets
from ottla.client.options import ClientConfig, ClientOptions, configured, option
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import parse_bootstrap


class RangeReaderOptions(ClientOptions, total=False):
    """What a range reader may be told; see `RangeReaderConfig`."""

    fetch_max_wait_ms: int
    fetch_max_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    headers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReaderConfig(ClientConfig):
    """What a range reader was told."""

    fetch_max_wait_ms: int = option(500, least=0)
    """How long a broker waits for records that are not there yet."""
    fetch_max_bytes: int = option(4_194_304, least=1)
    """About the most in one answer, and so in one Arrow batch before decompression; some are read ahead."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """Whether records of open and aborted transactions are left out."""
    headers: bool = True
    """Whether the batches have the column `headers`; without, decoding is faster."""


class AsyncRangeReader:
    """Iterates over a range once, as `pyarrow.RecordBatch`es in order of offsets. An async context manager.

    The range is from `start` to `end`, exclusive; None stands for the partition's first offset, and for its end as it
    is when reading begins. An end beyond that is waited for. `RangeReaderOptions` has the other arguments.

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
        if start is not None and start < 0:
            raise MisuseError(f"start={start} is no offset; leave it out to begin at the first record")
        if start is not None and end is not None and end < start:
            raise MisuseError(f"the range from {start} to {end} ends before it begins")
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
        """Raises `AnswerError` for an offset that is gone, and for a damaged batch after all good ones before it."""
        while (chunk := await self._next_chunk()) is not None:
            for batch in decoded_batches(chunk, headers=self.config.headers):
                yield batch

    async def _next_chunk(self) -> Chunk | None:
        if self._is_closed:
            raise MisuseError(f"the reader of {self._partition} is closed; make another one")
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
        )
        level = ISOLATION_LEVELS[config.isolation_level]
        start, end = self._start, self._end
        if start is None:
            start = (await list_offsets(cluster, {partition: START}))[partition].offset
        if end is None:
            end = (await list_offsets(cluster, {partition: END}, isolation_level=level))[partition].offset
        reader = Reader(
            cluster,
            {partition: OffsetRange(start=start, end=max(end, start))},
            isolation_level=level,
            wait_ms=config.fetch_max_wait_ms,
            fetch_bytes_max=config.fetch_max_bytes,
            partition_bytes_max=config.fetch_max_bytes,
        )
        return reader.chunks()

    async def close(self) -> None:
        """Ends reading ahead and closes all connections. Closing twice is harmless."""
        self._is_closed = True
        chunks, self._chunks = self._chunks, None
        cluster, self._cluster = self._cluster, None
        if chunks is not None:
            await chunks.aclose()
        if cluster is not None:
            await cluster.close()


class RangeReader:
    """The same for programs without an event loop, with the same arguments. A context manager.

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
        """As with `AsyncRangeReader`; fetching goes on in a thread of its own, decoding is done in the caller's."""
        while (chunk := self._thread.call(self._asynchronous._next_chunk())) is not None:
            yield from decoded_batches(chunk, headers=self.config.headers)

    def close(self) -> None:
        """Ends reading ahead, closes all connections and ends the thread. Closing twice is harmless."""
        if not self._asynchronous._is_closed:
            self._thread.call(self._asynchronous.close())
        self._thread.close()


def decoded_batches(chunk: Chunk, *, headers: bool) -> Iterator[pa.RecordBatch]:
    """A chunk's records; raises what is wrong with a damaged batch after all good ones before it."""
    decoded = decode_chunk(chunk, headers=headers)
    yield from decoded.batches
    if decoded.error is not None:
        raise decoded.error
