"""`Consumer`: the same as `AsyncConsumer` for programs that do not use asyncio.

Fetching, heartbeats and commits go on in a thread of the consumer's own; records are made, and listeners and callbacks
called, on the program's. A poll that finds records here does not need the other thread at all.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ottla.client.consumer.async_consumer import AsyncConsumer, CommitCallback
from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.fetch_plan_state import Records
from ottla.client.consumer.options import ConsumerConfig, ConsumerOptions
from ottla.client.consumer.reader import Chunk
from ottla.client.consumer.record_stream import RecordStream
from ottla.client.group.rebalance import Handover
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.loop_thread import LoopThread
from ottla.client.options import configured
from ottla.client.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
_ARROW_BYTES_MAX: Final = 16 * 1024 * 1024
_STEP_SECONDS: Final = 3600.0
"""The longest single wait for the other thread."""


class Consumer:
    """Reads records. One thread may use it at a time; only `wakeup` may be called from anywhere.

    Nothing connects before the first use. A context manager that closes it at the end:

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
        """Callbacks of commits that have been answered; called when the program comes by."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(autocommit=error is None)

    # The other thread

    @property
    def _core(self) -> ConsumerCore:
        if self._made is None:
            self._made = self._on_loop(lambda: self._asynchronous._core)
        return self._made

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs something there and waits for it."""
        if self._is_closed:
            work.close()
            raise MisuseError("this consumer is closed")
        if self._thread is None:
            self._thread = LoopThread("ottla consumer")
        return self._thread.call(work)

    def _on_loop(self, action: Callable[[], T]) -> T:
        async def run() -> T:
            return action()

        return self._call(run())

    # What is read

    def subscribe(
        self,
        topics: Collection[str] = (),
        *,
        pattern: str | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Reads these topics, or all whose name matches the pattern from its beginning, also those made later.

        With a group, partitions are shared with its other members; without one, all are read. Replaces what was
        subscribed to before. The next poll joins. Patterns are Python's regular expressions; with
        `group_protocol="consumer"` the coordinator matches them, and they are RE2's.
        """
        self._on_loop(lambda: self._asynchronous.subscribe(topics, pattern=pattern))
        self._listener = listener

    def unsubscribe(self) -> None:
        """Leaves the group, and reads nothing."""
        self._tell_goodbye(self._core)
        self._call(self._asynchronous.unsubscribe())

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Reads exactly these partitions, whatever a group may say; offsets can still be committed to one."""
        self._on_loop(lambda: self._asynchronous.assign(partitions))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read at this moment."""
        return self._on_loop(self._asynchronous.assignment)

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed to; None if none are."""
        return self._on_loop(self._asynchronous.subscription)

    # Reading

    def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Records by partition, at most `max_records`, or nothing after the timeout.

        Also what keeps the group going: rebalances happen here, listeners are called, and offsets committed if that is
        automatic. Call it again within `max_poll_interval_ms`.
        """
        left = self._stream.take()
        if left:
            return left
        count = self.config.max_poll_records if max_records is None else max_records
        return self._poll(timeout_ms, lambda core: core.take(count))

    def _poll(self, timeout_ms: float, take: Callable[[ConsumerCore], T]) -> T:
        core = self._core
        if self._is_closed:
            raise MisuseError("this consumer is closed")
        clock = core.cluster.clock
        now = clock.monotonic()
        if core.is_settled and not self._answered:
            found = take(core)
            if found or timeout_ms <= 0:
                core.membership.state.touch(now)
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
        self, timeout_ms: float = 0, max_bytes: int = _ARROW_BYTES_MAX, *, headers: bool = True
    ) -> "dict[TopicPartition, pa.RecordBatch]":
        """The records of each partition as one Arrow batch, or none after the timeout; about `max_bytes` at most.

        Everything else is as with `poll`, but deserializers, interceptors and `max_poll_records` have no part in it.
        A damaged batch raises once all good records before it are handed out. Needs pyarrow.
        """
        import ottla.client.needed_arrow  # noqa: F401  # says what to install, if anything
        from ottla.client.consumer.arrow import as_batches

        return as_batches(self._poll_decoded(timeout_ms, max_bytes, headers))

    def poll_table(
        self, timeout_ms: float = 0, max_bytes: int = _ARROW_BYTES_MAX, *, headers: bool = True
    ) -> "pa.Table":
        """The same as one table, with columns `topic` and `partition` in front."""
        import ottla.client.needed_arrow  # noqa: F401  # says what to install, if anything
        from ottla.client.consumer.arrow import as_table

        return as_table(self._poll_decoded(timeout_ms, max_bytes, headers), headers=headers)

    def _poll_decoded(
        self, timeout_ms: float, max_bytes: int, headers: bool
    ) -> "dict[TopicPartition, list[pa.RecordBatch]]":
        import ottla.client.needed_arrow  # noqa: F401  # says what to install, if anything
        from ottla.client.consumer.arrow import decode_polled

        monotonic = self._core.cluster.clock.monotonic
        deadline = monotonic() + timeout_ms / 1000
        # What iterating took and did not hand out comes again.
        for partition, first in self._stream.undelivered().items():
            self.seek(partition, first.offset)
        while True:
            chunks = self._poll_chunks(max_bytes, max((deadline - monotonic()) * 1000, 0))
            polled = decode_polled(chunks, headers=headers)
            for partition, offset in polled.rewinds.items():
                self.seek(partition, offset)
            if polled.error is not None:
                raise polled.error
            # Chunks may hold nothing to see, such as aborted transactions.
            if polled.batches or not chunks:
                return polled.batches

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Every record, as it comes; ends when none came for `consumer_timeout_ms`.

        What has not been iterated over yet is not counted by commits.
        """
        while True:
            while (some := self._stream.some()) is not None:
                yield from some
            records = self.poll(self.config.consumer_timeout_ms)
            if not records:
                return
            self._stream.feed(records)

    def __next__(self) -> ConsumerRecord:
        """The next record; raises `StopIteration` if none came for `consumer_timeout_ms`."""
        some = self._stream.some()
        if some is None:
            self._stream.feed(self.poll(self.config.consumer_timeout_ms))
            some = self._stream.some()
            if some is None:
                raise StopIteration
        return next(some)

    def wakeup(self) -> None:
        """Makes a `poll` that waits, or the next one, raise `WakeupError`. May be called from any thread."""
        core = self._made
        if core is not None and not self._is_closed:
            core.call_soon(core.wakeup)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Goes on at this offset; with a leader epoch, once its leader says that the records before still exist."""
        self._on_loop(lambda: self._asynchronous.seek(partition, offset))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes on at the first record of these partitions, of all without any; looked up when it is needed."""
        self._on_loop(lambda: self._asynchronous.seek_to_beginning(*partitions))

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes on behind the last record of these partitions, of all without any; looked up when it is needed."""
        self._on_loop(lambda: self._asynchronous.seek_to_end(*partitions))

    def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record, looked up if it is not known yet. Raises `DeadlineError` if nobody tells."""
        return self._call(self._asynchronous.position(partition, timeout_ms))

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these partitions until `resume`; the membership in the group goes on."""
        self._on_loop(lambda: self._asynchronous.pause(*partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Undoes `pause`."""
        self._on_loop(lambda: self._asynchronous.resume(*partitions))

    def paused(self) -> set[TopicPartition]:
        """What is paused."""
        return self._on_loop(self._asynchronous.paused)

    # Offsets of the group

    def commit(self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: int | None = None) -> None:
        """Commits these offsets, each the next one to read, or where every partition is. Returns once it is done.

        Raises `CommitFailedError` if the group has gone on without this member: poll, to join again.
        """
        self._run_callbacks()
        self._call(self._asynchronous.commit(offsets, timeout_ms))

    def commit_async(
        self, offsets: Mapping[TopicPartition, Any] | None = None, callback: CommitCallback | None = None
    ) -> "Future[None]":
        """Begins to commit. The callback gets the offsets, and what went wrong or None, on this thread, while it polls,
        commits or closes. Commits keep their order."""
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
        """What the group committed for a partition: the offset, with `metadata` all of it, None for nothing."""
        return self._call(self._asynchronous.committed(partition, metadata, timeout_ms))

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group; for a producer that commits these offsets in a transaction."""
        return self._on_loop(self._asynchronous.group_metadata)

    # Questions

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return self._call(self._asynchronous.beginning_offsets(partitions, timeout_ms))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition; for read_committed, the last stable offset."""
        return self._call(self._asynchronous.end_offsets(partitions, timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None if none is that young."""
        return self._call(self._asynchronous.offsets_for_times(timestamps, timeout_ms))

    def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """The partitions of a topic; None if it does not exist."""
        return self._call(self._asynchronous.partitions_for_topic(topic, timeout_ms))

    def topics(self, timeout_ms: int | None = None) -> set[str]:
        """All topics, without the broker's own."""
        return self._call(self._asynchronous.topics(timeout_ms))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets this consumer is behind in a partition; None until something was fetched of it."""
        return self._on_loop(lambda: self._asynchronous.current_lag(partition))

    def metrics(self) -> dict[str, float]:
        """Numbers about this consumer, by name."""
        return self._on_loop(self._asynchronous.metrics)

    # The end

    def close(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """Commits if that is automatic, tells the listener, leaves the group, and ends the thread.

        Closing twice is harmless.
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
        """The last commit, and the listener on this thread."""
        self._call(self._asynchronous._last_words(core, autocommit, timeout_ms or self.config.default_api_timeout_ms))
        self._tell_goodbye(core)

    def _tell_goodbye(self, core: ConsumerCore) -> None:
        """The listener hears that everything goes."""
        state = core.membership.state
        if state.owned and self._listener is not None:
            hook = self._listener.on_partitions_lost if core.is_fenced else self._listener.on_partitions_revoked
            try:
                self._heard(hook(sorted(state.owned)))
            except Exception:
                core.log_listener_failure()

    # Within a poll

    def _hand_over(self, core: ConsumerCore, handover: Handover) -> None:
        """Does what the group asks for, and tells the listener; what that raises comes at the end."""
        listener = self._listener or ConsumerRebalanceListener()
        failure: Exception | None = None
        self._call(core.release(handover))
        try:
            if handover.lost:
                self._heard(listener.on_partitions_lost(sorted(handover.lost)))
            if handover.revoked:
                self._heard(listener.on_partitions_revoked(sorted(handover.revoked)))
        except Exception as error:
            failure = error
        self._on_loop(lambda: core.apply(handover))
        try:
            if handover.is_new_assignment:
                self._heard(listener.on_partitions_assigned(sorted(handover.added)))
        except Exception as error:
            failure = failure or error
        self._on_loop(lambda: core.finish(handover))
        if failure is not None:
            raise failure

    def _heard(self, answer: object) -> None:
        """A listener of the asyncio kind is awaited where it can be."""
        if inspect.isawaitable(answer):

            async def wait() -> None:
                await answer

            self._call(wait())

    def _run_callbacks(self) -> None:
        while self._answered:
            self._answered.popleft()()

    def _poll_chunks(self, bytes_max: int, timeout_ms: float) -> list[Chunk]:
        """Fetched batches as they are, for readers of columns; everything else as `poll` does it."""
        return self._poll(timeout_ms, lambda core: core.take_chunks(bytes_max))


def _exception(error: BaseException | None) -> Exception | None:
    return error if isinstance(error, Exception) else None
