"""Sends whole batches to partitions: in order within each, side by side across them, in bounded memory.

Covers delivery only, at least once: a batch is tried again until it is in the log or its time is over, so a lost answer
can make it appear twice. One batch of a partition is under way at a time, so trying again never changes the order.
Collecting records into batches is the caller's, with `ottla.records.builder` or `ottla.records.columns_encode`.
"""

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.client.errors import NotSentError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.buffer import Buffer
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.produce_frames import VERSION_MAX, Produced, produce_body, read_produce_answer

ACKS_ALL: Final = -1
ACKS_NONE: Final = 0
BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
_ANSWER_MARGIN_MS: Final = 5_000
"""The broker is given the request's timeout; the connection waits this much longer for it to say so."""


class _Queued(NamedTuple):
    batch: Buffer
    produced: "asyncio.Future[Produced]"


class Sender:
    """Batches go in by `send`; `flush` says that all are in the log. An async context manager that flushes at its end.

    `acks` is -1 (all in-sync replicas), 1 (the leader) or 0 (nobody; then nothing is known about what was sent).
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = ACKS_ALL,
        timeout_ms: int = 30_000,
        buffer_bytes_max: int = BUFFER_BYTES_MAX,
    ) -> None:
        self._cluster = cluster
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._buffer_bytes_max = buffer_bytes_max
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._queues: dict[TopicPartition, deque[_Queued]] = {}
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self._failure: OttlaError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()
        await self.close()

    async def send(self, partition: TopicPartition, batch: Buffer) -> asyncio.Future[Produced]:
        """Queues a batch, once there is room for it; the future tells its base offset, or raises what went wrong.

        After a failure nothing more is sent, or the order would be lost: what is queued gets `NotSentError`, and every
        further call raises the failure.
        """
        while self._failure is None and self._buffered_bytes > 0 and self._is_full(len(batch)):
            self._room.clear()
            await self._room.wait()
        if self._failure is not None:
            raise self._failure
        produced: asyncio.Future[Produced] = asyncio.get_running_loop().create_future()
        self._buffered_bytes += len(batch)
        self._queues.setdefault(partition, deque()).append(_Queued(batch, produced))
        if partition not in self._tasks:
            self._tasks[partition] = asyncio.create_task(self._drain(partition))
        return produced

    async def flush(self) -> None:
        """Returns once every batch is answered; raises the first failure."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Gives up what is still queued; call `flush` before, to give up nothing."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self._fail(MisuseError("the sender is closed"))

    def _is_full(self, size: int) -> bool:
        return self._buffered_bytes + size > self._buffer_bytes_max

    async def _drain(self, partition: TopicPartition) -> None:
        """Sends one partition's batches, one after the other, until none is left."""
        queue = self._queues[partition]
        try:
            while queue:
                queued = queue.popleft()
                try:
                    produced = await self._deliver(partition, queued.batch)
                except OttlaError as error:
                    _refuse(queued, error)
                    self._fail(error)
                    return
                finally:
                    self._buffered_bytes -= len(queued.batch)
                    self._room.set()
                if not queued.produced.done():
                    queued.produced.set_result(produced)
        finally:
            self._tasks.pop(partition, None)

    async def _deliver(self, partition: TopicPartition, batch: Buffer) -> Produced:
        body = produce_body([(partition, batch)], acks=self._acks, timeout_ms=self._timeout_ms)

        async def send_once() -> Produced:
            connection = await self._cluster.broker_connection(await self._cluster.leader_of(partition))
            version = connection.version_for(ApiKey.PRODUCE, VERSION_MAX)
            if self._acks == ACKS_NONE:
                connection.send_unanswered(ApiKey.PRODUCE, version, body)
                await connection.wait_sent()
                return Produced(partition, 0, -1, -1, None)
            timeout_ms = self._timeout_ms + _ANSWER_MARGIN_MS
            frame = await connection.request_bytes(ApiKey.PRODUCE, version, body, timeout_ms=timeout_ms)
            (produced,) = read_produce_answer(frame)
            if produced.error_code:
                what = f"writing {len(batch)} bytes to {partition}"
                raise answer_error(produced.error_code, what, produced.error_message)
            return produced

        return await self._cluster.retry(send_once, timeout_ms=self._timeout_ms)

    def _fail(self, error: OttlaError) -> None:
        """Remembers the first failure and gives up what is queued; what is under way comes to its own end."""
        if self._failure is None:
            self._failure = error
        self._room.set()
        for queue in self._queues.values():
            for queued in queue:
                self._buffered_bytes -= len(queued.batch)
                _refuse(queued, NotSentError(f"not sent, since a batch before it failed: {self._failure}"))
            queue.clear()


def _refuse(queued: _Queued, error: OttlaError) -> None:
    if not queued.produced.done():
        queued.produced.set_exception(error)
        # One who does not look at the future is told by `flush`.
        queued.produced.exception()
