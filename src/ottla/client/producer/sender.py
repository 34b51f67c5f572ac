"""The sender of a producer: sends ready batches to the brokers, in turns.

A turn is one call in the event loop that gives every broker the batches that are ready for it. It runs when a send
woke it, when a broker responded, when a connection was opened, and at the accumulator's next deadline. What takes
longer (fetching metadata, getting a producer id, adding partitions to a transaction) runs as tasks, one of each kind
at a time. All decisions about batches are made in `accumulator_state.py`; the lock is held for those only, and never
while user code runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final

from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.producer.batching.accumulator_state import AccumulatorState, Finished, Outgoing
from ottla.client.producer.errors import ProducerBrokenError, ProducerFencedError, TransactionAbortedError
from ottla.client.producer.metrics import ProducerCounts
from ottla.client.producer.options import ProducerConfig
from ottla.client.producer.produce_request import ProduceResponse, read_produced, send_produce
from ottla.client.producer.topic_routes import TopicRoutes
from ottla.client.producer.transactions.transaction_requests import init_producer_id
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.protocol.produce_frames import VERSION_MAX, Produced
from ottla.transport.client_connection import Connection

_LOG = logging.getLogger("ottla.client.producer.async_producer")
_METADATA_CODES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that mean that the metadata is outdated."""


class _Link:
    """The connection to one broker, and how many requests are in flight on it."""

    __slots__ = ("connection", "failures", "in_flight", "retry_at", "task")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.task: asyncio.Task[None] | None = None
        self.in_flight = 0
        self.failures = 0
        self.retry_at = 0.0


