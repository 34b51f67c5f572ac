"""`AsyncParallelConsumer`: handles many records of each partition at once, in order where it matters.

One loop polls, commits and pauses partitions; each record is handled in a task of its own. Which records may start,
and up to which offset a partition is done, is decided in `parallel_consumer_state.py`. In
`blocking_parallel_consumer.py` handlers are functions in threads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, Unpack

from ottla.client.arguments import ArgumentError, checks_arguments, mismatch
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.parallel.options import (
    ParallelConsumerConfig,
    ParallelConsumerOptions,
    parallel_consumer_config,
)
from ottla.client.parallel.parallel_consumer_state import ParallelConsumerState, Work
from ottla.client.serializers import deserialized
from ottla.client.values import ConsumerRecord
from ottla.env.real_clock import RealClock
from ottla.env.real_random import RealRandom
from ottla.model.errors import InvalidRequestError, MisuseError, OttlaError
from ottla.model.ids import TopicPartition

_LOGGER: Final = logging.getLogger(__name__)

POLL_MS: Final = 100
_POLL_MS_MIN: Final = 5
"""The least and the most that one poll waits; commits and pauses are decided in between."""

Handler = Callable[[ConsumerRecord], Awaitable[Any]]


class RejectRecordError(InvalidRequestError):
    """For handlers to raise: the record can never be handled, so it is not retried."""


class HandlerFailedError(OttlaError):
    """A record failed after all retries, and there is no `dead_letter_topic`. `record` is not committed.

    The handler's own error is the cause. Run again to retry the record, or set `dead_letter_topic`.
    """

    def __init__(self, record: ConsumerRecord, message: str) -> None:
        super().__init__(message)
        self.record = record


@checks_arguments()
class AsyncParallelConsumer:
    """Calls a coroutine function for every record of some topics, for up to `workers` records at a time.

    A record is done when its handler returned, or when it was handed back or is in the dead-letter topic. Offsets are
    committed up to the oldest record that is not done, so a crash repeats records and loses none.
    `ParallelConsumerOptions` has the arguments. An async context manager:

        async with AsyncParallelConsumer("orders", group_id="billing", workers=100) as consumer:
            await consumer.run(handle)
    """

    def __init__(self, *topics: str, pattern: str | None = None, **options: Unpack[ParallelConsumerOptions]) -> None:
        check_subscription(topics, pattern)
        self.config: Final[ParallelConsumerConfig] = parallel_consumer_config(options)
        self._topics, self._pattern = topics, pattern
        self._clock = RealClock()
        self._random = RealRandom()
        self._state = ParallelConsumerState(self.config.limits)
        self._consumer = AsyncConsumer(**self.config.consumer_options())
        self._handler: Handler | None = None
        self._tasks: dict[Work, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._committing: asyncio.Task[None] | None = None
        self._next_commit = 0.0
        self._failure: Exception | None = None
        self._changed = asyncio.Event()
        self._has_ended = asyncio.Event()
        self._is_stopping = False
        self._is_closed = False
        self._counts = dict.fromkeys(("handled", "failed", "retried", "dead_letters"), 0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Running

    async def run(self, handler: Handler) -> None:
        """Handles records until `stop` is called; then waits for running handlers, and commits.

        Raises `HandlerFailedError` if a record failed after all retries and there is no dead-letter topic, and the
        errors of the consumer. After a handler's `RejectRecordError` or a deserializer's error a record is not retried.
        Raises `MisuseError` if it is called twice or after `close`.
        """
        if self._handler is not None or self._is_closed:
            raise MisuseError("a parallel consumer can run only once; create a new one")
        self._handler = handler
        self._consumer.subscribe(self._topics, pattern=self._pattern, listener=_Listener(self))
        self._next_commit = self._clock.monotonic() + self.config.auto_commit_interval_ms / 1000
        try:
            while not self._is_stopping and self._failure is None:
                await self._turn()
        finally:
            try:
                await self._finish()
            finally:
                self._has_ended.set()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Makes `run` return soon. Call it in the event loop, for example in a handler."""
        self._is_stopping = True

    async def _turn(self) -> None:
        state, consumer = self._state, self._consumer
        to_pause, to_resume = state.pauses()
        if to_pause:
            consumer.pause(*to_pause)
        if to_resume:
            consumer.resume(*to_resume)
        if state.is_full:
            # All partitions are paused: the poll only keeps the membership, and must not delay what has room now.
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_MS / 1000):
                    await self._changed.wait()
            polled = await consumer.poll()
        else:
            polled = await consumer.poll(self._patience_ms(), min(state.room, self.config.max_poll_records))
        for partition, records in polled.items():
            state.take(partition, records)
        self._start_work()
        self._commit_if_due()

    def _patience_ms(self) -> float:
        """How long to poll: at most until the next commit."""
        left = (self._next_commit - self._clock.monotonic()) * 1000
        return min(max(left, _POLL_MS_MIN), POLL_MS)

    def _start_work(self) -> None:
        """Starts handlers for the records that may start, and sets a timer for the next delayed record."""
        if self._is_stopping or self._failure is not None:
            return
        for work in self._state.next_work(self._clock.monotonic()):
            self._tasks[work] = asyncio.create_task(self._work(work))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._state.next_deadline()
        if due is not None and len(self._tasks) < self.config.workers:
            wait = max(due - self._clock.monotonic(), 0)
            self._timer = asyncio.get_running_loop().call_later(wait, self._start_work)

    # One record

    async def _work(self, work: Work) -> None:
        try:
            await self._attempt(work)
        except asyncio.CancelledError:
            if not work.is_revoked:
                raise
            self._state.done(work)
        finally:
            del self._tasks[work]
            if not self._state.is_full or self._failure is not None:
                self._changed.set()
            self._start_work()

    async def _attempt(self, work: Work) -> None:
        if self.config.enable_retry and await self._is_held_back(work):
            return
        try:
            await self._handle(work)
        except (Exception, asyncio.CancelledError) as error:
            if _is_cancelled(error):
                raise
            self._counts["failed"] += 1
            is_final = isinstance(error, RejectRecordError | _BadRecordError)
            if self._state.failed(work, self._clock.monotonic(), self._random, is_final=is_final):
                cause = error.__cause__ if isinstance(error, _BadRecordError) and error.__cause__ else error
                await self._give_up(work, cause, is_final=is_final)
        else:
            self._counts["handled"] += 1
            self._state.done(work)

    async def _is_held_back(self, work: Work) -> bool:
        """Whether the record is not handled now, since an earlier one of its key was handed back."""
        try:
            if not await self._consumer._core.returned.hold_back(work.record):
                return False
        except OttlaError as problem:
            failure = HandlerFailedError(
                work.record, f"record {work.record.offset} of {work.partition} could not be handed back: {problem}"
            )
            failure.__cause__ = problem
            self._fail(failure)
            return True
        self._counts["retried"] += 1
        self._state.done(work)
        return True

    async def _handle(self, work: Work) -> None:
        record, config = work.record, self.config
        if config.key_deserializer is not None or config.value_deserializer is not None:
            try:
                topic, headers = record.topic, record.headers
                record = record._replace(
                    key=await deserialized(config.key_deserializer, topic, headers, record.key, is_key=True),
                    value=await deserialized(config.value_deserializer, topic, headers, record.value, is_key=False),
                )
            except Exception as error:
                raise _BadRecordError from error
        if self._handler is not None:
            await self._handler(record)

    async def _give_up(self, work: Work, error: BaseException, *, is_final: bool) -> None:
        """Hands a record back, or makes it a dead letter; ends `run` if neither is possible."""
        record, topic, returned = work.record, self.config.dead_letter_topic, self._consumer._core.returned
        where = f"record {record.offset} of {work.partition}"
        if topic is None and not self.config.enable_retry:
            tries = "once" if work.attempts == 1 else f"{work.attempts} times"
            failure = HandlerFailedError(
                record, f"{where} failed {tries}, last with {error!r}; set dead_letter_topic to continue without it"
            )
            failure.__cause__ = error
            self._fail(failure)
            return
        is_returned = self.config.enable_retry and not is_final
        try:
            if is_returned:
                await returned.retry(record, error)
            else:
                # With enable_retry, the broker's count of deliveries is the number of attempts.
                attempts = None if self.config.enable_retry else work.attempts
                await returned.reject(record, error, topic=topic, attempts=attempts)
        except OttlaError as problem:
            place = "handed back" if is_returned else f"written to dead-letter topic {topic or 'of its topic'}"
            failure = HandlerFailedError(record, f"{where} could not be {place}: {problem}")
            failure.__cause__ = problem
            self._fail(failure)
            return
        self._counts["retried" if is_returned else "dead_letters"] += 1
        self._state.done(work)

    def _fail(self, failure: Exception) -> None:
        self._failure = self._failure or failure

    # Commits and handovers

    def _commit_if_due(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_commit or self._committing is not None:
            return
        self._next_commit = now + self.config.auto_commit_interval_ms / 1000
        offsets = self._state.committable()
        if offsets:
            self._committing = self._consumer.commit_async(offsets, lambda _, error: self._on_committed(offsets, error))

    def _on_committed(self, offsets: Mapping[TopicPartition, int], error: Exception | None) -> None:
        """Offsets that were not committed are committed later, by the next owner of the partitions if they moved."""
        self._committing = None
        if error is None:
            self._state.committed(offsets)
        else:
            _LOGGER.warning("committing offsets of group %s failed: %s", self.config.group_id, error)

    async def _commit(self, partitions: Collection[TopicPartition] | None) -> None:
        """Commits what is done, of these partitions or all, after a commit in progress."""
        if self._committing is not None:
            await asyncio.wait([self._committing])
        offsets = self._state.committable(partitions)
        if offsets:
            try:
                await self._consumer.commit(offsets)
            except OttlaError as error:
                self._on_committed(offsets, error)
            else:
                self._on_committed(offsets, None)

    async def _hand_over(self, partitions: Collection[TopicPartition], *, is_lost: bool) -> None:
        """Gives up partitions: waits for their handlers, commits what is done, and forgets the rest."""
        self._state.end(partitions)
        if not is_lost:
            await self._wait_tasks(partitions)
            await self._commit(partitions)
        running = self._state.running_of(partitions)
        self._state.revoke(partitions)
        await self._cancel(running)

    async def _wait_tasks(self, partitions: Collection[TopicPartition] | None) -> None:
        tasks = [self._tasks[work] for work in self._state.running_of(partitions) if work in self._tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=self.config.handover_timeout_ms / 1000)

    async def _cancel(self, running: Collection[Work]) -> None:
        tasks = [self._tasks[work] for work in running if work in self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _finish(self) -> None:
        """Waits for running handlers and commits what is done; starts nothing new."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        await self._wait_tasks(None)
        await self._cancel(self._state.running_of())
        await self._commit(None)

    # Metrics and close

    def metrics(self) -> dict[str, int]:
        """Counts: records handled, failed handler calls, records handed back, dead letters, records buffered and
        handlers running now."""
        return {**self._counts, "buffered": self._state.buffered, "running": len(self._state.running_of())}

    async def close(self) -> None:
        """Stops `run`, leaves the group and closes all connections. Calling it again does nothing.

        Handlers must call `stop` instead: `run` waits for them.
        """
        self._is_stopping = self._is_closed = True
        if self._handler is not None:
            await self._has_ended.wait()
        await self._consumer.close()


def check_subscription(topics: tuple[object, ...], pattern: object) -> None:
    """Raises `MisuseError` unless there are either topics or a pattern, `ArgumentError` for wrong types."""
    problem = mismatch(Sequence[str], topics, "topics") or mismatch(str | None, pattern, "pattern")
    if problem is not None:
        raise ArgumentError(f"ParallelConsumer: {problem}")
    if (pattern is None) == (not topics):
        raise MisuseError("ParallelConsumer takes either topics or a pattern, not both")


class _BadRecordError(Exception):
    """A deserializer failed; its error is the cause."""


def _is_cancelled(error: BaseException) -> bool:
    """Whether this task is cancelled; a handler may also raise the cancellation of another task."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class _Listener(ConsumerRebalanceListener):
    def __init__(self, owner: AsyncParallelConsumer) -> None:
        self._owner = owner

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._owner._state.assign(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._owner._hand_over(revoked, is_lost=False)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._owner._hand_over(lost, is_lost=True)
