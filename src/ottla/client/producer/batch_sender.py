"""Sends encoded batches and stops at the first failure; for `ottla produce`.

Delivery is at least once and in order within a partition: one batch of a partition is in flight at a time, and it is
retried until it is written or its time is over. After a failure nothing more is sent, so that what is in a topic is
what came before the failure. A producer's `SendPath` sends on instead. Callers encode batches themselves, with
`ottla.records.builder` or `ottla.records.columns_encode`.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.client.errors import NotSentError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.producer.produce_request import read_produced, send_produce
from ottla.client.stop_task import stop_task
from ottla.model.buffer import Buffer
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.produce_frames import Produced

ACKS_ALL: Final = -1
BUFFER_BYTES_MAX: Final = 32 * 1024 * 1024
_ANSWER_MARGIN_MS: Final = 5_000
"""How long to wait for the response after the broker's own timeout."""


class _Queued(NamedTuple):
    batch: Buffer
    produced: "asyncio.Future[Produced]"


class BatchSender:
    """An async context manager that flushes at its end. Memory is bounded by `buffer_bytes_max`.

    `acks` is -1 (all in-sync replicas), 1 (the leader) or 0 (none; offsets are unknown then).
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
        """Queues a batch, after waiting for room. The future is its result, or raises its error.

        After a failure nothing more is sent: queued batches fail with `NotSentError`, and every later call raises the
        failure.
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
        """Waits until every batch is written. Raises the first failure."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Drops batches that are still queued; call `flush` before to send them."""
        tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            await stop_task(task)
        self._fail(MisuseError("the sender is closed"))

    def _is_full(self, size: int) -> bool:
        return self._buffered_bytes + size > self._buffer_bytes_max

    async def _drain(self, partition: TopicPartition) -> None:
        """Sends the batches of one partition one after the other, until none is left."""
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
        async def send_once() -> Produced:
            connection = await self._cluster.broker_connection(await self._cluster.leader_of(partition))
            frame = await send_produce(
                connection,
                [(partition, batch)],
                acks=self._acks,
                timeout_ms=self._timeout_ms,
                answer_timeout_ms=self._timeout_ms + _ANSWER_MARGIN_MS,
            )
            produced = read_produced(frame, [partition])[partition]
            if produced.error_code:
                what = f"writing {len(batch)} bytes to {partition}"
                raise answer_error(produced.error_code, what, produced.error_message)
            return produced

        return await self._cluster.retry(send_once, timeout_ms=self._timeout_ms)

    def _fail(self, error: OttlaError) -> None:
        """Keeps the first failure and drops queued batches; those in flight complete."""
        if self._failure is None:
            self._failure = error
        self._room.set()
        for queue in self._queues.values():
            for queued in queue:
                self._buffered_bytes -= len(queued.batch)
                _refuse(queued, NotSentError(f"not sent because an earlier batch failed: {self._failure}"))
            queue.clear()


def _refuse(queued: _Queued, error: OttlaError) -> None:
    if not queued.produced.done():
        queued.produced.set_exception(error)
        # Reading the error keeps asyncio from logging it: `flush` raises it too.
        queued.produced.exception()
