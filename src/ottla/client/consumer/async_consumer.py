"""`AsyncConsumer`: records of topics or partitions, shared with a group or alone, for programs that use asyncio.

Covers what a program sees. How it is done is in `consumer_core.py` and what that names; the twin for other programs is
`blocking_consumer.py`.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from ottla.client.consumer.core import ConsumerCore
from ottla.client.consumer.fetch_plan_state import Records
from ottla.client.consumer.lookups import ConsumerQuestions, as_offsets
from ottla.client.consumer.options import ISOLATION_LEVELS, ConsumerConfig, ConsumerOptions
from ottla.client.consumer.reader import Chunk
from ottla.client.consumer.record_stream import RecordStream
from ottla.client.group.offset_committer import Offsets
from ottla.client.group.rebalance import Handover
from ottla.client.group.rebalance_listener import ConsumerRebalanceListener
from ottla.client.network.list_offsets import END, START
from ottla.client.options import configured
from ottla.client.values import ConsumerGroupMetadata, ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

CommitCallback = Callable[[Offsets, Exception | None], object]
_FOREVER: Final = float("inf")
_ARROW_BYTES_MAX: Final = 16 * 1024 * 1024


class AsyncConsumer:
    """Reads records. One task may use it at a time; only `wakeup` may be called from anywhere.

    Nothing connects before the first use. An async context manager that closes it at the end:

        async with AsyncConsumer("orders", group_id="billing", bootstrap_servers="localhost:9092") as consumer:
            async for record in consumer:
                ...
    """

    def __init__(self, *topics: str, **options: Unpack[ConsumerOptions]) -> None:
        self.config = configured(ConsumerConfig, "AsyncConsumer", options)
        self.config.check()
        self._topics = topics
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
        """Begins to connect, which the first use would do as well."""
        self._core.start()

    @property
    def _core(self) -> ConsumerCore:
        if self._is_closed:
            raise MisuseError("this consumer is closed")
        if self._made is None:
            self._made = ConsumerCore(self.config)
            if self._topics:
                self._made.subscribe(_checked_topics(self._topics), None)
        return self._made

    @property
    def _questions(self) -> ConsumerQuestions:
        self._core.start()
        return ConsumerQuestions(self._core)

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
        core = self._core
        if (pattern is None) == (not topics):
            raise MisuseError("subscribe takes either topics or a pattern")
        core.subscribe(_checked_topics(topics), pattern)
        self._listener = listener

    async def unsubscribe(self) -> None:
        """Leaves the group, and reads nothing."""
        self._stream.take()
        await self._tell_goodbye(self._core)
        await self._core.unsubscribe()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Reads exactly these partitions, whatever a group may say; offsets can still be committed to one."""
        core = self._core
        for partition in self._stream.undelivered():
            if partition not in partitions:
                self._stream.drop(partition)
        core.assign([TopicPartition(*partition) for partition in partitions])

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are read at this moment."""
        return set(self._core.subscription.partitions)

    def subscription(self) -> set[str] | None:
        """The topics that are subscribed to; None if none are."""
        return set(self._core.subscription.topics) or None

    # Reading

    async def poll(self, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Records by partition, at most `max_records`, or nothing after the timeout.

        Also what keeps the group going: rebalances happen here, listeners are called, and offsets committed if that is
        automatic. Call it again within `max_poll_interval_ms`.
        """
        core = self._core
        left = self._stream.take()
        if left:
            return left
        clock = core.cluster.clock
        deadline = clock.monotonic() + timeout_ms / 1000
        count = self.config.max_poll_records if max_records is None else max_records
        try:
            while True:
                core.begin_poll()
                while (handover := core.membership.state.handover) is not None:
                    await self._hand_over(handover)
                found = core.take(count)
                remaining = deadline - clock.monotonic()
                if found or remaining <= 0:
                    return found
                await core.wait_ready(remaining)
        finally:
            core.end_poll()

    async def poll_arrow(
        self, timeout_ms: float = 0, max_bytes: int = _ARROW_BYTES_MAX, *, headers: bool = True
    ) -> "dict[TopicPartition, pa.RecordBatch]":
        """The records of each partition as one Arrow batch, or none after the timeout; about `max_bytes` at most.

        Everything else is as with `poll`, but deserializers, interceptors and `max_poll_records` have no part in it.
        A damaged batch raises once all good records before it are handed out. Needs pyarrow.
        """
        import ottla.client.needed_arrow  # noqa: F401  # says what to install, if anything
        from ottla.client.consumer.arrow import as_batches

        return as_batches(await self._poll_decoded(timeout_ms, max_bytes, headers))

    async def poll_table(
        self, timeout_ms: float = 0, max_bytes: int = _ARROW_BYTES_MAX, *, headers: bool = True
    ) -> "pa.Table":
        """The same as one table, with columns `topic` and `partition` in front."""
        import ottla.client.needed_arrow  # noqa: F401  # says what to install, if anything
        from ottla.client.consumer.arrow import as_table

        return as_table(await self._poll_decoded(timeout_ms, max_bytes, headers), headers=headers)

    async def _poll_decoded(
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
            chunks = await self._poll_chunks(max_bytes, max((deadline - monotonic()) * 1000, 0))
            polled = decode_polled(chunks, headers=headers)
            for partition, offset in polled.rewinds.items():
                self.seek(partition, offset)
            if polled.error is not None:
                raise polled.error
            # Chunks may hold nothing to see, such as aborted transactions.
            if polled.batches or not chunks:
                return polled.batches

    async def getone(self) -> ConsumerRecord:
        """The next record, however long it takes."""
        while True:
            some = self._stream.some()
            if some is not None:
                return next(some)
            self._stream.feed(await self.poll(_FOREVER))

    async def getmany(self, *, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """The same as `poll`, by another name that Python's users know."""
        return await self.poll(timeout_ms, max_records)

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Every record, as it comes; ends when none came for `consumer_timeout_ms`.

        What has not been iterated over yet is not counted by commits.
        """
        while True:
            while (some := self._stream.some()) is not None:
                for record in some:
                    yield record
            records = await self.poll(self.config.consumer_timeout_ms)
            if not records:
                return
            self._stream.feed(records)

    def wakeup(self) -> None:
        """Makes a `poll` that waits, or the next one, raise `WakeupError`. May be called from any thread."""
        core = self._core
        core.call_soon(core.wakeup)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Goes on at this offset; with a leader epoch, once its leader says that the records before still exist."""
        core = self._core
        self._stream.drop(partition)
        if isinstance(offset, OffsetAndMetadata):
            core.seek(partition, offset.offset, offset.leader_epoch)
        else:
            core.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Goes on at the first record of these partitions, of all without any; looked up when it is needed."""
        self._reset(partitions, START)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Goes on behind the last record of these partitions, of all without any; looked up when it is needed."""
        self._reset(partitions, END)

    def _reset(self, partitions: Collection[TopicPartition], to: int) -> None:
        core = self._core
        for partition in partitions or list(core.subscription.partitions):
            self._stream.drop(partition)
            core.reset(partition, to)

    async def position(self, partition: TopicPartition, timeout_ms: int | None = None) -> int:
        """The offset of the next record, looked up if it is not known yet. Raises `DeadlineError` if nobody tells."""
        first = self._stream.undelivered().get(partition)
        return first.offset if first is not None else await self._questions.position(partition, timeout_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these partitions until `resume`; the membership in the group goes on."""
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
        """What is paused."""
        return {each for each, state in self._core.subscription.partitions.items() if state.is_paused}

    # Offsets of the group

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None, timeout_ms: int | None = None) -> None:
        """Commits these offsets, each the next one to read, or where every partition is. Returns once it is done.

        Raises `CommitFailedError` if the group has gone on without this member: poll, to join again.
        """
        await self._core.commit(self._to_commit(offsets), timeout_ms)

    def commit_async(
        self, offsets: Mapping[TopicPartition, Any] | None = None, callback: CommitCallback | None = None
    ) -> "asyncio.Task[None]":
        """Begins to commit; the callback gets the offsets, and what went wrong or None. Commits keep their order."""
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
        """What the group committed for a partition: the offset, with `metadata` all of it, None for nothing."""
        found = (await self._questions.committed([partition], timeout_ms))[partition]
        return found if metadata or found is None else found.offset

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this consumer is in its group; for a producer that commits these offsets in a transaction."""
        return self._core.group_metadata()

    # Questions

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._questions.bounds(partitions, START, timeout_ms)

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record of each partition; for read_committed, the last stable offset."""
        return await self._questions.bounds(partitions, END, timeout_ms)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition at or after a time in milliseconds; None if none is that young."""
        return await self._questions.offsets_for_times(timestamps, timeout_ms)

    async def partitions_for_topic(self, topic: str, timeout_ms: int | None = None) -> set[int] | None:
        """The partitions of a topic; None if it does not exist."""
        return await self._questions.partitions_for_topic(topic, timeout_ms)

    async def topics(self, timeout_ms: int | None = None) -> set[str]:
        """All topics, without the broker's own."""
        return await self._questions.topics(timeout_ms)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets this consumer is behind in a partition; None until something was fetched of it."""
        core = self._core
        committed_only = ISOLATION_LEVELS[self.config.isolation_level] != 0
        lag = core.subscription.lag(partition, committed_only=committed_only)
        first = self._stream.undelivered().get(partition)
        if lag is not None and first is not None:
            lag += core.subscription.state(partition).offset - first.offset
        return lag

    def metrics(self) -> dict[str, float]:
        """Numbers about this consumer, by name."""
        return self._core.metrics()

    # The end

    async def close(self, autocommit: bool = True, timeout_ms: int | None = None) -> None:
        """Commits if that is automatic, tells the listener, leaves the group, and ends everything. Never raises.

        Closing twice is harmless.
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
        state = core.membership.state
        if autocommit and self.config.enable_auto_commit and self.config.group_id is not None:
            offsets = dict(core.offsets_to_commit())
            for partition, record in self._stream.undelivered().items():
                if partition in offsets:
                    offsets[partition] = OffsetAndMetadata(record.offset)
            if not state.owned or state.is_member:
                await core.commit_quietly(offsets, timeout_ms)
        await self._tell_goodbye(core)

    async def _tell_goodbye(self, core: ConsumerCore) -> None:
        """The listener hears that everything goes."""
        state = core.membership.state
        if state.owned and self._listener is not None:
            hook = self._listener.on_partitions_lost if core.is_fenced else self._listener.on_partitions_revoked
            try:
                await _maybe_await(hook(sorted(state.owned)))
            except Exception:
                core.log_listener_failure()

    def _take_chunks(self, bytes_max: int) -> list[Chunk]:
        """Fetched batches as they are, for readers of columns; positions move as with records."""
        return self._core.take_chunks(bytes_max)

    async def _poll_chunks(self, bytes_max: int, timeout_ms: float) -> list[Chunk]:
        """What `poll` does, for whole batches."""
        core = self._core
        deadline = core.cluster.clock.monotonic() + timeout_ms / 1000
        try:
            while True:
                core.begin_poll()
                while (handover := core.membership.state.handover) is not None:
                    await self._hand_over(handover)
                found = core.take_chunks(bytes_max)
                remaining = deadline - core.cluster.clock.monotonic()
                if found or remaining <= 0:
                    return found
                await core.wait_ready(remaining)
        finally:
            core.end_poll()

    async def _hand_over(self, handover: Handover) -> None:
        """Does what the group asks for, and tells the listener; what that raises comes at the end."""
        core, listener = self._core, self._listener or ConsumerRebalanceListener()
        failure: Exception | None = None
        await core.release(handover)
        try:
            if handover.lost:
                await _maybe_await(listener.on_partitions_lost(sorted(handover.lost)))
            if handover.revoked:
                await _maybe_await(listener.on_partitions_revoked(sorted(handover.revoked)))
        except Exception as error:
            failure = error
        core.apply(handover)
        try:
            if handover.is_new_assignment:
                await _maybe_await(listener.on_partitions_assigned(sorted(handover.added)))
        except Exception as error:
            failure = failure or error
        core.finish(handover)
        if failure is not None:
            raise failure


async def _maybe_await(answer: object) -> None:
    if inspect.isawaitable(answer):
        await answer


def _checked_topics(topics: Collection[str]) -> Collection[str]:
    if isinstance(topics, str):
        raise MisuseError(f"topics={topics!r} is one text; write a list, as in [{topics!r}]")
    for topic in topics:
        if not isinstance(topic, str) or not topic:
            raise MisuseError(f"{topic!r} is no name of a topic")
    return topics
