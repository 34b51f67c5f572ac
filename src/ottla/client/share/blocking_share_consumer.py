"""`ShareConsumer`: `AsyncShareConsumer` for programs that do not use asyncio.

Fetching, heartbeats and acknowledgements go on in a thread of its own. Records are deserialized, and the callback is
called, in the program's thread.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ottla.client.arguments import checks_arguments
from ottla.client.loop_thread import LoopThread
from ottla.client.options import configured
from ottla.client.serializers import NotPreparedError
from ottla.client.share.async_share_consumer import AsyncShareConsumer, acknowledge_explicitly, checked_bad_values
from ottla.client.share.core import Results, ShareConsumerCore
from ottla.client.share.options import ShareConsumerConfig, ShareConsumerOptions
from ottla.client.share.values import AcknowledgementCommitCallback, AcknowledgeType, ShareRecord, ShareRecords
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.fetch.typed_columns import BadValues

T = TypeVar("T")
_STEP_SECONDS: Final = 3600.0
"""The longest single wait for the loop's thread."""


@checks_arguments()
class ShareConsumer:
    """Reads records together with the other members of a share group, and acknowledges each one.

    Several members can read the same partition: a broker gives each record to one member, which holds an acquisition
    lock until it acknowledges the record or the lock times out. Only one thread may use it at a time; `wakeup` may be
    called from any thread. It connects at the first use. A context manager that closes the consumer at the end.
    `ShareConsumerConfig` has the options. Wrong options raise `OptionError`, arguments of the wrong type
    `ArgumentError`, and every method raises `MisuseError` after `close`.

        with ShareConsumer("jobs", group_id="workers", bootstrap_servers="localhost:9092") as consumer:
            for record in consumer:
                ...
    """

    def __init__(self, *topics: str, **options: Unpack[ShareConsumerOptions]) -> None:
        self.config = configured(ShareConsumerConfig, "ShareConsumer", options)
        self._asynchronous = AsyncShareConsumer(*topics, **options)
        self._thread: LoopThread | None = None
        self._made: ShareConsumerCore | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # The thread of the loop

    @property
    def _core(self) -> ShareConsumerCore:
        if self._is_closed:
            raise MisuseError("the share consumer is closed")
        if self._made is None:
            self._made = self._on_loop(lambda: self._asynchronous._core)
        return self._made

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for it."""
        if self._is_closed:
            work.close()
            raise MisuseError("the share consumer is closed")
        if self._thread is None:
            self._thread = LoopThread("ottla share consumer")
        return self._thread.call(work)

    def _on_loop(self, action: Callable[[], T]) -> T:
        async def run() -> T:
            return action()

        return self._call(run())

    # Subscribing

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribes to topics; the next poll joins the group. Replaces the earlier subscription."""
        self._on_loop(lambda: self._asynchronous.subscribe(topics))

    def unsubscribe(self) -> None:
        """Sends what was acknowledged, releases the other records, and leaves the group."""
        self._call(self._asynchronous.unsubscribe())

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed to; None without a subscription."""
        return self._on_loop(self._asynchronous.subscription)

    def assignment(self) -> set[TopicPartition]:
        """The partitions that the group assigned to this member; other members may read them too."""
        return self._on_loop(self._asynchronous.assignment)

    # Reading

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> ShareRecords:
        """Returns records by partition, at most `max_records`, or an empty dict after the timeout.

        In implicit mode it accepts the records of the last poll. In explicit mode it raises
        `UnacknowledgedRecordsError` if some of them were not acknowledged, and returns records again whose locks were
        renewed. Call it at least every `max_poll_interval_ms`, or the consumer leaves its group. Raises `WakeupError`,
        `RecordDeserializationError` (the record is released), `UnreadableRecordError` for a corrupt batch (its records
        are rejected), and errors of brokers.
        """
        left = self._asynchronous._take_ahead()
        if left:
            return left
        count = self.config.max_poll_records if max_records is None else max_records
        return self._poll(timeout_ms, count, lambda core: self._taken(core, count))

    def _poll(self, timeout_ms: float, count: int, take: Callable[[ShareConsumerCore], T]) -> T:
        """Begins a poll and waits on the loop, and takes records in this thread."""
        core = self._core
        self._asynchronous._run_callback(core)
        clock = core.cluster.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        begins = True
        try:
            while True:
                is_last = clock.monotonic() >= deadline
                step = min(deadline, clock.monotonic() + _STEP_SECONDS)
                self._call(_wait(core, count, step, begins=begins))
                begins = False
                found = take(core)
                if found or is_last:
                    return found
        finally:
            if self._thread is not None:
                self._thread.post(core.end_poll)

    @staticmethod
    def _taken(core: ShareConsumerCore, count: int) -> ShareRecords:
        while True:
            try:
                return core.take(count)
            except NotPreparedError as missing:
                try:
                    missing.prepare()
                except Exception as error:
                    core.refuse(error)

    def poll_arrow(
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

        count = self.config.max_poll_records if max_records is None else max_records
        arrow = ArrowPoll(self._core, headers=headers, bad_values=checked_bad_values(bad_values))

        def take(core: ShareConsumerCore) -> "dict[TopicPartition, pa.RecordBatch]":
            chunks = core.take_chunks(count)
            while True:
                try:
                    return arrow.batches(chunks)
                except NotPreparedError as missing:
                    try:
                        missing.prepare()
                    except BaseException:
                        arrow.release(chunks)
                        raise

        return self._poll(timeout_ms, count, take)

    def __iter__(self) -> Iterator[ShareRecord]:
        """Iterates over records as they arrive; ends after `consumer_timeout_ms` without one.

        In implicit mode a record is accepted when the next one is asked for; `close` releases the last one and all that
        were not iterated over.
        """
        ahead = self._asynchronous._ahead
        while True:
            while ahead:
                record = ahead.popleft()
                yield record
                self._asynchronous._accept(record)
            records = self.poll(self.config.consumer_timeout_ms)
            if not records:
                return
            for some in records.values():
                ahead.extend(some)

    def wakeup(self) -> None:
        """Makes the current `poll`, or the next one, raise `WakeupError`. May be called from any thread."""
        core = self._made
        if core is not None and not self._is_closed:
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

    def commit(self, timeout_ms: int | None = None) -> Results:
        """Sends the acknowledgements, in implicit mode of all records of the last poll, and waits for the answers.

        Returns None or the error for each partition. Records that were not acknowledged because of an error are
        delivered again. An error about single records, such as a lock that timed out, goes to the callback with the
        offsets of these records.
        """
        core = self._core
        self._asynchronous._run_callback(core)
        timeout_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        results = self._call(core.commit(self._asynchronous._left_out(), timeout_ms))
        self._asynchronous._run_callback(core)
        return results

    def commit_async(self) -> "Future[Results]":
        """Starts a commit; the callback and the future get its results."""
        core = self._core
        self._asynchronous._run_callback(core)
        left_out = self._asynchronous._left_out()
        return asyncio.run_coroutine_threadsafe(core.commit(left_out, self.config.default_api_timeout_ms), core.loop)

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Sets the function that is called with the results of acknowledgements; None for no function.

        It gets the offsets by partition, and the error or None. It is called in this thread within a later `poll`,
        `commit`, `commit_async` or `close`, which raise its errors.
        """
        self._asynchronous.set_acknowledgement_commit_callback(callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """How long the group locks a record for a member; None before the first fetch."""
        return self._core.lock_timeout_ms

    def metrics(self) -> dict[str, float]:
        """Metrics of this consumer, by name."""
        return self._on_loop(self._asynchronous.metrics)

    # Closing

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends the acknowledgements, releases all other records, leaves the group and ends the thread.

        In implicit mode it does not accept the records of the last poll: call `commit` before. Errors are logged.
        Calling it again does nothing.
        """
        thread, core = self._thread, self._made
        if self._is_closed or thread is None:
            self._is_closed = True
            return
        try:
            self._call(self._asynchronous._close(timeout_ms))
        finally:
            self._is_closed = True
            thread.close()
        if core is not None:
            self._asynchronous._run_callback(core)


async def _wait(core: ShareConsumerCore, count: int, deadline: float, *, begins: bool) -> None:
    """The part of a poll that runs on the loop: begins it, and waits unless records can be taken at once."""
    if begins:
        core.begin_poll()
        if core.can_take:
            return
    await core.wait_records(count, deadline)
