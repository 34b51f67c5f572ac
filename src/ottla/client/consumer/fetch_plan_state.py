"""What to fetch next, and what was fetched and not yet handed out. Pure.

Every partition that can be read is asked for, those of one leader in one request, and not again while that is under
way. What arrives waits as whole batches, in the order of arrival, until it is taken as records, or as the batches that
it is. Nothing is asked for while more than `read_ahead_bytes` wait, so memory is bounded by that and one answer of each
leader. A partition that is paused keeps what was fetched for it, and holds up nobody.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ottla.client.consumer.reader import Chunk
from ottla.client.consumer.subscription_state import PartitionState, Phase, SubscriptionState
from ottla.client.values import ConsumerRecord
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.protocol.fetch_frames import READ_COMMITTED, Fetched, Wanted
from ottla.records.batch import scan
from ottla.records.record_reader import RecordReader

READ_REPLICA_SECONDS: Final = 300.0
"""How long a nearer replica is read from before the leader is asked again who is near."""

NO_LOCK: Final[AbstractContextManager[object]] = nullcontext()

Deserialize = Callable[[bytes], Any]
Records = dict[TopicPartition, list[ConsumerRecord]]


class Leader(NamedTuple):
    """Who leads a partition, as far as the metadata knows."""

    broker: int
    epoch: int


class FetchProblem(NamedTuple):
    """A partition could not be read at an offset."""

    partition: TopicPartition
    offset: int
    error_code: int
    words: str | None = None


class UnreadableError(Exception):
    """Taking records failed; the cause says why, this says where."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(f"{partition} at offset {offset}")
        self.partition = partition
        self.offset = offset


