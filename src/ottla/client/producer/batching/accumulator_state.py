"""The records that wait to be sent: collected into batches, drained by broker, and put back for a retry.

Pure: no clock, socket or thread; the caller holds one lock around every call. Methods return finished batches as
`Finished`; the caller completes their promises after it has released the lock. The order and the sequence numbers of
one partition are in `partition_queue_state.py`; `sender.py` sends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.errors import RETRIABLE_CODES, answer_error, error_code_of
from ottla.client.network.backoff import Backoff
from ottla.client.producer.batching.deliveries import BatchPromise, Delivery
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.batching.producer_batch import NO_SEQUENCE, EncodedContent, Identity, ProducerBatch
from ottla.client.producer.errors import (
    NotDeliveredError,
    NotEncodedError,
    ProducerFencedError,
    RecordTooLargeError,
)
from ottla.client.values import Header
from ottla.env.ports import Random
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.records.builder import BatchBuilder
from ottla.records.layout import HEADER_BYTES, Codec

RECORD_OVERHEAD_BYTES: Final = 36
"""An upper bound of a record's size without key, value and headers."""
_HEADER_OVERHEAD_BYTES: Final = 10
_EPOCH_MAX: Final = 2**15 - 1
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_DOUBTFUL: Final = frozenset(
    {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
"""Errors after which the batch may be in the log."""
_OUT_OF_ORDER: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCING: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorLimits:
    """The options of a producer that matter here; times are in seconds."""

    batch_size: int = 16_384
    linger: float = 0.005
    buffer_memory: int = 32 * 1024 * 1024
    request_size: int = 1_048_576
    delivery_timeout: float = 120.0
    retries: int = 2**31 - 1
    backoff: Backoff = field(default_factory=Backoff)
    codec: Codec = Codec.NONE
    level: int | None = None
    is_idempotent: bool = True
    is_transactional: bool = False
    is_async: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One Produce request: one batch for each of several partitions of one leader."""

    broker: int
    batches: Sequence[tuple[PartitionQueue, ProducerBatch]]


@dataclass(frozen=True, slots=True)
class Finished:
    """A batch that is written or failed: its offset, or its error."""

    batch: ProducerBatch
    error: Exception | None = None
    base_offset: int = -1
    append_time: int = -1

    def tell(self) -> None:
        """Completes the deliveries. Call it without the lock: it runs callbacks of the program."""
        if self.error is not None:
            self.batch.promise.fail(self.error)
        else:
            self.batch.promise.succeed(self.base_offset, self.append_time)


class AccumulatorState:
    """All queues of one producer. `now` is in seconds of the monotonic clock."""

    def __init__(self, limits: AccumulatorLimits, random: Random, *, home: int = 0) -> None:
        self.limits = limits
        self.home = home
        """The id of the thread that completes the promises; see `BatchPromise`."""
        self.identity: Identity | None = None
        """Producer id and epoch. An idempotent producer sends nothing until it has them."""
        self.used_bytes = 0
        self.is_starved = False
        """Whether a send waits for memory; batches do not linger then."""
        self.flushes = 0
        """How many flushes are running; batches do not linger then."""
        self.wants_wake = False
        """Whether the sender should be woken for what was appended; reset by the caller that wakes it."""
        self.needs_registration = False
        """Whether partitions must be added to the transaction at the coordinator before their batches are sent."""
        self.retried = 0
        self.splits = 0
        self._random = random
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[PartitionQueue, None] = {}
        """Queues that are not idle, the one that was served longest ago first."""
        self._batch_room = limits.batch_size

    # Appending

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition, created at the first call."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        return queue

    def append(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header],
        now: float,
    ) -> Delivery | None:
        """Adds a record to the open batch of the partition or to a new one; None if there is no memory for it now.

        Raises `RecordTooLargeError` if the record can never fit, and errors of the encoder; nothing has changed then.
        """
        bound = RECORD_OVERHEAD_BYTES
        if key is not None:
            bound += len(key)
        if value is not None:
            bound += len(value)
        if headers:
            bound += sum(len(name) * 4 + len(data or b"") + _HEADER_OVERHEAD_BYTES for name, data in headers)
        if self.used_bytes + bound > self.limits.buffer_memory or bound > self.limits.request_size:
            self._check_size(bound + HEADER_BYTES, queue.partition)
            return None
        batches = queue.batches
        batch = batches[-1] if batches else None
        if batch is None or batch.is_closed or batch.size + bound > self._batch_room:
            return self._append_to_new(queue, timestamp, key, value, headers, now)
        content = batch.content
        size: int = content.append(timestamp, key, value, headers)  # type: ignore[attr-defined]  # open, so a builder
        self.used_bytes += size - batch.size
        batch.size = size
        return batch.promise.record(timestamp, key, value)

    def append_batch(
        self, queue: PartitionQueue, data: bytearray | memoryview, count: int, now: float
    ) -> BatchPromise | None:
        """Adds an encoded batch at the end of the partition's queue; None if there is no memory for it now.

        The data must be writable, for the sequence numbers, and must not be used by the caller afterwards. It must be
        transactional if and only if the producer is. Raises `RecordTooLargeError` if the batch can never fit.
        """
        size = len(data)
        if self.used_bytes + size > self.limits.buffer_memory or size > self.limits.request_size:
            self._check_size(size, queue.partition)
            return None
        if queue.batches:
            queue.batches[-1].is_closed = True
        promise = BatchPromise(queue.partition, self.limits.is_async, self.home, count)
        batch = ProducerBatch(
            promise=promise,
            content=EncodedContent(data, count),
            order=queue.take_order(),
            created_at=now,
            deadline=now + self.limits.delivery_timeout,
        )
        batch.is_closed = True
        self.used_bytes += size
        self._put(queue, batch)
        self.wants_wake = True
        return promise

    def _append_to_new(
        self,
        queue: PartitionQueue,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header],
        now: float,
    ) -> Delivery:
        """Adds a record to a new batch. The record is encoded first, so that no batch in a queue is empty."""
        limits = self.limits
        content = BatchBuilder(codec=limits.codec, level=limits.level, transactional=limits.is_transactional)
        content.append(timestamp, key, value, headers)
        promise = BatchPromise(queue.partition, limits.is_async, self.home)
        delivery = promise.record(timestamp, key, value)
        if queue.batches and not queue.batches[-1].is_closed:
            queue.batches[-1].is_closed = True
            self.wants_wake = True
        batch = ProducerBatch(
            promise=promise,
            content=content,
            order=queue.take_order(),
            created_at=now,
            deadline=now + limits.delivery_timeout,
        )
        self.used_bytes += batch.size
        self._put(queue, batch)
        return delivery

    def _put(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        # While batches of the partition are in flight, records are collected until a response arrives or a batch is
        # full: waking the sender for each would send records one by one.
        if queue not in self._active:
            self._active[queue] = None
            self.wants_wake = True
        queue.batches.append(batch)

    def _check_size(self, size: int, partition: TopicPartition) -> None:
        for name, most in (
            ("max_request_size", self.limits.request_size),
            ("buffer_memory", self.limits.buffer_memory),
        ):
            if size > most:
                raise RecordTooLargeError(
                    f"a record for {partition} takes up to {size} bytes, which exceeds {name}={most}; send smaller"
                    f" records, or increase {name} and the topic's max.message.bytes"
                )

    # Draining

    def drain(self, now: float, room: Mapping[int, int]) -> list[Outgoing]:
        """The requests to send now. `room` says how many more requests each broker may get; partitions take turns."""
        ready: dict[int, list[PartitionQueue]] = {}
        for queue in list(self._active):
            self._settle(queue)
            leader = queue.leader
            if leader is not None and room.get(leader) and self._is_ready(queue, now):
                ready.setdefault(leader, []).append(queue)
        requests = []
        for broker, queues in ready.items():
            for _ in range(room[broker]):
                request = self._request(queues, now)
                if not request:
                    break
                requests.append(Outgoing(broker, request))
        return requests

    def _request(self, queues: Iterable[PartitionQueue], now: float) -> list[tuple[PartitionQueue, ProducerBatch]]:
        taken: list[tuple[PartitionQueue, ProducerBatch]] = []
        size = 0
        for queue in queues:
            if not self._is_ready(queue, now):
                continue
            size += queue.batches[0].size
            if taken and size > self.limits.request_size:
                break
            taken.append((queue, queue.take(self.identity)))
            # Moved to the end, so that the other partitions come first next time.
            del self._active[queue]
            self._active[queue] = None
        return taken

    def brokers_wanted(self, now: float) -> set[int | None]:
        """The leaders of partitions that have a batch ready; None stands for an unknown leader."""
        return {queue.leader for queue in self._active if self._is_ready(queue, now)}

    def leaderless(self) -> set[str]:
        """The topics that have batches for a partition without a known leader."""
        return {queue.partition.topic for queue in self._active if queue.leader is None}

    def next_deadline(self, now: float) -> float | None:
        """The next time at which a linger ends, a retry is due, or a batch expires."""
        soonest: float | None = None
        for queue in self._active:
            times = [batch.deadline for batch in queue.on_wire[:1] if not batch.is_given_up]
            if queue.batches:
                first = queue.batches[0]
                times.append(first.deadline)
                if first.retry_at:
                    times.append(first.retry_at)
                elif not first.is_closed and not self._is_urgent():
                    times.append(first.created_at + self.limits.linger)
            for time in times:
                if time > now and (soonest is None or time < soonest):
                    soonest = time
        return soonest

    def _is_urgent(self) -> bool:
        return self.flushes > 0 or self.is_starved

    def _is_ready(self, queue: PartitionQueue, now: float) -> bool:
        """Whether the first batch of the partition may be sent, given a connection."""
        if not queue.batches or not queue.may_leave():
            return False
        batch = queue.batches[0]
        if batch.retry_at > now or (self.needs_registration and not queue.is_in_transaction):
            return False
        if self.limits.is_idempotent:
            if self.identity is None:
                return False
            if batch.sequence != NO_SEQUENCE:
                return queue.may_resend()
            if not queue.may_number(self.identity):
                return False
        return batch.is_closed or self._is_urgent() or now >= batch.created_at + self.limits.linger

    def _settle(self, queue: PartitionQueue) -> None:
        """Bumps the epoch if the partition cannot continue otherwise. A transaction must be aborted instead."""
        if self.identity is None or self.limits.is_transactional or not queue.needs_new_epoch():
            return
        if queue.identity is None or queue.identity == self.identity:
            has_more = self.identity.epoch < _EPOCH_MAX
            self.identity = Identity(self.identity.producer_id, self.identity.epoch + 1) if has_more else None
        queue.renumber()

    # Responses

    def written(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time: int = -1
    ) -> list[Finished]:
        """A broker acknowledged the batch."""
        queue.answered(batch)
        queue.accepted(batch)
        return self._finish(queue, batch, None, base_offset, append_time)

    def refused(
        self, queue: PartitionQueue, batch: ProducerBatch, code: int, message: str | None, now: float
    ) -> list[Finished]:
        """A broker refused the batch, or the request failed: the batch is retried, split, or failed."""
        queue.answered(batch)
        error_code = error_code_of(code)
        if batch.is_given_up:
            self._rest(queue)
            return []
        if error_code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.accepted(batch)
            return self._finish(queue, batch, None)
        batch.is_doubtful = batch.is_doubtful or error_code in _DOUBTFUL
        # Brokers detect duplicates of whole batches only: a batch that may be in the log already must not be split.
        if error_code in _TOO_LARGE and batch.count > 1 and not batch.is_doubtful:
            self._split(queue, batch)
            return []
        error = answer_error(code, f"writing {_records(batch)} to {queue.partition}", message)
        batch.problem = str(error)
        if batch.tries <= self.limits.retries and now < batch.deadline and self._is_worth_retrying(queue, batch, code):
            self.retried += 1
            batch.retry_at = now + self.limits.backoff.wait_ms(batch.tries, self._random) / 1000
            queue.put_back([batch])
            return []
        queue.lost(batch, is_refused=error_code not in RETRIABLE_CODES)
        if error_code in _FENCING:
            fenced = ProducerFencedError(f"{error}; another producer has taken over")
            return self._finish(queue, batch, fenced)
        if now >= batch.deadline and batch.tries <= self.limits.retries and error_code in RETRIABLE_CODES:
            # The same error as from `expire`, which could have noticed first.
            return self._finish(queue, batch, self._too_late(queue, batch))
        return self._finish(queue, batch, error)

    def not_encoded(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> list[Finished]:
        """The batch could not be encoded, so it was not sent."""
        queue.answered(batch)
        queue.lost(batch, is_refused=True)
        problem = NotEncodedError(f"{_records(batch)} for {queue.partition} cannot be encoded: {error!r}")
        problem.__cause__ = error
        return self._finish(queue, batch, problem)

    def _is_worth_retrying(self, queue: PartitionQueue, batch: ProducerBatch, code: int) -> bool:
        if code in _OUT_OF_ORDER and batch.sequence != NO_SEQUENCE:
            if not queue.precedes_all(batch):
                return True
            if not self.limits.is_transactional:
                queue.wants_new_epoch = True
                return True
            return False
        return code in RETRIABLE_CODES

    def _split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self.splits += 1
        limits = self.limits
        pieces = batch.split(limits.batch_size, codec=limits.codec, level=limits.level, is_async=limits.is_async)
        self.used_bytes += sum(piece.size for piece in pieces) - batch.size
        batch.drop_content()
        queue.put_back(pieces)

    def expire(self, now: float) -> list[Finished]:
        """Fails batches whose delivery timeout is over, also those in flight."""
        finished: list[Finished] = []
        for queue in list(self._active):
            late = [batch for batch in queue.on_wire if batch.deadline <= now and not batch.is_given_up]
            while queue.batches and queue.batches[0].deadline <= now:
                late.append(queue.batches.popleft())
            for batch in late:
                queue.lost(batch, is_refused=False)
                finished += self._finish(queue, batch, self._too_late(queue, batch))
        return finished

    def _too_late(self, queue: PartitionQueue, batch: ProducerBatch) -> NotDeliveredError:
        waited = f"{_records(batch)} for {queue.partition} not acknowledged within "
        waited += f"{self.limits.delivery_timeout * 1000:.0f} ms (delivery_timeout_ms)"
        if batch.tries == 0:
            why = "the partition has no known leader" if queue.leader is None else "earlier batches took too long"
            return NotDeliveredError(f"{waited}: never sent; {batch.problem or why}")
        tried = f"sent {'once' if batch.tries == 1 else f'{batch.tries} times'}, may be in the log"
        return NotDeliveredError(f"{waited}: {tried}; last problem: {batch.problem or 'no response'}")

    def drop_unsent(self, error: Exception) -> list[Finished]:
        """Fails all batches that are not in flight, for a transaction that is aborted."""
        finished: list[Finished] = []
        for queue in list(self._active):
            dropped, rest = list(queue.batches), self._finish
            queue.batches.clear()
            for batch in dropped:
                finished += rest(queue, batch, error)
        return finished

    def drop_all(self, error: Exception) -> list[Finished]:
        """Fails all batches, for a producer that is closed."""
        finished = self.drop_unsent(error)
        for queue in list(self._active):
            for batch in queue.on_wire:
                if not batch.is_given_up:
                    finished += self._finish(queue, batch, error)
        return finished

    def pending(self) -> list[ProducerBatch]:
        """All unfinished batches; open ones are closed, so that no records are added to them."""
        found = []
        for queue in self._active:
            found += [batch for batch in queue.on_wire if not batch.is_given_up]
            if queue.batches:
                queue.batches[-1].is_closed = True
                found += queue.batches
        return found

    def adopt(self, identity: Identity) -> None:
        """Takes a new producer id and epoch. A transactional producer numbers every partition from 0 again."""
        self.identity = identity
        if self.limits.is_transactional:
            for queue in self._queues.values():
                queue.is_unresolved = queue.wants_new_epoch = False

    def _finish(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        error: Exception | None,
        base_offset: int = -1,
        append_time: int = -1,
    ) -> list[Finished]:
        if batch.is_given_up:
            self._rest(queue)
            return []
        batch.is_given_up = True
        self.used_bytes -= batch.size
        batch.drop_content()
        self._rest(queue)
        return [Finished(batch, error, base_offset, append_time)]

    def _rest(self, queue: PartitionQueue) -> None:
        if queue.is_idle:
            self._active.pop(queue, None)

    def check(self) -> None:
        """Raises `InvariantViolation` if counts and queues are inconsistent."""
        for queue in self._queues.values():
            queue.check()
            if not queue.is_idle and queue not in self._active:
                violated(f"{queue.partition} has batches but is not active")
            if any(batch.count == 0 for batch in (*queue.batches, *queue.on_wire)):
                violated(f"{queue.partition} has an empty batch")
        alive = [
            batch.size for queue in self._active for batch in (*queue.batches, *queue.on_wire) if not batch.is_given_up
        ]
        if self.used_bytes != sum(alive):
            violated(f"{self.used_bytes} bytes are counted, but the batches have {sum(alive)}")


def _records(batch: ProducerBatch) -> str:
    return "1 record" if batch.count == 1 else f"{batch.count} records"
