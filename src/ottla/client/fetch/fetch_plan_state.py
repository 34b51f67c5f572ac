"""What to fetch next, and what was fetched and not yet handed out. Pure.

Every readable partition is asked for, all partitions of one broker in one request, and no partition twice at the same
offset. Fetched batches wait as chunks, in order of arrival, until they are taken as records or as chunks. Nothing is
asked for while more than `read_ahead_bytes` wait, so memory is bounded by that and one response per broker. A paused
partition keeps what was fetched for it and does not block the others.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.partition_state import PartitionState
from ottla.client.serializers import Deserializer
from ottla.client.values import ConsumerRecord
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.protocol.fetch_frames import READ_COMMITTED, Fetched, Wanted
from ottla.records.batch import scan
from ottla.records.record_reader import RecordReader

READ_REPLICA_SECONDS: Final = 300.0
"""How long a nearer replica is read from before the leader is asked again which replica is nearest."""

NO_LOCK: Final[AbstractContextManager[object]] = nullcontext()

Records = dict[TopicPartition, list[ConsumerRecord]]


class Leader(NamedTuple):
    """The leader of a partition, according to the metadata."""

    broker: int
    epoch: int


class FetchProblem(NamedTuple):
    """A partition could not be read at an offset."""

    partition: TopicPartition
    offset: int
    error_code: int
    detail: str | None = None
    """What this client found wrong with the response; None if the broker reported the error."""


class UnreadableError(Exception):
    """Taking records failed at this partition and offset; `__cause__` has the reason."""

    def __init__(self, partition: TopicPartition, offset: int) -> None:
        super().__init__(f"{partition} at offset {offset}")
        self.partition = partition
        self.offset = offset


@dataclass(slots=True, eq=False)
class _Waiting:
    """A chunk in the queue; has a reader once its first record was taken."""

    chunk: Chunk
    reader: "RecordReader[ConsumerRecord] | None" = None

    @property
    def next_offset(self) -> int:
        return self.chunk.start if self.reader is None else self.reader.next_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How much is fetched, and how records are made of it."""

    partition_bytes_max: int
    read_ahead_bytes: int
    isolation_level: int
    check_crcs: bool = True
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None


