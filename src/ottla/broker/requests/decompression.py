"""Decompresses and validates the batches of Produce requests before they are appended, so that no client waits long.

A few kilobytes may decompress to a hundred megabytes. What a request needs is done at once while it is little; in a
thread, batch after batch, if it is more; in the next round of the event loop if the requests of this round have had
enough. Until then the request waits in the buffer of its connection, and those behind it, too.

Topics that recompress need it for uncompressed batches, too. Topics with a gate (`ottla.queues.gate`) bound what they
look into, since a gate runs on the event loop: here is counted what their batches decompress to.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, ParamSpec, TypeVar

from ottla.env.ports import Clock, Disk
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DecompressionLimitError, OttlaError, RetriableError
from ottla.model.ids import QUEUE_PRODUCER_BIT
from ottla.protocol.scan import ProduceRequest
from ottla.queues.gate import admitted_bytes_max, read_admitted
from ottla.records.batch import Batch
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.replication.partition import Partition
from ottla.storage.batch_validation import is_malformed, validate_ahead
from ottla.transport.connection import Connection

P = ParamSpec("P")
T = TypeVar("T")

ROUND_BYTES_MAX: Final = 4 * 1024 * 1024
"""Decompressed in one round of the event loop, before other requests are served: some milliseconds."""
LITTLE_BYTES_MAX: Final = 256 * 1024
"""A batch that cannot decompress to more is not looked into ahead."""
INLINE_BYTES_MAX: Final = 2 * 1024 * 1024
"""Decompressed for one request on the event loop."""
REQUEST_BYTES_MAX: Final = DECOMPRESSED_BYTES_MAX
"""What the batches of one request may decompress to in all, or to `ORDINARY_RATIO_MAX` times their size."""
ORDINARY_RATIO_MAX: Final = 32
"""What a request decompresses to beyond this is charged to the produce quota, as if it had been sent."""
_COSTLY: Final = 8
"""How much longer a batch takes, about, that is compressed again or whose headers a gate looks at."""


class RequestTooLargeError(RetriableError):
    """The batches of one request decompress to too much in all; this one was not written. Sent again, with fewer
    others, it will be."""

    code = ErrorCode.REQUEST_TIMED_OUT


Part = tuple[int, Partition, Batch]
"""A batch that must be looked into before it is appended, with its place in the request and its partition."""


class Decompressed(NamedTuple):
    """What became of the parts of one request."""

    batches: dict[int, Batch | OttlaError]
    """The batches to append, or why one is refused, by their place in the request."""
    bytes: int
    compressed_bytes: int

    @property
    def charged_bytes(self) -> int:
        """What is charged to the produce quota beside the size of the request."""
        return max(0, self.bytes - ORDINARY_RATIO_MAX * self.compressed_bytes)


NOTHING: Final = Decompressed({}, 0, 0)


class Decompression:
    """Looks into the batches of all clients."""

    def __init__(self, clock: Clock, disk: Disk) -> None:
        self._clock = clock
        self._disk = disk
        self._round_bytes = 0
        self._little_bytes = 0
        """What the batches may decompress to that are validated when they are appended."""
        self._waiting: deque[Callable[[], None]] = deque()
        """Called in the next round, in order."""
        self._is_round_due = False
        self._thread = asyncio.Lock()
        """One batch is decompressed at a time, whose memory may be large."""
        self._done: dict[ProduceRequest, Decompressed] = {}
        """What was done in the thread, while the request is offered again."""
        self._tasks: set[asyncio.Task[None]] = set()

    def decompress(self, request: ProduceRequest, parts: Sequence[Part], connection: Connection) -> Decompressed | None:
        """The batches to append. None if the request must be offered again, after `connection.resume` is called."""
        done = self._done.pop(request, None) if self._done else None
        if done is None:
            if self._round_bytes >= ROUND_BYTES_MAX:
                self._wait(connection.resume)
                return None
            done = self._decompress_inline(parts)
        if done is None:
            task = asyncio.get_running_loop().create_task(self._decompress_in_thread(request, parts, connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return None
        return done if len(done.batches) == len(parts) else self._read_gated(parts, done)

    # On the event loop

    @property
    def has_room(self) -> bool:
        """Whether more may be decompressed in this round of the event loop."""
        return self._round_bytes < ROUND_BYTES_MAX

    def is_little(self, partition: Partition, batch: Batch) -> bool:
        """Whether the batch can be decompressed when it is appended, whatever it has; counts what it may have.

        Batches that are appended together are validated faster together.
        """
        if partition.gate is not None or partition.log.config.compression is not None:
            return False
        most = batch.decompressed_bytes_max
        if most > LITTLE_BYTES_MAX or self._little_bytes > ROUND_BYTES_MAX:
            return False
        self._little_bytes += most
        if self._little_bytes > ROUND_BYTES_MAX // 2:
            self._begin_round_soon()
        return True

    def wait_room(self) -> "asyncio.Future[None]":
        """Done when the next round has begun."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if not begun.done():
                begun.set_result(None)

        self._wait(begin)
        return begun

    def use(self, cost_bytes: int) -> None:
        """Counts what was decompressed in this round. While that is little, the next round goes on counting."""
        self._round_bytes += cost_bytes
        if self._round_bytes > ROUND_BYTES_MAX // 2:
            self._begin_round_soon()

    def _wait(self, resume: Callable[[], None]) -> None:
        self._waiting.append(resume)
        self._begin_round_soon()

    def _begin_round_soon(self) -> None:
        if not self._is_round_due:
            self._is_round_due = True
            asyncio.get_running_loop().call_soon(self._begin_round)

    def _begin_round(self) -> None:
        self._is_round_due = False
        self._round_bytes = self._little_bytes = 0
        for _ in range(len(self._waiting)):
            if not self.has_room:
                break
            self._waiting.popleft()()
        if self._waiting:
            self._begin_round_soon()

    def _decompress_inline(self, parts: Sequence[Part]) -> Decompressed | None:
        """None if it would take too long."""
        batches: dict[int, Batch | OttlaError] = {}
        left, now = INLINE_BYTES_MAX, self._clock.now_ms()
        size_bytes = compressed_bytes = 0
        try:
            for at, partition, batch in parts:
                compressed_bytes += batch.size_bytes
                if partition.gate is not None and is_gated(partition, batch):
                    continue
                config = partition.log.config
                cost = 1 if config.compression is None or config.compression == batch.codec else _COSTLY
                if cost * batch.size_bytes > left:
                    left = 0
                    return None
                batches[at], size = validate_ahead(batch, config, now, left // cost)
                size_bytes += size
                left -= cost * size
        except DecompressionLimitError:
            left = 0
            return None
        finally:
            self.use(INLINE_BYTES_MAX - left)
        return Decompressed(batches, size_bytes, compressed_bytes)

    def _read_gated(self, parts: Sequence[Part], done: Decompressed) -> Decompressed:
        """Decompresses the batches that a gate looks into."""
        bytes_max, size_bytes = admitted_bytes_max(done.compressed_bytes), 0
        for at, partition, batch in parts:
            if at in done.batches:
                continue
            if size_bytes < bytes_max:
                size_bytes += self.read_gated(partition, batch)
            else:
                done.batches[at] = _too_large(bytes_max)
        return done._replace(bytes=done.bytes + size_bytes)

    def read_gated(self, partition: Partition, batch: Batch) -> int:
        """Decompresses a batch for the gate of its partition; returns how many bytes that took."""
        if not batch.codec or not is_gated(partition, batch) or is_malformed(batch):
            return 0
        try:
            batch.unpacked = read_admitted(batch)
            size = len(batch.unpacked)
        except OttlaError:
            # The gate says why, if it looks into the batch.
            size = admitted_bytes_max(batch.size_bytes)
        self.use(_COSTLY * size)
        return size

    # In a thread

    async def _decompress_in_thread(
        self, request: ProduceRequest, parts: Sequence[Part], connection: Connection
    ) -> None:
        compressed_bytes = sum(batch.size_bytes for _, _, batch in parts)
        bytes_max, size_bytes = max(REQUEST_BYTES_MAX, ORDINARY_RATIO_MAX * compressed_bytes), 0
        batches: dict[int, Batch | OttlaError] = {}
        for at, partition, received in parts:
            if is_gated(partition, received):
                continue
            if size_bytes >= bytes_max:
                batches[at] = _too_large(bytes_max)
                continue
            async with self._thread:
                if connection.is_closed():
                    return
                # The buffer may get other content if the connection is closed meanwhile.
                batch, config, now = received.copied(), partition.log.config, self._clock.now_ms()
                left = min(bytes_max - size_bytes, DECOMPRESSED_BYTES_MAX)
                try:
                    batches[at], size = await self._disk.in_background(validate_ahead, batch, config, now, left)
                except DecompressionLimitError:
                    batches[at], size = _too_large(bytes_max), left
            size_bytes += size
        self._done[request] = Decompressed(batches, size_bytes, compressed_bytes)
        try:
            connection.resume()
        finally:
            # Not taken by a connection that is muted: it is done again when the throttle time is over.
            self._done.pop(request, None)

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function in a thread that decompresses a batch, one at a time."""
        async with self._thread:
            return await self._disk.in_background(function, *args, **kwargs)

    async def close(self) -> None:
        """Cancels what is still to be decompressed."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def is_gated(partition: Partition, batch: Batch) -> bool:
    """Whether the partition's gate looks into the batch. What queues deliver was accepted once."""
    return partition.gate is not None and batch.producer_id < QUEUE_PRODUCER_BIT


def _too_large(bytes_max: int) -> RequestTooLargeError:
    return RequestTooLargeError(
        f"the batches of this request decompress to more than {bytes_max} bytes in all; send fewer in one request"
    )
