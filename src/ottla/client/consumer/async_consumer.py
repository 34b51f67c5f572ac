"""`AsyncConsumer`: reads topics or partitions, in a group or alone, for programs that use asyncio.

Covers the public interface; the work is done in `core.py`. `blocking_consumer.py` is for other programs.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ottla.client.arguments import ArgumentError, checks_arguments, shown
from ottla.client.consumer.consumer_lookups import ConsumerLookups, as_offsets
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.options import ISOLATION_LEVELS, ConsumerConfig, ConsumerOptions
from ottla.client.consumer.record_stream import RecordStream
from ottla.client.fetch.fetch_plan_state import Records, UnreadableError
from ottla.client.group.handover import Handover
from ottla.client.group.offset_committer import Offsets
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.network.list_offsets import END, START
from ottla.client.options import configured
from ottla.client.serializers import NotPreparedError
from ottla.client.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.fetch.arrow_chunks import Polled
    from ottla.client.fetch.chunk import Chunk
    from ottla.client.fetch.typed_columns import BadValues, TypedColumns

T = TypeVar("T")
CommitCallback = Callable[[Offsets, Exception | None], object]
_FOREVER: Final = float("inf")
_ARROW_BYTES_MAX: Final = 16 * 1024 * 1024


@checks_arguments()
class AsyncConsumer:
    """Reads records. Only one task may use it at a time; `wakeup` may be called from any thread.

    It connects at the first use. An async context manager that closes the consumer at the end. `ConsumerConfig` has
    the options. Wrong options raise `OptionError`, arguments of the wrong type `ArgumentError`, and every method raises
    `MisuseError` after `close`.

        async with AsyncConsumer("orders", group_id="billing", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                ...
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self.config = configured(ConsumerConfig, "AsyncConsumer", options)
        self.config.check()
        self._topics = _checked_topics(topics)
        self._listener: ConsumerRebalanceListener | None = None
        self._stream = RecordStream()
        self._made: ConsumerCore | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(autocommit=error is None)

    async def start(self) -> None:
        """Connects now instead of at the first use."""
        self._core.start()

    @property
    def _core(self) -> ConsumerCore:
        if self._is_closed:
            raise MisuseError("the consumer is closed")
        if self._made is None:
            self._made = ConsumerCore(self.config)
            if self._topics:
                self._made.subscribe(self._topics, None)
        return self._made

    @property
    def _lookups(self) -> ConsumerLookups:
        self._core.start()
        return ConsumerLookups(self._core)

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
        core = self._core
        if (pattern is None) == (not topics):
            raise MisuseError("subscribe takes either topics or a pattern, and not both")
        core.subscribe(_checked_topics(topics), pattern)
        self._listener = listener

    async def unsubscribe(self) -> None:
        """Ends the subscription or assignment and leaves the group."""
        self._stream.take()
        await self._tell_goodbye(self._core)
        await self._core.unsubscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Reads exactly these partitions, without sharing them with a group; offsets can still be committed to one."""
        core = self._core
        for partition in self._stream.undelivered():
            if partition not in partitions:
                self._stream.drop(partition)
        core.assign([TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are assigned now."""
        return set(self._core.subscription.partitions)

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed to; None without a subscription."""
        return set(self._core.subscription.topics) or None

    # Reading

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
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
                return await self._poll(timeout_ms, lambda core: core.take(count))
            except UnreadableError as unread:
                await asyncio.to_thread(self._core.prepare, unread)

    async def _poll(self, timeout_ms: float, take: Callable[[ConsumerCore], T]) -> T:
        core = self._core
        clock = core.cluster.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        try:
            while True:
                core.begin_poll()
                while (handover := core.member.state.handover) is not None:
                    await self._hand_over(core, handover)
                found = take(core)
                remaining = deadline - clock.monotonic()
                if found:
                    return found
                if remaining <= 0:
                    # Fetching needs the event loop, which a program that polls without a timeout would never leave.
                    await asyncio.sleep(0)
                    return found
                await core.wait_ready(remaining)
        finally:
            core.end_poll()

    async def poll_arrow(
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

        return as_batches(await self._poll_decoded(timeout_ms, max_bytes, headers, bad_values))

    async def poll_table(
        self,
        timeout_ms: float = 0,
        max_bytes: int = _ARROW_BYTES_MAX,
        *,
        headers: bool = True,
        bad_values: "BadValues" = "raise",
    ) -> "pa.Table":
        """As `poll_arrow`, in one table with the columns `topic` and `partition` in front."""
        from ottla.client.fetch.arrow_chunks import as_table

        return as_table(await self._poll_decoded(timeout_ms, max_bytes, headers, bad_values), headers=headers)

    async def _poll_decoded(
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
            chunks = await self._poll(left_ms, lambda core: core.take_chunks(max_bytes))
            polled = decode_polled(chunks, headers=headers or bool(typed))
            if typed:
                polled = await self._typed(typed, polled, chunks, headers, bad_values)
            for partition, offset in polled.rewinds.items():
                self.seek(partition, offset)
            if polled.error is not None:
                raise polled.error
            # Chunks may have no visible records, such as aborted transactions.
            if polled.batches or not chunks:
                return polled.batches

    async def _typed(
        self, typed: "TypedColumns", polled: "Polled", chunks: "list[Chunk]", headers: bool, bad_values: "BadValues"
    ) -> "Polled":
        """Typed columns. If the registry cannot be asked, the positions go back before it is raised."""
        from ottla.client.fetch.arrow_chunks import all_starts

        try:
            while True:
                try:
                    return typed.apply(polled, chunks, headers=headers, bad_values=bad_values)
                except NotPreparedError as missing:
                    await asyncio.to_thread(missing.prepare)
        except BaseException:
            for partition, offset in all_starts(chunks).items():
                self.seek(partition, offset)
            raise

    async def getone(self) -> ConsumerRecord:
        """Waits for the next record."""
        while True:
            some = self._stream.some()
            if some is not None:
                record = next(some)
                if self._core.returned.order and await self._core.returned.hold_back(record):
                    continue
                return record
            self._stream.feed(await self.poll(_FOREVER))

    async def getmany(self, *, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """The same as `poll`, as aiokafka calls it."""
        return await self.poll(timeout_ms, max_records)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterates over records as they arrive; ends after `consumer_timeout_ms` without one.

        Commits leave out records that were not iterated over yet.
        """
        while True:
            while (some := self._stream.some()) is not None:
                returned = self._core.returned
                for record in some:
                    if not (returned.order and await returned.hold_back(record)):
                        yield record
            records = await self.poll(self.config.consumer_timeout_ms)
            if not records:
                return
            self._stream.feed(records)

    def wakeup(self) -> None:
        """Makes the current `poll`, or the next one, raise `WakeupError`. May be called from any thread."""
        core = self._core
        core.call_soon(core.wakeup)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Moves the position to an offset. With a leader epoch the position is validated: raises `LogTruncatedError` in
        `poll` if records before it were lost."""
        core = self._core
        self._stream.drop(partition)
        if isinstance(offset, OffsetAndMetadata):
            core.seek(partition, offset.offset, offset.leader_epoch)
        else:
            core.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the first offset of these partitions, or of all. The offset is looked up by `poll`."""
        self._reset(partitions, START)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Moves the positions to the end offset of these partitions, or of all. The offset is looked up by `poll`."""
        self._reset(partitions, END)

    def _reset(self, partitions: Collection[TopicPartition], to: int) -> None:
        core = self._core
        for partition in partitions or list(core.subscription.partitions):
            self._stream.drop(partition)
            core.reset(partition, to)

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record, looked up if it is not known yet. Raises `DeadlineError`."""
        first = self._stream.undelivered().get(partition)
        return first.offset if first is not None else await self._lookups.position(partition, timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stops returning records of these partitions until `resume`; they stay assigned."""
        undelivered = self._stream.undelivered()
        for partition in partitions:
            self._core.pause(partition)
            if partition in undelivered:
                self.seek(partition, undelivered[partition].offset)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undoes `pause`."""
        for partition in partitions:
            self._core.resume(partition)

    def paused(self) -> set[TopicPartition]:
        """The paused partitions."""
        return {each for each, state in self._core.subscription.partitions.items() if state.is_paused}

    # Committed offsets

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: int | None = None) -> None:
        """Commits offsets, each the next one to read, by default all positions. Waits for the response.

        Raises `CommitFailedError` if the consumer is not a member of the group any more (poll to join again), and
        `DeadlineError` after `timeout_ms`.
        """
        await self._core.commit(self._to_commit(offsets), timeout_ms)

    def commit_async(
        self, offsets: Mapping[TopicPartition, Any] | None = None, callback: CommitCallback | None = None
    ) -> "asyncio.Task[None]":
        """Starts a commit. The callback gets the offsets, and the error or None. Commits are sent in order."""
        core, wanted = self._core, self._to_commit(offsets)

        async def commit() -> None:
            try:
                await core.commit(wanted)
            except OttlaError as error:
                if callback is None:
                    raise
                callback(wanted, error)
                return
            if callback is not None:
                callback(wanted, None)

        return core.run_behind(commit())

    def _to_commit(self, offsets: Mapping[TopicPartition, Any] | None) -> Offsets:
        if offsets is not None:
            return as_offsets(offsets)
        found = dict(self._core.offsets_to_commit())
        for partition, record in self._stream.undelivered().items():
            if partition in found:
                found[partition] = OffsetAndMetadata(record.offset)
        return found

    async def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: int | None = None
    ) -> int | OffsetAndMetadata | None:
        """The committed offset of a partition, with `metadata=True` as `OffsetAndMetadata`; None if there is none."""
        found = (await self._lookups.committed([partition], timeout_ms))[partition]
        return found if metadata or found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The identity of this group member, for a producer that commits offsets in a transaction."""
        return self._core.group_metadata()

    # Giving up records

    async def retry(self, record: ConsumerRecord, error: BaseException | str) -> None:
        """Hands a record back: it returns to the group after a backoff that grows, up to `ottla.retry.max.attempts`
        times; then it becomes a dead letter.

        Returns when the record is acknowledged, so its offset may be committed then. The group reads it again if its
        consumers have `enable_retry`. Raises `RetryNotEnabledError` if the topic does not have `ottla.retry.enable`,
        `RecordGoneError`, and the errors of a producer: the record was not handed back then.
        """
        await self._core.returned.retry(record, error)

    async def reject(self, record: ConsumerRecord, reason: BaseException | str) -> None:
        """Writes a record that can never be handled to the dead-letter topic of its topic, with the reason in headers.

        The topic is `errors.deadletterqueue.topic.name` in the configs of the record's topic, or `dlq.<topic>`. Returns
        when the record is acknowledged, so its offset may be committed then. Raises `RecordGoneError`, and the errors
        of a producer.
        """
        await self._core.returned.reject(record, reason)

    # Lookups

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._lookups.bounds(partitions, START, timeout_ms)

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The end offset of each partition, after its last record; for read_committed the last stable offset."""
        return await self._lookups.bounds(partitions, END, timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a timestamp in milliseconds; None if there is none."""
        return await self._lookups.offsets_for_times(timestamps, timeout_ms)

    async def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """The partitions of a topic; None if it does not exist."""
        return await self._lookups.partitions_for_topic(topic, timeout_ms)

    async def topics(self, timeout_ms: int | None = None) -> set[str]:
        """The names of all topics except internal ones."""
        return await self._lookups.topics(timeout_ms)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end of a partition; None before the first fetch."""
        core = self._core
        committed_only = ISOLATION_LEVELS[self.config.isolation_level] != 0
        lag = core.subscription.lag(partition, committed_only=committed_only)
        first = self._stream.undelivered().get(partition)
        if lag is not None and first is not None:
            lag += core.subscription.state(partition).offset - first.offset
        return lag

    def metrics(self) -> dict[str, float]:
        """Metrics of this consumer, by name."""
        return self._core.metrics()

    # Closing

    async def close(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """Commits if auto-commit is enabled, tells the listener, leaves the group and closes all connections.

        Errors are logged. Calling it again does nothing.
        """
        core, self._made, was_closed, self._is_closed = self._made, None, self._is_closed, True
        if core is None or was_closed:
            return
        timeout_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._last_words(core, autocommit, timeout_ms)
        await core.close()

    async def _last_words(self, core: ConsumerCore, autocommit: bool, timeout_ms: int) -> None:
        state = core.member.state
        if autocommit and self.config.enable_auto_commit and self.config.group_id is not None:
            offsets = dict(core.offsets_to_commit())
            for partition, record in self._stream.undelivered().items():
                if partition in offsets:
                    offsets[partition] = OffsetAndMetadata(record.offset)
            if not state.owned or state.is_member:
                await core.commit_quietly(offsets, timeout_ms)
        await self._tell_goodbye(core)

    async def _tell_goodbye(self, core: ConsumerCore) -> None:
        """Tells the listener that all partitions go."""
        farewell = core.farewell(self._listener)
        if farewell is not None:
            try:
                await maybe_await(farewell())
            except Exception:
                core.log_listener_failure()

    async def _hand_over(self, core: ConsumerCore, handover: Handover) -> None:
        """Carries out a handover; raises an error of the listener at the end."""
        failure: Exception | None = None
        for step in core.handover_steps(handover, self._listener):
            try:
                await maybe_await(step.run())
            except Exception as error:
                if not step.is_listeners:
                    raise
                failure = failure or error
        if failure is not None:
            raise failure


async def maybe_await(answer: object) -> None:
    """Awaits what a listener returned, if it can be awaited."""
    if inspect.isawaitable(answer):
        await answer


def _checked_topics(topics: Collection[str]) -> Collection[str]:
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise MisuseError(f"topics must be a list of topic names; {topic!r} is not one")
    return topics