class FetchPlanState:
    """The plan over `partitions`, which the owner changes. Queued chunks follow each position without a gap."""

    def __init__(self, partitions: Mapping[TopicPartition, PartitionState], limits: FetchLimits) -> None:
        self.limits: Final = limits
        self._partitions = partitions
        self._queue: deque[_Waiting] = deque()
        self._ahead: dict[TopicPartition, int] = {}
        """The end of the queued chunks of each partition that has any."""
        self._in_flight: set[tuple[TopicPartition, int]] = set()
        """The offsets that are being fetched; several for a partition that was sought meanwhile."""
        self._turn = 0
        self.records_taken = 0
        self.bytes_fetched = 0

    # Asking

    def plan(self, leaders: Mapping[TopicPartition, Leader], now: float) -> dict[int, list[Wanted]]:
        """What to ask each broker for now. Report every request that is sent by `on_sent`."""
        if self.is_full:
            return {}
        found: dict[int, list[Wanted]] = {}
        partitions = list(self._partitions.items())
        # The first partition of the last request comes last in this one, so that size limits starve no partition.
        self._turn = (self._turn + 1) % max(len(partitions), 1)
        for partition, state in partitions[self._turn :] + partitions[: self._turn]:
            if not state.can_be_read or state.retry_at > now:
                continue
            offset = self._ahead.get(partition, state.offset)
            if state.end is not None and offset >= state.end:
                continue
            leader = leaders.get(partition)
            if leader is None or (partition, offset) in self._in_flight:
                continue
            wanted = Wanted(partition, offset, self.limits.partition_bytes_max, leader.epoch)
            broker = state.read_replica if state.read_replica_until > now else leader.broker
            found.setdefault(broker, []).append(wanted)
        for some in found.values():
            # A request groups partitions by topic. The sort is stable: the order within a topic stays.
            some.sort(key=lambda each: each.partition.topic)
        return found

    def next_retry(self, now: float) -> float | None:
        """The first time after `now` at which a partition may be asked for that may not be asked for now."""
        return min((state.retry_at for state in self._partitions.values() if state.retry_at > now), default=None)

    def on_sent(self, asked: Collection[Wanted]) -> None:
        """A request was sent."""
        for each in asked:
            self._in_flight.add((each.partition, each.offset))

    def on_failed(self, asked: Collection[Wanted]) -> None:
        """A request got no response. Partitions that were read from a follower go back to their leader."""
        self._on_returned(asked)
        for each in asked:
            state = self._partitions.get(each.partition)
            if state is not None:
                state.read_replica_until = 0.0

    def _on_returned(self, asked: Collection[Wanted]) -> None:
        for each in asked:
            self._in_flight.discard((each.partition, each.offset))

    def on_answer(self, asked: Collection[Wanted], answer: Sequence[Fetched], now: float) -> list[FetchProblem]:
        """Queues what was fetched and returns the errors. Drops data of partitions that moved on meanwhile."""
        self._on_returned(asked)
        offsets = {each.partition: each.offset for each in asked}
        is_empty = not any(fetched.records for fetched in answer)
        problems = []
        for fetched in answer:
            partition = fetched.partition
            state = self._partitions.get(partition)
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
            if is_empty:
                self._end_at_gap(state, fetched, asked_offset)
                continue
            problem = self._queue_records(fetched, state, asked_offset)
            if problem is not None:
                problems.append(problem)
        return problems

    def _end_at_gap(self, state: PartitionState, fetched: Fetched, asked_offset: int) -> None:
        """Ends a range early if the log has no record between the offset asked for and the range's end.

        Compaction and transaction markers leave such gaps. A response without any record proves one if everything up to
        the end is visible; with records of other partitions this one may only have found the size limit used up.
        """
        is_committed = self.limits.isolation_level == READ_COMMITTED
        visible_end = fetched.last_stable_offset if is_committed else fetched.high_watermark
        if state.end is not None and visible_end >= state.end and fetched.preferred_replica < 0:
            state.end = asked_offset

    def _queue_records(self, fetched: Fetched, state: PartitionState, start: int) -> FetchProblem | None:
        batches, _, damage = scan(fetched.records, check_crc=False)
        if not batches:
            if damage is None:
                return None
            return FetchProblem(fetched.partition, start, ErrorCode.CORRUPT_MESSAGE, damage)
        if batches[-1].next_offset <= start:
            detail = "the broker returned only records before the requested offset"
            return FetchProblem(fetched.partition, start, ErrorCode.CORRUPT_MESSAGE, detail)
        size = sum(batch.size_bytes for batch in batches)
        chunk = Chunk(
            partition=fetched.partition,
            batches=batches,
            start=start,
            end=state.end,
            aborted=fetched.aborted if self.limits.isolation_level == READ_COMMITTED else None,
            high_watermark=fetched.high_watermark,
            size_bytes=size,
        )
        self.bytes_fetched += size
        self._queue.append(_Waiting(chunk))
        self._ahead[fetched.partition] = chunk.next_offset
        return None

    # Taking

    def take(self, records_max: int, lock: AbstractContextManager[object] = NO_LOCK) -> Records:
        """Takes records in order of arrival and moves the positions behind them. Raises `UnreadableError`.

        Records are made outside the lock: deserializers belong to the program and may be slow.
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
                records = reader.read(left, self.limits.key_deserializer, self.limits.value_deserializer)
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
        """Takes whole chunks, at least one if there is any, and moves the positions behind them."""
        found: list[Chunk] = []
        size = 0
        while (waiting := self._next_readable()) is not None:
            chunk = waiting.chunk
            if found and size + chunk.size_bytes > bytes_max:
                break
            size += chunk.size_bytes
            found.append(replace(chunk, start=waiting.next_offset))
            state = self._partitions[chunk.partition]
            state.offset, state.offset_epoch = chunk.next_offset, chunk.batches[-1].leader_epoch
            self._drop(waiting, state)
        return found

    def _next_readable(self) -> _Waiting | None:
        for waiting in self._queue:
            state = self._partitions[waiting.chunk.partition]
            if state.can_be_read:
                if waiting.next_offset != state.offset:
                    violated(f"{waiting.chunk.partition} is at {state.offset}, and {waiting.next_offset} is queued")
                return waiting
        return None

    def _on_read(self, waiting: _Waiting, start: int) -> bool:
        """Moves the position behind what was read, unless it was moved elsewhere meanwhile."""
        state = self._partitions.get(waiting.chunk.partition)
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
            checks = self.limits.check_crcs
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
        """Drops what is queued for partitions whose position changes or that are revoked."""
        gone = [partition for partition in partitions if partition in self._ahead]
        if gone:
            self._queue = deque(each for each in self._queue if each.chunk.partition not in gone)
            for partition in gone:
                del self._ahead[partition]

    def waiting_bytes(self) -> int:
        """How many bytes are queued and could be handed out."""
        partitions = self._partitions
        return sum(each.chunk.size_bytes for each in self._queue if partitions[each.chunk.partition].can_be_read)

    @property
    def is_full(self) -> bool:
        """Whether so much is queued that nothing more is asked for."""
        return self.waiting_bytes() > self.limits.read_ahead_bytes

    @property
    def has_records(self) -> bool:
        """Whether `take` could find something."""
        return any(self._partitions[each.chunk.partition].can_be_read for each in self._queue)

    def check(self) -> None:
        """Raises `InvariantViolation` if the queue and the positions do not fit."""
        ends: dict[TopicPartition, int] = {}
        for waiting in self._queue:
            partition = waiting.chunk.partition
            state = self._partitions.get(partition)
            if state is None:
                violated(f"{partition} has chunks queued, and is not assigned")
            expected = ends.get(partition, state.offset)
            if waiting.next_offset != expected:
                violated(f"{partition}: {waiting.next_offset} is queued where {expected} comes next")
            ends[partition] = waiting.chunk.next_offset
        if ends != self._ahead:
            violated(f"the queue ends at {ends}, and not at {self._ahead}")
