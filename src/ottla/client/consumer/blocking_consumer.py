"""`Consumer`: `AsyncConsumer` for programs that do not use asyncio.

Fetching, heartbeats and commits go on in a thread of its own. Records are deserialized, and listeners and callbacks
called, in the program's thread. A poll that finds fetched records does not wait for the other thread at all.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ottla.client.arguments import ArgumentError, checks_arguments, shown
from ottla.client.consumer.async_consumer import AsyncConsumer, CommitCallback, maybe_await
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.options import ConsumerConfig, ConsumerOptions
from ottla.client.consumer.record_stream import RecordStream
from ottla.client.fetch.fetch_plan_state import Records, UnreadableError
from ottla.client.group.handover import Handover
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.loop_thread import LoopThread
from ottla.client.options import configured
from ottla.client.serializers import NotPreparedError
from ottla.client.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.fetch.arrow_chunks import Polled
    from ottla.client.fetch.chunk import Chunk
    from ottla.client.fetch.typed_columns import BadValues, TypedColumns

T = TypeVar("T")
_ARROW_BYTES_MAX: Final = 16 * 1024 * 1024
_STEP_SECONDS: Final = 3600.0
"""The longest single wait for the loop's thread."""


@checks_arguments()
class Consumer:
    """Reads records. Only one thread may use it at a time; `wakeup` may be called from any thread.

    It connects at the first use. A context manager that closes the consumer at the end. `ConsumerConfig` has the
    options. Wrong options raise `OptionError`, arguments of the wrong type `ArgumentError`, and every method raises
    `MisuseError` after `close`.

        with Consumer("orders", group_id="billing", bootstrap_servers="localhost:9092") as consumer:
            for record in consumer:
                ...
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self.config = configured(ConsumerConfig, "Consumer", options)
        self.config.check()
        self._asynchronous = AsyncConsumer(*topics, **options)
        self._stream: RecordStream = self._asynchronous._stream
        self._listener: ConsumerRebalanceListener | None = None
        self._thread: LoopThread | None = None
        self._made: ConsumerCore | None = None
        self._is_closed = False
        self._answered: deque[Callable[[], object]] = deque()
        """Callbacks of finished commits, which the next method call of the program runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(autocommit=error is None)

    # The thread of the loop

    @property
    def _core(self) -> ConsumerCore:
        if self._made is None:
            self._made = self._on_loop(lambda: self._asynchronous._core)
        return self._made

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for it."""
        if self._is_closed:
            work.close()
            raise MisuseError("the consumer is closed")
        if self._thread is None:
            self._thread = LoopThread("ottla consumer")
        return self._thread.call(work)

    def _on_loop(self, action: Callable[[], T]) -> T:
        async def run() -> T:
            return action()

        return self._call(run())

    # Subscribing

    def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribes to topics, or to all topics that match a pattern, including topics that are created later.

        In a group, its members share the partitions; without a group, all are read. Replaces the earlier subscription.
        The next poll joins the group. `listener` is called when partitions are assigned, revoked or lost. The pattern
        is an RE2 regular expression that must match from the beginning of the name; with `group_protocol="consumer"`
        the coordinator matches it. Raises `MisuseError`.
        """
        self._on_loop(lambda: self._asynchronous.subscribe(topics, pattern=pattern))
        self._listener = listener

    def unsubscribe(self) -> None:
        """Ends the subscription or assignment and leaves the group."""
        self._tell_goodbye(self._core)
        self._call(self._asynchronous.unsubscribe())

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Reads exactly these partitions, without sharing them with a group; offsets can still be committed to one."""
        self._on_loop(lambda: self._asynchronous.assign(partitions))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are assigned now."""
        return self._on_loop(self._asynchronous.assignment)

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed to; None without a subscription."""
        return self._on_loop(self._asynchronous.subscription)

    # Reading

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Returns records by partition, at most `max_records`, or an empty dict after the timeout.

        Rebalances happen here, with calls to the listener, and so do automatic commits. Call it at least every
        `max_poll_interval_ms`, or the consumer leaves its group. Raises `WakeupError`, `UnreadableRecordError` for a
        corrupt batch, `RecordDeserializationError`, `LogTruncatedError`, `UnknownPositionError`, and errors of brokers.
        """
        left = self._stream.take()
        if left:
            return left
        count = self.config.max_poll_records if max_records is None else max_records
        while True:
            try:
                return self._poll(timeout_ms, lambda core: core.take(count))
            except UnreadableError as unread:
                self._core.prepare(unread)

    def _poll(self, timeout_ms: float, take: Callable[[ConsumerCore], T]) -> T:
        core = self._core
        if self._is_closed:
            raise MisuseError("the consumer is closed")
        clock = core.cluster.clock
        now = clock.monotonic()
        if core.is_settled and not self._answered:
            found = take(core)
            if found or timeout_ms <= 0:
                core.member.state.touch(now)
                return found
        deadline = now + timeout_ms / 1000
        try:
            while True:
                self._run_callbacks()
                remaining = deadline - clock.monotonic()
                handover = self._call(core.wait_work(min(max(remaining, 0), _STEP_SECONDS)))
                if handover is not None:
                    self._hand_over(core, handover)
                    continue
                found = take(core)
                if found or deadline <= clock.monotonic():
                    return found
        finally:
            if self._thread is not None:
                self._thread.post(core.end_poll)

    def poll_arrow(
        self,
        timeout_ms: float = 0,
        max_bytes: int = _ARROW_BYTES_MAX,
        *,
        headers: bool = True,
        bad_values: "BadValues" = "raise",
    ) -> "dict[TopicPartition, pa.RecordBatch]":
        """Returns the records of each partition as one Arrow batch, about `max_bytes` at most, or none by the timeout.

        Does what `poll` does, without interceptors and `max_poll_records`. Deserializers with schemas of a registry
        give typed columns; others are not called. A corrupt batch raises `CorruptError` once the records before it were
        returned, and a value that cannot be read `RecordDeserializationError`. With `bad_values="keep"` such a value is
        null, and the columns `key_error` and `value_error` have its reason and its bytes. Needs pyarrow.
        """
        from ottla.client.fetch.arrow_chunks import as_batches

        return as_batches(self._poll_decoded(timeout_ms, max_bytes, headers, bad_values))

    def poll_table(
        self,
        timeout_ms: float = 0,
        max_bytes: int = _ARROW_BYTES_MAX,
        *,
        headers: bool = True,
        bad_values: "BadValues" = "raise",
    ) -> "pa.Table":
        """As `poll_arrow`, in one table with the columns `topic` and `partition` in front."""
        from ottla.client.fetch.arrow_chunks import as_table

        return as_table(self._poll_decoded(timeout_ms, max_bytes, headers, bad_values), headers=headers)

    def _poll_decoded(
        self, timeout_ms: float, max_bytes: int, headers: bool, bad_values: "BadValues"
    ) -> "dict[TopicPartition, list[pa.RecordBatch]]":
        from ottla.client.fetch.arrow_chunks import decode_polled
        from ottla.client.fetch.typed_columns import TypedColumns

        if bad_values not in ("raise", "keep"):
            raise ArgumentError(f'bad_values must be "raise" or "keep", not {shown(bad_values)}')
        typed = TypedColumns.of(self.config.key_deserializer, self.config.value_deserializer)
        monotonic = self._core.cluster.clock.monotonic
        deadline = monotonic() + timeout_ms / 1000
        # Records that an iteration polled and did not hand out are read again.
        for partition, first in self._stream.undelivered().items():
            self.seek(partition, first.offset)
        while True:
            left_ms = max((deadline - monotonic()) * 1000, 0)
            chunks = self._poll(left_ms, lambda core: core.take_chunks(max_bytes))
            polled = decode_polled(chunks, headers=headers or bool(typed))
            if typed:
                polled = self._typed(typed, polled, chunks, headers, bad_values)
            for partition, offset in polled.rewinds.items():
                self.seek(partition, offset)
            if polled.error is not None:
                raise polled.error
            # Chunks may have no visible records, such as aborted transactions.
            if polled.batches or not chunks:
                return polled.batches

    def _typed(
        self, typed: "TypedColumns", polled: "Polled", chunks: "list[Chunk]", headers: bool, bad_values: "BadValues"
    ) -> "Polled":
        """Typed columns. If the registry cannot be asked, the positions go back before it is raised."""
        from ottla.client.fetch.arrow_chunks import all_starts

        try:
            while True:
                try:
                    return typed.apply(polled, chunks, headers=headers, bad_values=bad_values)
                except NotPreparedError as missing:
                    missing.prepare()
        except BaseException:
            for partition, offset in all_starts(chunks).items():
                self.seek(partition, offset)
            raise

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Iterates over records as they arrive; ends after `consumer_timeout_ms` without one.

        Commits leave out records that were not iterated over yet.
        """
        while True:
            while (some := self._stream.some()) is not None:
                if self.config.enable_retry:
                    yield from (record for record in some if not self._hold_back(record))
                else:
                    yield from some
            records = self.poll(self.config.consumer_timeout_ms)
            if not records:
                return
            self._stream.feed(records)

    def __next__(self) -> ConsumerRecord:
        """The next record; raises `StopIteration` after `consumer_timeout_ms` without one."""
        while True:
            some = self._stream.some()
            if some is None:
                self._stream.feed(self.poll(self.config.consumer_timeout_ms))
                some = self._stream.some()
                if some is None:
                    raise StopIteration
            record = next(some)
            if not self._hold_back(record):
                return record

    def _hold_back(self, record: ConsumerRecord) -> bool:
        """Whether a record was handed back because an earlier one of its key is in retry."""
        returned = self._core.returned
        return bool(returned.order) and self._call(returned.hold_back(record))

    def wakeup(self) -> None:
        """Makes the current `poll`, or the next one, raise `WakeupError`. May be called from any thread."""
        core = self._made
        if core is not None and not self._is_closed:
            core.call_soon(core.wakeup)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Moves the position to an offset. With a leader epoch the position is validated: raises `LogTruncatedError` in
        `poll` if records before it were lost."""
        self._on_loop(lambda: self._asynchronous.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the first offset of these partitions, or of all. The offset is looked up by `poll`."""
        self._on_loop(lambda: self._asynchronous.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the end offset of these partitions, or of all. The offset is looked up by `poll`."""
        self._on_loop(lambda: self._asynchronous.seek_to_end(*partitions))

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record, looked up if it is not known yet. Raises `DeadlineError`."""
        return self._call(self._asynchronous.position(partition, timeout_ms))

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops returning records of these partitions until `resume`; they stay assigned."""
        self._on_loop(lambda: self._asynchronous.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Undoes `pause`."""
        self._on_loop(lambda: self._asynchronous.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return self._on_loop(self._asynchronous.paused)

    # Committed offsets

    def commit(self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: int | None = None) -> None:
        """Commits offsets, each the next one to read, by default all positions. Waits for the response.

        Raises `CommitFailedError` if the consumer is not a member of the group any more (poll to join again), and
        `DeadlineError` after `timeout_ms`.
        """
        self._run_callbacks()
        self._call(self._asynchronous.commit(offsets, timeout_ms))

    def commit_async(
        self, offsets: Mapping[TopicPartition, Any] | None = None, callback: CommitCallback | None = None
    ) -> "Future[None]":
        """Starts a commit. The callback gets the offsets, and the error or None; it is called in this thread by a later
        `poll`, `commit` or `close`. Commits are sent in order."""
        core = self._core
        wanted = self._on_loop(lambda: self._asynchronous._to_commit(offsets))
        done = asyncio.run_coroutine_threadsafe(core.commit(wanted), core.loop)
        if callback is not None:
            tell = callback
            done.add_done_callback(
                lambda done: self._answered.append(
                    lambda: tell(wanted, None if done.cancelled() else _exception(done.exception()))
                )
            )
        return done

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None
    ) -> int | OffsetAndMetadata | None:
        """The committed offset of a partition, with `metadata=True` as `OffsetAndMetadata`; None if there is none."""
        return self._call(self._asynchronous.committed(partition, metadata, timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The identity of this group member, for a producer that commits offsets in a transaction."""
        return self._on_loop(self._asynchronous.group_metadata)

    # Giving up records

    def retry(self, record: ConsumerRecord, error: BaseException | str) -> None:
        """Hands a record back: it returns to the group after a backoff that grows, up to `ottla.retry.max.attempts`
        times; then it becomes a dead letter.

        Returns when the record is acknowledged, so its offset may be committed then. The group reads it again if its
        consumers have `enable_retry`. Raises `RetryNotEnabledError` if the topic does not have `ottla.retry.enable`,
        `RecordGoneError`, and the errors of a producer: the record was not handed back then.
        """
        self._call(self._asynchronous.retry(record, error))

    def reject(self, record: ConsumerRecord, reason: BaseException | str) -> None:
        """Writes a record that can never be handled to the dead-letter topic of its topic, with the reason in headers.

        The topic is `errors.deadletterqueue.topic.name` in the configs of the record's topic, or `dlq.<topic>`. Returns
        when the record is acknowledged, so its offset may be committed then. Raises `RecordGoneError`, and the errors
        of a producer.
        """
        self._call(self._asynchronous.reject(record, reason))

    # Lookups

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._call(self._asynchronous.beginning_offsets(partitions, timeout_ms))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The end offset of each partition, after its last record; for read_committed the last stable offset."""
        return self._call(self._asynchronous.end_offsets(partitions, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a timestamp in milliseconds; None if there is none."""
        return self._call(self._asynchronous.offsets_for_times(timestamps, timeout_ms))

    def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """The partitions of a topic; None if it does not exist."""
        return self._call(self._asynchronous.partitions_for_topic(topic, timeout_ms))

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """The names of all topics except internal ones."""
        return self._call(self._asynchronous.topics(timeout_ms))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end of a partition; None before the first fetch."""
        return self._on_loop(lambda: self._asynchronous.current_lag(partition))

    def metrics(self) -> dict[str, float]:
        """Metrics of this consumer, by name."""
        return self._on_loop(self._asynchronous.metrics)

    # Closing

    def close(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """Commits if auto-commit is enabled, tells the listener, leaves the group and ends the thread.

        Calling it again does nothing.
        """
        thread = self._thread
        if self._is_closed or thread is None:
            self._is_closed = True
            return
        try:
            if self._made is not None:
                self._say_goodbye(self._made, autocommit, timeout_ms)
            self._call(self._asynchronous.close(autocommit=False, timeout_ms=timeout_ms))
            self._run_callbacks()
        finally:
            self._is_closed = True
            thread.close()

    def _say_goodbye(self, core: ConsumerCore, autocommit: bool, timeout_ms: int | None) -> None:
        """The last commit, then the listener in this thread."""
        self._call(self._asynchronous._last_words(core, autocommit, timeout_ms or self.config.default_api_timeout_ms))
        self._tell_goodbye(core)

    def _tell_goodbye(self, core: ConsumerCore) -> None:
        """Tells the listener that all partitions go."""
        farewell = core.farewell(self._listener)
        if farewell is not None:
            try:
                self._tell(farewell)
            except Exception:
                core.log_listener_failure()

    # Within a poll

    def _hand_over(self, core: ConsumerCore, handover: Handover) -> None:
        """Carries out a handover; raises an error of the listener at the end."""
        failure: Exception | None = None
        for step in core.handover_steps(handover, self._listener):
            if not step.is_listeners:
                self._call(_run(step.run))
                continue
            try:
                self._tell(step.run)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _tell(self, hook: Callable[[], object]) -> None:
        """Calls a method of the listener in this thread; one that returns an awaitable is awaited on the loop."""
        answer = hook()
        if inspect.isawaitable(answer):
            self._call(maybe_await(answer))

    def _run_callbacks(self) -> None:
        while self._answered:
            self._answered.popleft()()


async def _run(step: Callable[[], object]) -> None:
    await maybe_await(step())


def _exception(error: BaseException | None) -> Exception | None:
    return error if isinstance(error, Exception) else None
