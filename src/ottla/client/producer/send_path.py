"""The send path of both producers: from a record or an encoded batch to the queue of its partition.

A record is intercepted, serialized and checked, gets a partition, and is appended to the accumulator. That happens in
the thread that calls `send`, as a plain function call, unless the record must wait: for the metadata of its topic, or
for room in `buffer_memory`. Waiting always happens in the sender's event loop. `AsyncProducer` awaits it there;
`Producer` has a `thread` that runs the loop, and blocks until it is done (see `_in_loop`). Tables take the same path
batch by batch (`table_sending.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from threading import Lock
from typing import Any, Final, TypeVar

from ottla.client.errors import CannotConnectError, DeadlineError, RetriableAnswerError, answer_error
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import UnknownPartitionInTopicError
from ottla.client.producer.batching.accumulator_state import RECORD_OVERHEAD_BYTES, AccumulatorState
from ottla.client.producer.batching.deliveries import BatchPromise, Delivery
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.errors import BufferFullError, producer_closed
from ottla.client.producer.interceptors import InterceptorChain, ProducerRecord
from ottla.client.producer.options import ProducerConfig
from ottla.client.producer.record_checks import check_target, check_timestamp, checked_bytes, checked_headers
from ottla.client.producer.sender import Sender
from ottla.client.producer.topic_routes import TopicRoutes
from ottla.client.producer.transactions.producer_transactions import ProducerTransactions
from ottla.client.serializers import KeyAndValueSerializers, NotPreparedError, RecordSerializer, serialize_with
from ottla.client.values import Header
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import RetriableError

T = TypeVar("T")

_LOG: Final = logging.getLogger("ottla.client.producer.async_producer")
_ROOM_SHARE: Final = 0.75
"""Waiting sends go on when at most this share of `buffer_memory` is in use: waking them one by one would be slow."""

_Appendable = tuple[PartitionQueue, int, Buffer | None, Buffer | None, Sequence[Header]]
"""A record ready to be appended: its queue, timestamp, key, value and headers."""


class SendPath:
    """One for each producer. `thread` runs the sender's event loop; None if the callers run in that loop."""

    def __init__(
        self,
        sender: Sender,
        accumulator: AccumulatorState,
        lock: Lock,
        config: ProducerConfig,
        transactions: ProducerTransactions | None,
        interceptors: InterceptorChain,
        thread: LoopThread | None,
    ) -> None:
        self.is_closed = False
        self.is_blocking = thread is not None
        self.accumulator = accumulator
        self.config = config
        self.clock = sender.cluster.clock
        self.random = sender.cluster.random
        self._sender = sender
        self._lock = lock
        self._transactions = transactions
        self._interceptors = interceptors
        self._thread = thread
        self._routes = sender.routes
        self._send_one = self._send
        serializers = config.key_serializer, config.value_serializer
        if any(isinstance(each, RecordSerializer) for each in serializers):
            # They serialize before `_send`, which then has none to call.
            self._serializers = KeyAndValueSerializers(*serializers)
            self._send_one = self._send_serialized
            serializers = None, None
        self._serialize_key = serialize_with(serializers[0], "key")
        self._serialize_value = serialize_with(serializers[1], "value")
        self._partitioner = config.partitioner
        self._now_ms = self.clock.now_ms
        self._monotonic = self.clock.monotonic
        self._room_waiters: list[asyncio.Future[None]] = []
        self.send: Final = self._send_intercepted if config.interceptors else self._send_one
        """(topic, value, key, headers, partition, timestamp_ms): appends a record and returns its delivery.

        Returns a coroutine that does both if the record must wait first. Raises what is wrong with the record; nothing
        was appended then. Does not wake the sender: see `wake`.
        """

    # Records

    def _send(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | Coroutine[Any, Any, Delivery]:
        """`send` without interceptors. The usual case is one pass without a branch into another method."""
        if type(topic) is not str or (partition is not None and type(partition) is not int):
            check_target(topic, partition)
        routes = self._routes.get(topic)
        if routes is None or (partition is not None and not 0 <= partition < len(routes.queues)):
            return self._send_when_known(topic, value, key, headers, partition, timestamp_ms)
        if self._serialize_key is not None:
            key = self._serialize_key(topic, key)
        if self._serialize_value is not None:
            value = self._serialize_value(topic, value)
        if key is not None and type(key) is not bytes:
            key = checked_bytes("key", key)
        if value is not None and type(value) is not bytes:
            value = checked_bytes("value", value)
        if headers:
            headers = checked_headers(headers)
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        else:
            check_timestamp(timestamp_ms)
        if partition is not None:
            queue = routes.queues[partition]
        elif self._partitioner is not None:
            queue = routes.choose_by(self._partitioner, None if key is None else bytes(key))
        else:
            queue = routes.choose(key, RECORD_OVERHEAD_BYTES if value is None else RECORD_OVERHEAD_BYTES + len(value))
        record = queue, timestamp_ms, key, value, headers or ()
        delivery = self._append(record)
        if delivery is None:
            return self._in_loop(self._append_when_room(queue, partial(self._append, record)))
        return delivery

    async def _send_when_known(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        await self.wait_topic(topic, partition)
        sent = self._send(topic, value, key, headers, partition, timestamp_ms)
        if isinstance(sent, Delivery):
            self.wake()
            return sent
        return await sent

    def _send_serialized(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | Coroutine[Any, Any, Delivery]:
        """`_send` with serializers that add headers, or that may have to be prepared first."""
        check_target(topic, partition)
        try:
            made, made_key, added = self._serializers.serialize(topic, value, key)
        except NotPreparedError as missing:
            return self._send_prepared(missing, topic, value, key, headers, partition, timestamp_ms)
        if added:
            headers = [*(headers or ()), *added]
        return self._send(topic, made, made_key, headers, partition, timestamp_ms)

    async def _send_prepared(
        self,
        missing: NotPreparedError,
        topic: str,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery:
        # The thread that called the blocking producer may block; an event loop may not.
        if self._thread is None:
            await asyncio.to_thread(missing.prepare)
        else:
            missing.prepare()
        sent = self._send_serialized(topic, value, key, headers, partition, timestamp_ms)
        if isinstance(sent, Delivery):
            self.wake()
            return sent
        return await sent

    def _send_intercepted(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Delivery | Coroutine[Any, Any, Delivery]:
        record = self._interceptors.on_send(
            ProducerRecord(
                topic=topic,
                value=value,
                key=key,
                headers=headers or (),
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )
        try:
            sent = self._send_one(
                record.topic, record.value, record.key, record.headers, record.partition, record.timestamp_ms
            )
        except Exception as error:
            self._interceptors.on_refused(error)
            raise
        if isinstance(sent, Delivery):
            self._interceptors.watch(sent)
            return sent
        return self._watched(sent)

    async def _watched(self, sending: Coroutine[Any, Any, Delivery]) -> Delivery:
        try:
            delivery = await sending
        except Exception as error:
            self._interceptors.on_refused(error)
            raise
        self._interceptors.watch(delivery)
        return delivery

    def _append(self, record: _Appendable) -> Delivery | None:
        """Appends a record to the accumulator; None if there is no room."""
        transactions = self._transactions
        with self._lock:
            if self.is_closed or transactions is not None or self._sender.broken is not None:
                self._check_sendable()
            delivery = self.accumulator.append(*record, self._monotonic())
            if transactions is not None and delivery is not None:
                transactions.touch(record[0])
        return delivery

    # Encoded batches

    async def send_batch(self, queue: PartitionQueue, data: bytearray | memoryview, count: int) -> BatchPromise:
        """Appends an encoded batch, after waiting for room if necessary. Raises `BufferFullError`."""
        promise = self._append_batch(queue, data, count)
        if promise is not None:
            return promise
        return await self._in_loop(
            self._append_when_room(queue, partial(self._append_batch, queue, data, count)),
        )

    # The sender

    def wake(self) -> None:
        """Makes the sender look at what was appended."""
        self.accumulator.wants_wake = False
        if self._thread is None:
            self._sender.wake()
        else:
            self._thread.post(self._sender.wake)

    def _append_batch(self, queue: PartitionQueue, data: bytearray | memoryview, count: int) -> BatchPromise | None:
        """Appends an encoded batch to the accumulator; None if there is no room."""
        with self._lock:
            self._check_sendable()
            promise = self.accumulator.append_batch(queue, data, count, self._monotonic())
            if self._transactions is not None and promise is not None:
                self._transactions.touch(queue)
            return promise

    def _check_sendable(self) -> None:
        """Raises why nothing can be appended now; the caller holds the lock."""
        if self.is_closed:
            raise producer_closed()
        if self._sender.broken is not None:
            raise self._sender.broken.with_traceback(None)
        if self._transactions is not None:
            self._transactions.check_sendable()

    # Waiting

    async def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits a coroutine in the sender's event loop.

        With a `thread` this blocks and never suspends, so `completed` can run the coroutine that awaits it.
        """
        return await work if self._thread is None else self._thread.call(work)

    async def wait_topic(self, topic: str, partition: int | None = None) -> TopicRoutes:
        """The routes of a topic that has this partition; fetches metadata, which may create the topic.

        Retries for `max_block_ms`, then raises what went wrong last.
        """
        check_target(topic, partition)
        if self.is_closed:
            raise producer_closed()
        return await self._in_loop(self._fetch_routes(topic, partition))

    async def _fetch_routes(self, topic: str, partition: int | None) -> TopicRoutes:
        config, cluster = self.config, self._sender.cluster
        deadline = self._monotonic() + config.max_block_ms / 1000
        tries = 0
        problem: RetriableError | None = None
        while True:
            if self.is_closed:
                raise producer_closed()
            routes = self._routes.get(topic)
            if routes is not None and (partition is None or 0 <= partition < len(routes.queues)):
                return routes
            if routes is not None and tries:
                raise UnknownPartitionInTopicError(
                    f"topic {topic} has no partition {partition}; its partitions are 0 to {len(routes.queues) - 1}"
                )
            tries += 1
            found = await self._refresh_topic(topic, deadline)
            if problem is None or not isinstance(found, DeadlineError):
                # A deadline during the last try says less than the problem before it.
                problem = found
            if topic in self._routes:
                continue
            if tries == 1:
                _LOG.warning("%s; retrying for %s ms (max_block_ms)", problem, config.max_block_ms)
            wait_ms = config.backoff.wait_ms(tries, cluster.random)
            if self._monotonic() + wait_ms / 1000 >= deadline:
                waited = f"no metadata for topic {topic} after {config.max_block_ms} ms (max_block_ms)"
                if isinstance(problem, RetriableAnswerError):
                    raise RetriableAnswerError(problem.error_code, f"{waited}: {problem}") from problem
                if isinstance(problem, CannotConnectError):
                    raise CannotConnectError(f"{waited}: {problem} (tried {tries} times)") from problem
                raise DeadlineError(f"{waited}: {problem}") from problem
            await self.clock.sleep(wait_ms / 1000)

    async def _refresh_topic(self, topic: str, deadline: float) -> RetriableError:
        """Fetches a topic's metadata once and returns the problem if there was one. Raises errors that are final."""
        cluster = self._sender.cluster
        left = max(deadline - self._monotonic(), 0.001)
        try:
            async with asyncio.timeout(left):
                await self._sender.fetch_topic(topic)
        except TimeoutError:
            return DeadlineError(f"no response from {', '.join(map(str, cluster.bootstrap))}")
        except RetriableError as error:
            return error
        code = cluster.view.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        refusal = answer_error(code, f"topic {topic}")
        if not isinstance(refusal, RetriableAnswerError):
            raise refusal
        return refusal

    async def _append_when_room(self, queue: PartitionQueue, append: Callable[[], T | None]) -> T:
        """Calls `append` until it has room. Raises `BufferFullError` after `max_block_ms`."""
        started, counts, config = self._monotonic(), self._sender.counts, self.config
        is_waiting = False
        try:
            async with asyncio.timeout(config.max_block_ms / 1000):
                while (appended := append()) is None:
                    is_waiting = True
                    await self._next_room()
        except TimeoutError:
            raise BufferFullError(
                f"no room for a record to {queue.partition} after {config.max_block_ms} ms (max_block_ms):"
                f" {self.accumulator.used_bytes} of {config.buffer_memory} bytes (buffer_memory) wait to be sent;"
                " send more slowly, or increase buffer_memory or max_block_ms"
            ) from None
        finally:
            if is_waiting:
                counts.buffer_wait_ms += (self._monotonic() - started) * 1000
        self._sender.wake()
        return appended

    async def _next_room(self) -> None:
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._room_waiters.append(room)
            self.accumulator.is_starved = True
        self._sender.counts.buffer_waits += 1
        self._sender.wake()
        await room

    def on_turn(self) -> None:
        """Wakes sends that wait for room, if there is enough; called in each turn of the sender."""
        if self._room_waiters:
            with self._lock:
                has_room = self.accumulator.used_bytes <= _ROOM_SHARE * self.config.buffer_memory
                if has_room:
                    self.accumulator.is_starved = False
            if has_room:
                self._wake_waiters()

    def close(self) -> None:
        """Refuses every later send, and those that wait; in the sender's loop."""
        with self._lock:
            self.is_closed = True
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        with self._lock:
            waiters, self._room_waiters = self._room_waiters, []
        for room in waiters:
            if not room.done():
                room.set_result(None)


def completed(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine of a `SendPath` that has a thread: it blocks where others suspend."""
    try:
        work.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    work.close()
    raise RuntimeError("a blocking send was suspended")
