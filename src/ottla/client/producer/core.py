"""What both producers are: from a record to its queue, waiting for room, flushing, transactions, closing.

The coroutines run in the sender's event loop. `prepare` and `append` may run in any thread: they are the whole of a
`send` that need not wait. `producer.py` and `blocking_producer.py` are the two faces.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any, Final

from ottla.client.errors import CannotConnectError, DeadlineError, RetriableAnswerError, answer_error
from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.producer.accumulator_state import RECORD_OVERHEAD_BYTES, AccumulatorState, Finished
from ottla.client.producer.deliveries import BatchPromise, Delivery
from ottla.client.producer.errors import BufferFullError, ProducerClosedError
from ottla.client.producer.interceptors import InterceptorChain, ProducerRecord
from ottla.client.producer.options import ProducerConfig
from ottla.client.producer.partition_queue_state import PartitionQueue
from ottla.client.producer.record_fields import check_target, check_timestamp, checked_bytes, checked_headers
from ottla.client.producer.send_loop import ProduceLoop
from ottla.client.producer.topic_routes import TopicRoutes
from ottla.client.producer.transactions import ProducerTransactions
from ottla.client.serializers import serialize_with
from ottla.client.values import Header
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError, RetriableError
from ottla.transport.addresses import parse_bootstrap

_LOG: Final = logging.getLogger("ottla.client.producer.async_producer")
_ROOM_SHARE: Final = 0.75
"""Those who wait for memory go on when no more than this is in use: a record at a time would be slow for all."""

Prepared = tuple[PartitionQueue, int, Buffer | None, Buffer | None, Sequence[Header]]
"""A record that only needs room: its queue, timestamp, key, value and headers."""


class ProducerCore:
    """See the module's docstring."""

    def __init__(
        self, config: ProducerConfig, *, is_async: bool, home: int = 0, cluster: Cluster | None = None
    ) -> None:
        bootstrap = config.bootstrap_servers
        self.config = config
        self.cluster = cluster or Cluster(
            parse_bootstrap(bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)),
            client_id=config.client_id,
            connect_timeout_ms=config.socket_connection_setup_timeout_ms,
            request_timeout_ms=config.request_timeout_ms,
            backoff=config.backoff,
        )
        self.lock = Lock()
        self.accumulator = AccumulatorState(config.limits(is_async=is_async), self.cluster.random, home=home)
        self.loop = ProduceLoop(
            self.cluster,
            self.accumulator,
            self.lock,
            config,
            on_finished=self._on_finished,
            on_turn=self._on_turn,
        )
        self.routes = self.loop.routes
        self.interceptors = InterceptorChain(config.interceptors)
        self.has_interceptors = bool(config.interceptors)
        self.transactions: ProducerTransactions | None = None
        if config.transactional_id is not None:
            self.transactions = ProducerTransactions(
                config.transactional_id, self.accumulator, self.lock, self.loop, config, self.flush
            )
            self.loop.tell_who_fenced = self.transactions.who_has_it
        self.is_closed = False
        self._serialize_key = serialize_with(config.key_serializer, "key")
        self._serialize_value = serialize_with(config.value_serializer, "value")
        self._partitioner = config.partitioner
        self._now_ms = self.cluster.clock.now_ms
        self._monotonic = self.cluster.clock.monotonic
        self._room_waiters: list[Callable[[], object]] = []

    # From a record to its place

    def prepare(
        self,
        routes: TopicRoutes,
        value: Any,
        key: Any,
        headers: Sequence[Header] | None,
        partition: int | None,
        timestamp_ms: int | None,
    ) -> Prepared:
        """Serializes a record and chooses its partition. Raises what is wrong with it."""
        if self._serialize_key is not None:
            key = self._serialize_key(routes.name, key)
        if self._serialize_value is not None:
            value = self._serialize_value(routes.name, value)
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
        return queue, timestamp_ms, key, value, headers or ()

    def append(self, prepared: Prepared) -> Delivery | None:
        """Puts a record with the others of its partition; None if there is no room. Wakes nobody."""
        with self.lock:
            if self.is_closed:
                raise self.closed_error()
            if self.loop.broken is not None:
                raise self.loop.broken.with_traceback(None)
            if self.transactions is None:
                delivery = self.accumulator.append(*prepared, self._monotonic())
            else:
                self.transactions.check_sendable()
                delivery = self.accumulator.append(*prepared, self._monotonic())
                if delivery is not None:
                    self.transactions.touch(prepared[0])
        if self.has_interceptors and delivery is not None:
            self.interceptors.watch(delivery)
        return delivery

    def append_batch(self, queue: PartitionQueue, data: bytearray | memoryview, count: int) -> BatchPromise | None:
        """Puts a whole encoded batch; None if there is no room. Wakes nobody."""
        with self.lock:
            if self.is_closed:
                raise self.closed_error()
            if self.loop.broken is not None:
                raise self.loop.broken.with_traceback(None)
            if self.transactions is not None:
                self.transactions.check_sendable()
            promise = self.accumulator.append_batch(queue, data, count, self._monotonic())
            if self.transactions is not None and promise is not None:
                self.transactions.touch(queue)
            return promise

    def intercepted(self, record: ProducerRecord) -> ProducerRecord:
        """The record as the interceptors leave it."""
        return self.interceptors.on_send(record)

    @staticmethod
    def closed_error() -> ProducerClosedError:
        """For one who calls too late."""
        return ProducerClosedError("the producer is closed; make another one")

    # Waiting

    async def wait_topic(self, topic: str, partition: int | None = None) -> TopicRoutes:
        """The routes of a topic, which has this partition; asks for it, and for its creation, up to `max_block_ms`."""
        check_target(topic, partition)
        deadline = self._monotonic() + self.config.max_block_ms / 1000
        tries = 0
        problem: RetriableError | None = None
        while True:
            if self.is_closed:
                raise self.closed_error()
            routes = self.routes.get(topic)
            if routes is not None and (partition is None or 0 <= partition < len(routes.queues)):
                return routes
            if routes is not None and tries:
                raise UnknownPartitionInTopicError(
                    f"topic {topic} has no partition {partition}; it has {len(routes.queues)}, from 0 on"
                )
            tries += 1
            found = await self._ask_topic(topic, deadline)
            if problem is None or not isinstance(found, DeadlineError):
                # That the time ran out during the last try says less than what went wrong before.
                problem = found
            if topic in self.routes:
                continue
            if tries == 1:
                _LOG.warning("%s; trying again for %s ms (max_block_ms)", problem, self.config.max_block_ms)
            wait_ms = self.config.backoff.wait_ms(tries, self.cluster.random)
            if self._monotonic() + wait_ms / 1000 >= deadline:
                waited = f"topic {topic} is not known after {self.config.max_block_ms} ms (max_block_ms)"
                if isinstance(problem, RetriableAnswerError):
                    raise RetriableAnswerError(problem.error_code, f"{waited}: {problem}") from problem
                if isinstance(problem, CannotConnectError):
                    raise CannotConnectError(f"{waited}: {problem} (tried {tries} times)") from problem
                raise DeadlineError(f"{waited}: {problem}") from problem
            await self.cluster.clock.sleep(wait_ms / 1000)

    async def _ask_topic(self, topic: str, deadline: float) -> RetriableError:
        """Asks once; what stands in the way, if the topic is not known then. Raises what will not pass."""
        left = max(deadline - self._monotonic(), 0.001)
        try:
            async with asyncio.timeout(left):
                await self.loop.refresh_topics([topic], auto_create=True)
        except TimeoutError:
            return DeadlineError(f"none of {', '.join(map(str, self.cluster.bootstrap))} answers")
        except RetriableError as error:
            return error
        code = self.cluster.view.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        refusal = answer_error(code, f"topic {topic}")
        if not isinstance(refusal, RetriableAnswerError):
            raise refusal
        return refusal

    def add_room_waiter(self, waiter: Callable[[], object]) -> None:
        """Has it called, in the loop's thread, when it is worth trying again to append."""
        with self.lock:
            self._room_waiters.append(waiter)
            self.accumulator.is_starved = True
        self.loop.counts.buffer_waits += 1

    def no_room(self, queue: PartitionQueue, waited: float) -> BufferFullError:
        """For one who waited in vain."""
        self.loop.counts.buffer_wait_ms += waited * 1000
        return BufferFullError(
            f"no room for a record to {queue.partition} within {self.config.max_block_ms} ms (max_block_ms):"
            f" {self.accumulator.used_bytes} of {self.config.buffer_memory} bytes (buffer_memory) wait to be sent; send"
            " slower, or raise either"
        )

    def _on_turn(self) -> None:
        """Looks after what the sender does not know of: those who wait for memory, and the transaction."""
        if self._room_waiters:
            waiters: list[Callable[[], object]] = []
            with self.lock:
                if self.accumulator.used_bytes <= _ROOM_SHARE * self.config.buffer_memory:
                    waiters, self._room_waiters = self._room_waiters, []
                    self.accumulator.is_starved = False
            for waiter in waiters:
                waiter()
        if self.transactions is not None:
            self.transactions.on_turn()

    def _on_finished(self, finished: list[Finished]) -> None:
        if self.transactions is not None:
            self.transactions.on_finished(finished)

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Returns once the fate of every record appended before is known. Raises `DeadlineError` after `timeout`."""
        with self.lock:
            pending = self.accumulator.pending()
            self.accumulator.flushes += 1
        self.loop.wake()
        left = len(pending)
        done = asyncio.get_running_loop().create_future()

        def one_less() -> None:
            nonlocal left
            left -= 1
            if left == 0 and not done.done():
                done.set_result(None)

        try:
            if pending:
                for batch in pending:
                    # A batch may yet be split: its last record tells when all of it is done.
                    batch.promise.add_waiter(batch.promise.count - 1, one_less)
                async with asyncio.timeout(timeout):
                    await done
        except TimeoutError:
            raise DeadlineError(
                f"{left} batches are not delivered after {timeout} s; they are still under way, and"
                " delivery_timeout_ms bounds how long"
            ) from None
        finally:
            with self.lock:
                self.accumulator.flushes -= 1

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  # as in kafka-python
        """Waits for what is under way, aborts an open transaction, and ends everything.

        What is not delivered within `timeout` seconds is given up with `ProducerClosedError`.
        """
        if self.is_closed:
            return
        with self.lock:
            self.is_closed = True
            waiters, self._room_waiters = self._room_waiters, []
        for waiter in waiters:
            waiter()
        try:
            with suppress(OttlaError):
                async with asyncio.timeout(timeout):
                    if self.transactions is not None and self.transactions.state.is_under_way:
                        await self.transactions.end(committed=False)
                    else:
                        await self.flush()
        except TimeoutError:
            pass
        finally:
            with self.lock:
                given_up = self.accumulator.drop_all(
                    ProducerClosedError("the producer was closed before the record was delivered")
                )
            self.loop.report(given_up)
            await self.loop.stop()
            await self.cluster.close()
            self.interceptors.close()

    def metrics(self) -> dict[str, dict[str, Any]]:
        """What was done so far; see `ProducerCounts.as_metrics`."""
        with self.lock:
            return self.loop.counts.as_metrics(
                buffer_total_bytes=self.config.buffer_memory,
                buffer_available_bytes=self.config.buffer_memory - self.accumulator.used_bytes,
                record_retry_total=self.accumulator.retried,
                batch_split_total=self.accumulator.splits,
            )

    def transactional(self) -> ProducerTransactions:
        """The transactions. Raises `MisuseError` if the producer has no transactional id, or is closed."""
        if self.transactions is None:
            raise MisuseError("this producer has no transactions; make it with a transactional_id")
        if self.is_closed:
            raise self.closed_error()
        return self.transactions