@dataclass(slots=True, eq=False)
class _Waiting:
    """A chunk in the queue; with a reader once its first record was taken."""

    chunk: Chunk
    reader: "RecordReader[ConsumerRecord] | None" = None

    @property
    def next_offset(self) -> int:
        return self.chunk.start if self.reader is None else self.reader.next_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much, and in which shape."""

    partition_bytes_max: int
    read_ahead_bytes: int
    isolation_level: int
    check_crcs: bool = True
    key_deserializer: Deserialize | None = None
    value_deserializer: Deserialize | None = None


class FetchPlanState:
    """See the module's docstring. What is queued for a partition follows its position without a gap."""

    def __init__(self, subscription: SubscriptionState, limits: FetchLimits) -> None:
        self._subscription = subscription
        self._limits = limits
        self._queue: deque[_Waiting] = deque()
        self._ahead: dict[TopicPartition, int] = {}
        """Where the queued chunks of a partition end."""
        self._in_flight: set[tuple[TopicPartition, int]] = set()
        """The offsets that partitions are being asked for; several of one that was sought meanwhile."""
        self._turn = 0
        self.records_taken = 0
        self.bytes_fetched = 0

    # Asking

    def plan(self, leaders: Mapping[TopicPartition, Leader], now: float) -> dict[int, list[Wanted]]:
        """What to ask which broker for now; each request is to be told to `on_sent`."""
        if self.is_full:
            return {}
        found: dict[int, list[Wanted]] = {}
        partitions = list(self._subscription.partitions.items())
        # Whoever was first in the last request is last in this one: limits must not starve anybody.
        self._turn = (self._turn + 1) % max(len(partitions), 1)
        for partition, state in partitions[self._turn :] + partitions[: self._turn]:
            if not _can_be_read(state) or state.retry_at > now:
                continue
            offset = self._ahead.get(partition, state.offset)
            leader = leaders.get(partition)
            if leader is None or (partition, offset) in self._in_flight:
                continue
            wanted = Wanted(partition, offset, self._limits.partition_bytes_max, leader.epoch)
            broker = state.read_replica if state.read_replica_until > now else leader.broker
            found.setdefault(broker, []).append(wanted)
        for some in found.values():
            # Stable, so that the order within a topic stays.
            some.sort(key=lambda each: each.partition.topic)
        return found

    def on_sent(self, asked: Collection[Wanted]) -> None:
        """A request is under way."""
        for each in asked:
            self._in_flight.add((each.partition, each.offset))

    def on_failed(self, asked: Collection[Wanted]) -> None:
        """A request has no answer. If it went to a nearer replica, the leader is read again: that one may be gone."""
        self._on_returned(asked)
        for each in asked:
            state = self._subscription.partitions.get(each.partition)
            if state is not None:
                state.read_replica_until = 0.0

    def _on_returned(self, asked: Collection[Wanted]) -> None:
        for each in asked:
            self._in_flight.discard((each.partition, each.offset))

    def on_answer(self, asked: Collection[Wanted], answer: Sequence[Fetched], now: float) -> list[FetchProblem]:
        """Queues what came, and answers what went wrong. What is not wanted any more is dropped."""
        self._on_returned(asked)
        offsets = {each.partition: each.offset for each in asked}
        problems = []
        for fetched in answer:
            partition = fetched.partition
            state = self._subscription.partitions.get(partition)
            asked_offset = offsets.get(partition)
            if state is None or asked_offset is None or self._ahead.get(partition, state.offset) != asked_offset:
                continue
            if fetched.error_code:
                state.read_replica_until = 0.0
                problems.append(FetchProblem(partition, asked_offset, fetched.error_code))
                continue
            if fetched.preferred_replica >= 0:
                state.read_replica, state.read_replica_until = fetched.preferred_replica, now + READ_REPLICA_SECONDS
            state.high_watermark = fetched.high_watermark
            state.last_stable_offset = fetched.last_stable_offset
            state.log_start_offset = fetched.log_start_offset
            problem = self._queue_records(fetched, asked_offset)
            if problem is not None:
                problems.append(problem)
        return problems

    def _queue_records(self, fetched: Fetched, start: int) -> FetchProblem | None:
        batches, _, words = scan(fetched.records, check_crc=False)
        if not batches:
            if words is None:
                return None
            return FetchProblem(fetched.partition, start, ErrorCode.CORRUPT_MESSAGE, words)
        if batches[-1].next_offset <= start:
            words = "the broker answered with records before the offset that was asked for"
            return FetchProblem(fetched.partition, start, ErrorCode.CORRUPT_MESSAGE, words)
        size = sum(batch.size_bytes for batch in batches)
        chunk = Chunk(
            partition=fetched.partition,
            batches=batches,
            start=start,
            end=None,
            aborted=fetched.aborted if self._limits.isolation_level == READ_COMMITTED else None,
            high_watermark=fetched.high_watermark,
            size_bytes=size,
        )
        self.bytes_fetched += size
        self._queue.append(_Waiting(chunk))
        self._ahead[fetched.partition] = chunk.next_offset
        return None

    # Taking

    def take(self, records_max: int, lock: AbstractContextManager[object] = NO_LOCK) -> Records:
        """Some records, as they arrived, and moves the positions behind them; raises `UnreadableError`.

        Records are made outside of the lock: deserializers are the program's, and may take their time.
        """
        found: Records = {}
        left = records_max
        while left > 0:
            with lock:
                waiting = self._next_readable()
            if waiting is None:
                break
            partition = waiting.chunk.partition
            reader = self._reader_of(waiting)
            start = reader.next_offset
            try:
                records = reader.read(left, self._limits.key_deserializer, self._limits.value_deserializer)
            except Exception as error:
                with lock:
                    self._on_read(waiting, start)
                if found:
                    break
                raise UnreadableError(partition, reader.next_offset) from error
            with lock:
                if self._on_read(waiting, start) and records:
                    left -= len(records)
                    before = found.get(partition)
                    found[partition] = before + records if before else records
        self.records_taken += records_max - left
        return found

    def take_chunks(self, bytes_max: int) -> list[Chunk]:
        """Whole chunks, one at least if there is any, and moves the positions behind them."""
        found: list[Chunk] = []
        size = 0
        while (waiting := self._next_readable()) is not None:
            chunk = waiting.chunk
            if found and size + chunk.size_bytes > bytes_max:
                break
            size += chunk.size_bytes
            found.append(replace(chunk, start=waiting.next_offset))
            state = self._subscription.partitions[chunk.partition]
            state.offset, state.offset_epoch = chunk.next_offset, chunk.batches[-1].leader_epoch
            self._drop(waiting, state)
        return found

    def _next_readable(self) -> _Waiting | None:
        partitions = self._subscription.partitions
        for waiting in self._queue:
            state = partitions[waiting.chunk.partition]
            if _can_be_read(state):
                if waiting.next_offset != state.offset:
                    violated(f"{waiting.chunk.partition} is at {state.offset}, and {waiting.next_offset} is queued")
                return waiting
        return None

    def _on_read(self, waiting: _Waiting, start: int) -> bool:
        """Moves the position behind what was read, unless it was moved elsewhere meanwhile."""
        state = self._subscription.partitions.get(waiting.chunk.partition)
        reader = waiting.reader
        if reader is None or state is None or state.offset != start or waiting not in self._queue:
            return False
        if reader.next_offset > start:
            state.offset, state.offset_epoch = reader.next_offset, reader.leader_epoch
        if reader.is_done:
            self._drop(waiting, state)
        return True

    def _reader_of(self, waiting: _Waiting) -> "RecordReader[ConsumerRecord]":
        chunk = waiting.chunk
        if waiting.reader is None:
            topic, partition = chunk.partition
            checks = self._limits.check_crcs
            waiting.reader = RecordReader(
                ConsumerRecord, topic, partition, chunk.batches, chunk.start, chunk.aborted, check_crcs=checks
            )
        return waiting.reader

    def _drop(self, waiting: _Waiting, state: PartitionState) -> None:
        self._queue.remove(waiting)
        if self._ahead.get(waiting.chunk.partition) == state.offset:
            del self._ahead[waiting.chunk.partition]

    # Forgetting

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drops what is queued for partitions that move elsewhere: sought, reset, or given up."""
        gone = [partition for partition in partitions if partition in self._ahead]
        if gone:
            self._queue = deque(each for each in self._queue if each.chunk.partition not in gone)
            for partition in gone:
                del self._ahead[partition]

    def waiting_bytes(self) -> int:
        """How much is queued and could be handed out."""
        partitions = self._subscription.partitions
        return sum(each.chunk.size_bytes for each in self._queue if _can_be_read(partitions[each.chunk.partition]))

    @property
    def is_full(self) -> bool:
        """Whether so much is queued that nothing is asked for."""
        return self.waiting_bytes() > self._limits.read_ahead_bytes

    @property
    def has_records(self) -> bool:
        """Whether `take` could find something."""
        partitions = self._subscription.partitions
        return any(_can_be_read(partitions[each.chunk.partition]) for each in self._queue)

    def check(self) -> None:
        """What always holds."""
        ends: dict[TopicPartition, int] = {}
        for waiting in self._queue:
            partition = waiting.chunk.partition
            state = self._subscription.partitions.get(partition)
            if state is None:
                violated(f"{partition} has something queued, and is not assigned")
            expected = ends.get(partition, state.offset)
            if waiting.next_offset != expected:
                violated(f"{partition}: {waiting.next_offset} is queued where {expected} comes next")
            ends[partition] = waiting.chunk.next_offset
        if ends != self._ahead:
            violated(f"what is queued ends at {ends}, and not at {self._ahead}")


def _can_be_read(state: PartitionState) -> bool:
    return state.phase is Phase.FETCHING and not state.is_paused
