"""`AsyncShareConsumer`: a member of a share group, for programs that use asyncio.

Covers the public interface; the work is done in `core.py`. `blocking_share_consumer.py` is for other programs.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

from ottla.client.arguments import ArgumentError, checks_arguments, shown
from ottla.client.options import configured
from ottla.client.serializers import NotPreparedError
from ottla.client.share.core import Results, ShareConsumerCore
from ottla.client.share.options import ShareConsumerConfig, ShareConsumerOptions
from ottla.client.share.values import AcknowledgementCommitCallback, AcknowledgeType, ShareRecord, ShareRecords
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.fetch.typed_columns import BadValues
    from ottla.client.share.acquired_chunk import AcquiredChunk
    from ottla.client.share.arrow_polls import ArrowPoll

_FOREVER: Final = float("inf")


@checks_arguments()
class AsyncShareConsumer:
    """Reads records together with the other members of a share group, and acknowledges each one.

    Several members can read the same partition: a broker gives each record to one member, which holds an acquisition
    lock until it acknowledges the record or the lock times out. Only one task may use it at a time; `wakeup` may be
    called from any thread. It connects at the first use. An async context manager that closes the consumer at the end.
    `ShareConsumerConfig` has the options. Wrong options raise `OptionError`, arguments of the wrong type
    `ArgumentError`, and every method raises `MisuseError` after `close`.

        async with AsyncShareConsumer("jobs", group_id="workers", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                ...
    """

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        self.config = configured(ShareConsumerConfig, "AsyncShareConsumer", options)
        self.config.check()
        self._topics = checked_topics(topics)
        self._callback: AcknowledgementCommitCallback | None = None
        self._ahead: deque[ShareRecord] = deque()
        """Records that an iteration polled and did not hand out yet."""
        self._made: ShareConsumerCore | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _core(self) -> ShareConsumerCore:
        if self._is_closed:
            raise MisuseError("the share consumer is closed")
        if self._made is None:
            self._made = ShareConsumerCore(self.config)
            self._made.keeps_answers = self._callback is not None
            if self._topics:
                self._made.subscribe(self._topics)
        return self._made

    # Subscribing

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribes to topics; the next poll joins the group. Replaces the earlier subscription."""
        if not topics:
            raise MisuseError("subscribe needs at least one topic; call unsubscribe to end the subscription")
        self._core.subscribe(checked_topics(topics))

    async def unsubscribe(self) -> None:
        """Sends what was acknowledged, releases the other records, and leaves the group."""
        self._ahead.clear()
        await self._core.unsubscribe()

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed to; None without a subscription."""
        return set(self._core.state.topics or ()) or None

    def assignment(self) -> set[TopicPartition]:
        """The partitions that the group assigned to this member; other members may read them too."""
        return set(self._core.state.owned)

    # Reading

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> ShareRecords:
        """Returns records by partition, at most `max_records`, or an empty dict after the timeout.

        In implicit mode it accepts the records of the last poll. In explicit mode it raises
        `UnacknowledgedRecordsError` if some of them were not acknowledged, and returns records again whose locks were
        renewed. Call it at least every `max_poll_interval_ms`, or the consumer leaves its group. Raises `WakeupError`,
        `RecordDeserializationError` (the record is released), `UnreadableRecordError` for a corrupt batch (its records
        are rejected), and errors of brokers.
        """
        left = self._take_ahead()
        if left:
            return left
        core = self._core
        self._run_callback(core)
        count = self.config.max_poll_records if max_records is None else max_records
        deadline = core.cluster.clock.monotonic() + timeout_ms / 1000
        try:
            core.begin_poll()
            while True:
                found = await self._taken(core, count)
                if found:
                    return found
                if core.cluster.clock.monotonic() >= deadline:
                    core.fetcher.want(count, deadline)
                    # Fetching needs the event loop, which a program that polls without a timeout would never leave.
                    await asyncio.sleep(0)
                    return found
                await core.wait_records(count, deadline)
        finally:
            core.end_poll()

    @staticmethod
    async def _taken(core: ShareConsumerCore, count: int) -> ShareRecords:
        while True:
            try:
                return core.take(count)
            except NotPreparedError as missing:
                try:
                    await asyncio.to_thread(missing.prepare)
                except Exception as error:
                    core.refuse(error)

    async def poll_arrow(
        self,
        timeout_ms: float = 0,
        max_records: int | None = None,
        *,
        headers: bool = True,
        bad_values: "BadValues" = "raise",
    ) -> "dict[TopicPartition, pa.RecordBatch]":
        """Returns the records of each partition as one Arrow batch with a column `delivery_count`.

        Does what `poll` does, and returns whole fetched batches, so `max_records` may be exceeded. In explicit mode
        use `acknowledge_offsets`. Deserializers with schemas of a registry give typed columns; others are not called.
        A value that cannot be read raises `RecordDeserializationError`, and its record is released; with
        `bad_values="keep"` such a value is null, and the columns `key_error` and `value_error` have its reason and its
        bytes. Needs pyarrow.
        """
        from ottla.client.share.arrow_polls import ArrowPoll

        core = self._core
        arrow = ArrowPoll(core, headers=headers, bad_values=checked_bad_values(bad_values))
        self._run_callback(core)
        count = self.config.max_poll_records if max_records is None else max_records
        deadline = core.cluster.clock.monotonic() + timeout_ms / 1000
        try:
            core.begin_poll()
            while True:
                chunks: list[AcquiredChunk] = core.take_chunks(count)
                found = await self._arrow_of(arrow, chunks)
                if found or core.cluster.clock.monotonic() >= deadline:
                    if not found:
                        core.fetcher.want(count, deadline)
                        await asyncio.sleep(0)
                    return found
                await core.wait_records(count, deadline)
        finally:
            core.end_poll()

    @staticmethod
    async def _arrow_of(arrow: "ArrowPoll", chunks: "list[AcquiredChunk]") -> "dict[TopicPartition, pa.RecordBatch]":
        while True:
            try:
                return arrow.batches(chunks)
            except NotPreparedError as missing:
                try:
                    await asyncio.to_thread(missing.prepare)
                except BaseException:
                    arrow.release(chunks)
                    raise

    async def __aiter__(self) -> AsyncIterator[ShareRecord]:
        """Iterates over records as they arrive; ends after `consumer_timeout_ms` without one.

        In implicit mode a record is accepted when the next one is asked for; `close` releases the last one and all that
        were not iterated over.
        """
        while True:
            while self._ahead:
                record = self._ahead.popleft()
                yield record
                self._accept(record)
            records = await self.poll(self.config.consumer_timeout_ms)
            if not records:
                return
            for some in records.values():
                self._ahead.extend(some)

    async def getone(self) -> ShareRecord:
        """Waits for the next record. In implicit mode the last one is accepted."""
        async for record in self:
            return record
        raise MisuseError("no record arrived within consumer_timeout_ms")

    def _accept(self, record: ShareRecord) -> None:
        """The program asks for the next record of an iteration."""
        core = self._core
        if core.is_implicit:
            core.accept_iterated(record)

    def _take_ahead(self) -> ShareRecords:
        """All records that an iteration left."""
        found: ShareRecords = {}
        while self._ahead:
            record = self._ahead.popleft()
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    def _left_out(self) -> set[tuple[TopicPartition, int]]:
        """Records that an iteration did not hand out yet: commits leave them out."""
        return {(TopicPartition(each.topic, each.partition), each.offset) for each in self._ahead}

    def wakeup(self) -> None:
        """Makes the current `poll`, or the next one, raise `WakeupError`. May be called from any thread."""
        core = self._core
        core.loop.call_soon_threadsafe(core.wakeup)

    # Acknowledging

    def acknowledge(self, record: ShareRecord, type: AcknowledgeType = AcknowledgeType.ACCEPT) -> None:
        """Acknowledges a record that the last poll returned, for explicit mode. Sent by the next `poll` or `commit`.

        Until then another call replaces the type. Raises `NotAcquiredError`, and `MisuseError` in implicit mode.
        """
        self.acknowledge_offsets(TopicPartition(record.topic, record.partition), [record.offset], type)

    def acknowledge_offsets(
        self,
        partition: TopicPartition,
        offsets: Iterable[int],
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Acknowledges the records at these offsets, as `acknowledge` does."""
        acknowledge_explicitly(self._core, partition, offsets, type)

    async def commit(self, timeout_ms: int | None = None) -> Results:
        """Sends the acknowledgements, in implicit mode of all records of the last poll, and waits for the answers.

        Returns None or the error for each partition. Records that were not acknowledged because of an error are
        delivered again. An error about single records, such as a lock that timed out, goes to the callback with the
        offsets of these records.
        """
        core = self._core
        self._run_callback(core)
        timeout_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        results = await core.commit(self._left_out(), timeout_ms)
        self._run_callback(core)
        return results

    def commit_async(self) -> "asyncio.Task[Results]":
        """Starts a commit; the callback and the task get its results."""
        core = self._core
        self._run_callback(core)
        return core.run_behind(core.commit(self._left_out(), self.config.default_api_timeout_ms))

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Sets the function that is called with the results of acknowledgements; None for no function.

        It gets the offsets by partition, and the error or None. It is called within a later `poll`, `commit`,
        `commit_async` or `close`, which raise its errors.
        """
        self._callback = callback
        if self._made is not None:
            self._made.keeps_answers = callback is not None

    def _run_callback(self, core: ShareConsumerCore) -> None:
        while core.answered:
            offsets, error = core.answered.popleft()
            if self._callback is not None:
                self._callback(offsets, error)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the group locks a record for a member; None before the first fetch."""
        return self._core.lock_timeout_ms

    def metrics(self) -> dict[str, float]:
        """Metrics of this consumer, by name."""
        return self._core.metrics()

    # Closing

    async def close(self, timeout_ms: int | None = None) -> None:
        """Sends the acknowledgements, releases all other records, leaves the group and closes all connections.

        In implicit mode it does not accept the records of the last poll: call `commit` before. Errors are logged.
        Calling it again does nothing.
        """
        core = self._made
        await self._close(timeout_ms)
        if core is not None:
            self._run_callback(core)

    async def _close(self, timeout_ms: int | None) -> None:
        core, self._made, self._is_closed = self._made, None, True
        if core is not None:
            self._ahead.clear()
            await core.close(self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms)


def acknowledge_explicitly(
    core: ShareConsumerCore, partition: TopicPartition, offsets: Iterable[int], how: AcknowledgeType
) -> None:
    """Acknowledges records of a consumer in explicit mode."""
    if core.is_implicit:
        raise MisuseError('acknowledge needs share_acknowledgement_mode="explicit"; polls acknowledge in implicit mode')
    for offset in offsets:
        core.acknowledge(partition, offset, how)


def checked_bad_values(bad_values: "BadValues") -> "BadValues":
    """The argument, if it is a known one."""
    if bad_values not in ("raise", "keep"):
        raise ArgumentError(f'bad_values must be "raise" or "keep", not {shown(bad_values)}')
    return bad_values


def checked_topics(topics: Collection[str]) -> Collection[str]:
    """The topics, if all are names."""
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise MisuseError(f"topics must be a list of topic names; {topic!r} is not one")
    return topics