class Sender:
    """Belongs to one event loop: call everything but the constructor there."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: AccumulatorState,
        lock: Lock,
        config: ProducerConfig,
        *,
        on_finished: Callable[[list[Finished]], None],
        on_turn: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self.routes: dict[str, TopicRoutes] = {}
        self.counts = ProducerCounts()
        self.produce_version_max = VERSION_MAX
        self._accumulator = accumulator
        self._lock = lock
        self._config = config
        self._on_finished = on_finished
        self._on_turn = on_turn
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: dict[int, _Link] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._topic_fetches: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        """How often each task failed in a row, by name."""
        self._timer: asyncio.TimerHandle | None = None
        self.describe_new_owner: Callable[[], Awaitable[str]] | None = None
        """Asks the coordinator which producer has the transactional id now; "" if it does not say."""
        self.transaction_failure: Callable[[], Exception | None] = lambda: None
        """Why nothing more of the current transaction is sent; called with the lock."""
        self._fenced: list[Finished] = []
        """Fenced batches that are reported when `describe_new_owner` has returned."""
        self._is_scheduled = False
        self._is_stopped = False
        self._wants_metadata = False
        self._metadata_at = 0.0
        self.broken: ProducerBrokenError | None = None
        """The bug that stopped the sender, after which its queues cannot be trusted; every later send raises it."""

    @property
    def requests_in_flight(self) -> int:
        """How many Produce requests wait for a response; may be called in any thread."""
        return sum(link.in_flight for link in list(self._links.values()))

    def start(self) -> None:
        """Binds the sender to the running event loop."""
        self._loop = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Cancels all tasks; does not wait for requests in flight."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = [*self._tasks.values(), *(link.task for link in self._links.values() if link.task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def wake(self) -> None:
        """Schedules a turn."""
        if not self._is_scheduled and not self._is_stopped and self._loop is not None:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def run_task(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Runs a task, unless one with that name is running. A turn follows; after a failure, with backoff."""
        if name in self._tasks or self._is_stopped or self._loop is None:
            return

        async def run() -> None:
            try:
                await work()
                self._failures.pop(name, None)
            except OttlaError as error:
                tries = self._failures[name] = self._failures.get(name, 0) + 1
                _LOG.log(logging.WARNING if tries == 1 else logging.DEBUG, "%s: %s", name, error)
                await self._pause(tries)
            finally:
                self._tasks.pop(name, None)
                self.wake()

        self._tasks[name] = self._loop.create_task(run())

    async def wait_task(self, name: str) -> None:
        """Returns when no task with that name is running."""
        task = self._tasks.get(name)
        if task is not None:
            await asyncio.wait([task])

    # A turn

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        try:
            self._take_turn()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """The sender itself failed, which is a bug: fails all records, and every later `send`."""
        _LOG.error("the producer's sender failed; all records that are not delivered fail", exc_info=error)
        broken = ProducerBrokenError(f"the producer's sender failed: {error!r}; close the producer and report this bug")
        with self._lock:
            self.broken = self.broken or broken
            finished = self._accumulator.drop_all(broken)
        self.report(finished)

    def _take_turn(self) -> None:
        accumulator, now = self._accumulator, self.cluster.clock.monotonic()
        room = {
            broker: self._config.max_in_flight_requests_per_connection - link.in_flight
            for broker, link in self._links.items()
            if link.connection is not None and not link.connection.is_closed
        }
        with self._lock:
            accumulator.wants_wake = False
            finished = accumulator.expire(now)
            failure = self.transaction_failure()
            dropped = [] if failure is None else accumulator.drop_unsent(failure)
            requests = accumulator.drain(now, room)
            # After draining, which may give a partition a new epoch and so make it ready.
            wanted = accumulator.brokers_wanted(now)
            deadline = accumulator.next_deadline(now)
            needs_identity = (
                accumulator.identity is None
                and accumulator.limits.is_idempotent
                and not accumulator.limits.is_transactional
                and accumulator.used_bytes > 0
            )
        for request in requests:
            self._send(request, now)
        self.report(finished)
        self._complete(dropped)
        self._prepare_next(wanted, needs_identity, now)
        self._on_turn()
        self._set_timer(deadline, now)

    def _prepare_next(self, wanted: Iterable[int | None], needs_identity: bool, now: float) -> None:
        """Starts what more batches need: connections, a producer id, metadata."""
        for broker in wanted:
            if broker is None:
                self._wants_metadata = True
            else:
                self._connect(broker, now)
        if needs_identity:
            self.run_task("InitProducerId", self._get_identity)
        max_age = self._config.metadata_max_age_ms / 1000
        if self.routes and (self._wants_metadata or now - self._metadata_at > max_age):
            self.run_task("metadata refresh", self._refresh)

    def _set_timer(self, deadline: float | None, now: float) -> None:
        """Schedules the next turn. `now` is that of the current turn: what was not due then is still to come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waits = [link.retry_at for link in self._links.values() if link.retry_at > now]
        if deadline is not None:
            waits.append(deadline)
        if waits and self._loop is not None:
            delay = max(min(waits) - self.cluster.clock.monotonic(), 0.0)
            self._timer = self._loop.call_later(delay, self.wake)

    # Requests

    def _send(self, request: Outgoing, now: float) -> None:
        link = self._links[request.broker]
        connection = link.connection
        if connection is None:
            return
        request = self._encodable(request)
        if not request.batches:
            return
        encoded = []
        for queue, batch in sorted(request.batches, key=lambda each: each[0].partition.topic):
            data = batch.encoded()
            encoded.append((queue.partition, data))
            self.counts.bytes_sent += len(data)
            self.counts.uncompressed_bytes += batch.size
            self.counts.records_sent += batch.count
            self.counts.queue_ms_total += (now - batch.created_at) * 1000
        self.counts.batches_sent += len(encoded)
        self.counts.requests += 1
        config = self._config
        try:
            answer = send_produce(
                connection,
                encoded,
                acks=config.wire_acks,
                timeout_ms=config.request_timeout_ms,
                answer_timeout_ms=config.request_timeout_ms,
                transactional_id=config.transactional_id,
                version_max=self.produce_version_max,
            )
        except OttlaError as error:
            self._on_request_failed(request, error)
            return
        link.in_flight += 1
        answer.add_done_callback(partial(self._on_answer, request, link, now))

    def _encodable(self, request: Outgoing) -> Outgoing:
        """The request without the batches that cannot be encoded, for example for lack of memory: only those fail."""
        finished: list[Finished] = []
        good = []
        for queue, batch in request.batches:
            try:
                batch.encoded()
                good.append((queue, batch))
            except Exception as error:
                with self._lock:
                    finished += self._accumulator.not_encoded(queue, batch, error)
        if not finished:
            return request
        self.report(finished)
        # The batches behind one that failed may need a new epoch.
        self.wake()
        return Outgoing(request.broker, good)

    def _on_answer(
        self,
        request: Outgoing,
        link: _Link,
        sent_at: float,
        answer: ProduceResponse,
    ) -> None:
        link.in_flight -= 1
        if answer.cancelled() or self._is_stopped:
            return
        error = answer.exception()
        if error is not None:
            self._on_request_failed(request, error)
            return
        latency_ms = (self.cluster.clock.monotonic() - sent_at) * 1000
        self.counts.answers += 1
        self.counts.latency_ms_total += latency_ms
        self.counts.latency_ms_max = max(self.counts.latency_ms_max, latency_ms)
        try:
            produced = read_produced(answer.result(), [queue.partition for queue, _ in request.batches])
        except OttlaError as broken:
            if link.connection is not None:
                link.connection.close()
            self._on_request_failed(request, broken)
            return
        try:
            self._settle(request, produced)
        except Exception as unexpected:
            self._give_up(unexpected)

    def _on_request_failed(self, request: Outgoing, error: BaseException) -> None:
        """The request failed: it is unknown whether its batches were written, unless the client itself refused them."""
        code = error.error_code if isinstance(error, AnswerError) else ErrorCode.NETWORK_EXCEPTION
        if not isinstance(error, OttlaError):
            _LOG.error("a Produce request failed unexpectedly", exc_info=error)
        self._settle(
            request,
            {queue.partition: Produced(queue.partition, code, -1, -1, str(error)) for queue, _ in request.batches},
        )

    def _settle(self, request: Outgoing, produced: dict[TopicPartition, Produced]) -> None:
        """Passes the result of each batch to the accumulator."""
        now = self.cluster.clock.monotonic()
        finished: list[Finished] = []
        with self._lock:
            for queue, batch in request.batches:
                said = produced[queue.partition]
                if not said.error_code:
                    finished += self._accumulator.written(queue, batch, said.base_offset, said.append_time)
                    continue
                if said.error_code in _METADATA_CODES:
                    self._wants_metadata = True
                    if said.leader >= 0 and said.leader_epoch > queue.leader_epoch:
                        # The broker that refused the batch names the current leader.
                        queue.leader, queue.leader_epoch = said.leader, said.leader_epoch
                        self._wants_metadata = said.leader not in self.cluster.view.brokers
                finished += self._accumulator.refused(queue, batch, said.error_code, said.error_message, now)
        self.report(finished)
        self.wake()

    def report(self, finished: list[Finished]) -> None:
        """Completes the deliveries of finished batches; call it without the lock.

        Fenced batches are reported a little later, with the producer that has the transactional id now.
        """
        if self.describe_new_owner is not None and not self._is_stopped:
            fenced = [each for each in finished if isinstance(each.error, ProducerFencedError)]
            if fenced:
                self._fenced += fenced
                finished = [each for each in finished if each not in fenced]
                self.run_task("DescribeTransactions", partial(self._report_fenced, self.describe_new_owner))
        self._complete(finished)

    async def _report_fenced(self, describe_new_owner: Callable[[], Awaitable[str]]) -> None:
        owner = ""
        try:
            owner = await describe_new_owner()
        finally:
            fenced, self._fenced = self._fenced, []
            self._complete([replace(each, error=_with_owner(each.error, owner)) for each in fenced])

    def _complete(self, finished: list[Finished]) -> None:
        if finished:
            for each in finished:
                if each.error is not None:
                    self.counts.records_failed += each.batch.count
                    is_expected = isinstance(each.error, TransactionAbortedError)
                    _LOG.log(logging.DEBUG if is_expected else logging.WARNING, "%s", each.error)
            self._on_finished(finished)
            for each in finished:
                each.tell()

    # Connections, metadata and producer id

    def _connect(self, broker: int, now: float) -> None:
        link = self._links.get(broker)
        if link is None:
            link = self._links[broker] = _Link()
        is_open = link.connection is not None and not link.connection.is_closed
        if is_open or link.task is not None or link.retry_at > now or self._loop is None:
            return
        link.retry_at = 0.0
        link.task = self._loop.create_task(self._open(broker, link))

    async def _open(self, broker: int, link: _Link) -> None:
        try:
            link.connection = await self.cluster.broker_connection(broker)
            link.failures = 0
        except (OttlaError, OSError) as error:
            link.failures += 1
            wait_ms = self._config.backoff.wait_ms(link.failures, self.cluster.random)
            link.retry_at = self.cluster.clock.monotonic() + wait_ms / 1000
            self._wants_metadata = True
            self._note_problem(broker, str(error))
        finally:
            link.task = None
            self.wake()

    def _note_problem(self, broker: int, problem: str) -> None:
        """Remembers a problem for the error of batches that are given up later."""
        with self._lock:
            for routes in self.routes.values():
                for queue in routes.queues:
                    if queue.leader == broker and queue.batches:
                        queue.batches[0].problem = problem

    async def _get_identity(self) -> None:
        try:
            identity = await init_producer_id(self.cluster, None, self._config.transaction_timeout_ms)
        except RetriableError:
            raise
        except OttlaError as error:
            with self._lock:
                finished = self._accumulator.drop_unsent(error)
            self.report(finished)
            raise
        with self._lock:
            self._accumulator.adopt(identity)

    async def _refresh(self) -> None:
        self._wants_metadata = False
        try:
            await self.refresh_topics(list(self.routes))
        except RetriableError as error:
            self._wants_metadata = True
            with self._lock:
                for routes in self.routes.values():
                    for queue in routes.queues:
                        if queue.leader is None and queue.batches:
                            queue.batches[0].problem = str(error)
            raise
        with self._lock:
            missing = self._accumulator.leaderless()
        # While a leader is being elected brokers return old metadata; asking at once again would not help.
        await self._pause(1)
        self._wants_metadata = self._wants_metadata or bool(missing)

    async def _pause(self, tries: int) -> None:
        wait_ms = self._config.backoff.wait_ms(tries, self.cluster.random)
        await self.cluster.clock.sleep(wait_ms / 1000)

    async def fetch_topic(self, name: str) -> None:
        """Fetches the metadata of a topic, which may create it. All records that wait for it share one request."""
        fetch = self._topic_fetches.get(name)
        if fetch is None:
            fetch = asyncio.ensure_future(self.refresh_topics([name], auto_create=True))
            self._topic_fetches[name] = fetch
            fetch.add_done_callback(lambda _: self._topic_fetches.pop(name))
        await asyncio.shield(fetch)

    async def refresh_topics(self, names: list[str], *, auto_create: bool = False) -> None:
        """Fetches the metadata of topics and takes over their leaders; unknown topics are left as they were."""
        view = await self.cluster.refresh(names, auto_create=auto_create)
        self._metadata_at = self.cluster.clock.monotonic()
        with self._lock:
            for name in names:
                topic = view.topics.get(name)
                if topic is None or not topic.partitions:
                    continue
                routes = self.routes.get(name) or TopicRoutes(name, self.cluster.random, self._config.batch_size)
                routes.update(topic, self._accumulator.queue)
                self.routes[name] = routes
        self.wake()


def _with_owner(error: Exception | None, owner: str) -> Exception | None:
    """The same error, with the description of the producer that took over."""
    return ProducerFencedError(f"{error} ({owner}); close this producer") if owner else error
