"""`AsyncParallelConsumer`: many records of each partition handled at once, in order where it matters, committed safely.

One loop polls, commits and pauses; each record has a task of its own while it is handled. What may start, and how far
each partition is done, is decided in `parallel_consumer_state.py`. `blocking_parallel_consumer.py` is the twin whose
handlers are functions in threads.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.parallel.dead_letters import dead_letter_headers
from ottla.client.parallel.options import (
    ParallelConsumerConfig,
    ParallelConsumerOptions,
    parallel_consumer_config,
)
from ottla.client.parallel.parallel_consumer_state import ParallelConsumerState, Work
from ottla.client.values import ConsumerRecord
from ottla.env.real_clock import RealClock
from ottla.env.real_random import RealRandom
from ottla.model.errors import InvalidRequestError, MisuseError, OttlaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.client.producer.async_producer import AsyncProducer

_LOGGER: Final = logging.getLogger(__name__)

POLL_MS: Final = 100
_POLL_MS_MIN: Final = 5
"""How long one poll waits; commits and pauses are looked at in between."""

Handler = Callable[[ConsumerRecord], Awaitable[Any]]


class RejectRecordError(InvalidRequestError):
    """For handlers to raise: the record is bad and will stay so, so it is not tried again."""


class HandlerFailedError(OttlaError):
    """A record failed for good, and there is no `dead_letter_topic`. `record` is the one; it is not committed.

    The handler's own error is the cause. Run again to try again, or name a topic for dead letters.
    """

    def __init__(self, record: ConsumerRecord, message: str) -> None:
        super().__init__(message)
        self.record = record


class AsyncParallelConsumer:
    """Calls a coroutine function for every record of some topics, `workers` at a time.

    A record counts as done when its handler returned, or when it is in the dead letter topic; offsets are committed up
    to the oldest that is not done, so that a crash repeats records and loses none. An async context manager:

        async with AsyncParallelConsumer("orders", group_id="billing", workers=100) as consumer:
            await consumer.run(handle)
    """

    def __init__(self, *topics: str, pattern: str | None = None, **options: Unpack[ParallelConsumerOptions]) -> None:
        self.config: Final[ParallelConsumerConfig] = parallel_consumer_config(options)
        if (pattern is None) == (not topics):
            raise MisuseError("a parallel consumer takes either topics or a pattern")
        self._topics, self._pattern = topics, pattern
        self._clock = RealClock()
        self._random = RealRandom()
        self._state = ParallelConsumerState(self.config.limits)
        self._consumer = AsyncConsumer(**self.config.consumer_options())
        self._producer: AsyncProducer | None = None
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
        self._counts = dict.fromkeys(("handled", "failed", "dead_letters"), 0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Running

    async def run(self, handler: Handler) -> None:
        """Handles records until `stop` is called; then waits for those that run, and commits.

        Raises `HandlerFailedError` for a record that failed for good without a dead letter topic, and what the
        consumer raises. A handler's `RejectRecordError`, and a deserializer's error, are not tried again.
        """
        if self._handler is not None or self._is_closed:
            raise MisuseError("a parallel consumer runs once; make another")
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
        """Lets `run` end soon. Within the event loop, as from a handler; harmless if it does not run."""
        self._is_stopping = True

    async def _turn(self) -> None:
        state, consumer = self._state, self._consumer
        to_pause, to_resume = state.pauses()
        if to_pause:
            consumer.pause(*to_pause)
        if to_resume:
            consumer.resume(*to_resume)
        if state.is_full:
            # Everything is paused; the poll only keeps the membership, and must not be waited for once there is room.
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
        """How long to wait for records: no longer than until the next commit."""
        left = (self._next_commit - self._clock.monotonic()) * 1000
        return min(max(left, _POLL_MS_MIN), POLL_MS)

    def _start_work(self) -> None:
        """Starts what may start, and comes again when a delayed record is due."""
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
        try:
            await self._handle(work)
        except (Exception, asyncio.CancelledError) as error:
            if _is_cancelled(error):
                raise
            self._counts["failed"] += 1
            is_final = isinstance(error, RejectRecordError | _BadRecordError)
            if self._state.failed(work, self._clock.monotonic(), self._random, is_final=is_final):
                cause = error.__cause__ if isinstance(error, _BadRecordError) and error.__cause__ else error
                await self._put_aside(work, cause)
        else:
            self._counts["handled"] += 1
            self._state.done(work)

    async def _handle(self, work: Work) -> None:
        record, config = work.record, self.config
        if config.key_deserializer is not None or config.value_deserializer is not None:
            try:
                record = record._replace(
                    key=_deserialized(config.key_deserializer, record.key),
                    value=_deserialized(config.value_deserializer, record.value),
                )
            except Exception as error:
                raise _BadRecordError from error
        if self._handler is not None:
            await self._handler(record)

    async def _put_aside(self, work: Work, error: BaseException) -> None:
        """Makes a dead letter of a record, and counts it as done once that is written; else ends all."""
        record, topic = work.record, self.config.dead_letter_topic
        where = f"record {record.offset} of {work.partition}"
        if topic is None:
            tries = "once" if work.attempts == 1 else f"{work.attempts} times"
            failure = HandlerFailedError(
                record, f"{where} was tried {tries}, the last time: {error!r}; name a dead_letter_topic to go on"
            )
            failure.__cause__ = error
            self._fail(failure)
            return
        headers = dead_letter_headers(record, error, attempts=work.attempts, group_id=self.config.group_id or "")
        timestamp_ms = record.timestamp if record.timestamp >= 0 else None
        try:
            producer = await self._dead_letters()
            await producer.send_and_wait(topic, record.value, record.key, headers, timestamp_ms=timestamp_ms)
        except OttlaError as problem:
            failure = HandlerFailedError(record, f"{where} could not be put aside in topic {topic}: {problem}")
            failure.__cause__ = problem
            self._fail(failure)
            return
        self._counts["dead_letters"] += 1
        self._state.done(work)

    async def _dead_letters(self) -> "AsyncProducer":
        if self._producer is None:
            from ottla.client.producer.async_producer import AsyncProducer

            self._producer = AsyncProducer(**self.config.producer_options())
            await self._producer.start()
        return self._producer

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
        """What was refused is committed later, by whoever has the partitions then."""
        self._committing = None
        if error is None:
            self._state.committed(offsets)
        else:
            _LOGGER.warning("offsets of group %s were not committed: %s", self.config.group_id, error)

    async def _commit(self, partitions: Collection[TopicPartition] | None) -> None:
        """Commits what is done, of these partitions or of all, after the commit that is under way."""
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
        """Partitions go: lets their handlers end, commits what is done, and forgets the rest."""
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
        """Lets running handlers end, and commits what is done; nothing new starts."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        await self._wait_tasks(None)
        await self._cancel(self._state.running_of())
        await self._commit(None)

    # The end, and numbers

    def metrics(self) -> dict[str, int]:
        """How many records were handled, how many calls of the handler failed, how many records became dead letters,
        and how many are held or handled now."""
        return {**self._counts, "buffered": self._state.buffered, "running": len(self._state.running_of())}

    async def close(self) -> None:
        """Lets `run` end if it still runs, leaves the group and ends everything. Closing twice is harmless.

        Not for handlers, which `run` waits for: they call `stop`.
        """
        self._is_stopping = self._is_closed = True
        if self._handler is not None:
            await self._has_ended.wait()
        await self._consumer.close()
        if self._producer is not None:
            await self._producer.close()


class _BadRecordError(Exception):
    """A deserializer failed; its error is the cause."""


def _is_cancelled(error: BaseException) -> bool:
    """Whether this task is to end; a handler can also come upon the cancellation of something else."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _deserialized(deserializer: Callable[[bytes], Any] | None, value: bytes | None) -> Any:
    return value if deserializer is None or value is None else deserializer(value)


class _Listener(ConsumerRebalanceListener):
    def __init__(self, owner: AsyncParallelConsumer) -> None:
        self._owner = owner

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._owner._state.assign(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._owner._hand_over(revoked, is_lost=False)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._owner._hand_over(lost, is_lost=True)
