"""The records that wait to be sent: collected into batches, handed out by broker, taken back when refused.

Pure: no clock, no socket, no thread; a caller with several threads holds one lock around every call. What a method
decides about batches it answers as `Finished`, and the caller tells their promises when it has let go of the lock. The
order and the numbers of one partition are `partition_queue_state.py`'s; `produce_loop.py` sends.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.errors import RETRIABLE_CODES, answer_error, error_code_of
from ottla.client.network.backoff import Backoff
from ottla.client.producer.batch import NO_SEQUENCE, EncodedContent, Identity, ProducerBatch
from ottla.client.producer.deliveries import BatchPromise, Delivery
from ottla.client.producer.errors import (
    NotDeliveredError,
    NotEncodedError,
    ProducerFencedError,
    RecordTooLargeError,
)
from ottla.client.producer.partition_queue_state import PartitionQueue
from ottla.client.values import Header
from ottla.env.ports import Random
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.records.builder import BatchBuilder
from ottla.records.layout import HEADER_BYTES, Codec

RECORD_OVERHEAD_BYTES: Final = 36
"""More than a record takes beside its key, value and headers."""
_HEADER_OVERHEAD_BYTES: Final = 10
_EPOCH_MAX: Final = 2**15 - 1
_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_DOUBTFUL: Final = frozenset(
    {ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
"""What leaves open whether the batch is in the log."""
_OUT_OF_ORDER: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
_FENCING: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorLimits:
    """What a producer was told that matters here; spans are in seconds."""

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
    """One request: a batch for each of some partitions that one broker leads."""

    broker: int
    batches: Sequence[tuple[PartitionQueue, ProducerBatch]]


@dataclass(frozen=True, slots=True)
class Finished:
    """A batch whose fate is known: its error, or where it is."""

    batch: ProducerBatch
    error: Exception | None = None
    base_offset: int = -1
    append_time: int = -1

    def tell(self) -> None:
        """Tells everybody who waits; not to be called with a lock held, for it runs the program's callbacks."""
        if self.error is not None:
            self.batch.promise.fail(self.error)
        else:
            self.batch.promise.succeed(self.base_offset, self.append_time)


class AccumulatorState:
    """See the module's docstring. `now` is in seconds of the monotonic clock."""

    def __init__(self, limits: AccumulatorLimits, random: Random, *, home: int = 0) -> None:
        self.limits = limits
        self.home = home
        """The thread that tells the promises; see `BatchPromise`."""
        self.identity: Identity | None = None
        """Who the producer is; nothing is sent by an idempotent one until it is known."""
        self.used_bytes = 0
        self.is_starved = False
        """Somebody waits for memory: nothing lingers then."""
        self.flushes = 0
        """How many wait for all to be sent: nothing lingers then."""
        self.wants_wake = False
        """Whether something was appended that the sender should look at now; whoever wakes it takes this back."""
        self.needs_registration = False
        """Whether the coordinator must know a partition before a transaction writes there."""
        self.retried = 0
        self.splits = 0
        self._random = random
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[PartitionQueue, None] = {}
        """Those that are not idle, the longest unserved first."""
        self._batch_room = limits.batch_size

    # Coming in

    def queue(self, partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition, made when first asked for."""
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
        """Adds a record to the partition's open batch or to a new one; None if there is no memory for it now.

        Raises `RecordTooLargeError` if there never can be, or what the encoder refuses; nothing has changed then.
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
        """Adds a whole encoded batch, behind what the partition has; None if there is no memory for it now.

        Its bytes must be writable, for its numbers, and nobody else's from now on. It must be transactional exactly if
        the producer is. Raises `RecordTooLargeError` if there never can be memory.
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
        """Adds a record to a new batch. The record is encoded first: a batch in a queue is never empty."""
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
        # Records that arrive while batches of the partition are on the wire collect until those are answered or a batch
        # is full: waking the sender for each would send records one by one.
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
                    f"a record for {partition} takes up to {size} bytes, and {name} allows {most}: send less at once,"
                    f" or raise {name} and what the topic's max.message.bytes allows"
                )

    # Going out

    def drain(self, now: float, room: Mapping[int, int]) -> list[Outgoing]:
        """What to send now to brokers that may get so many more requests each; partitions take turns."""
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
            # To the end: the others come first next time.
            del self._active[queue]
            self._active[queue] = None
        return taken

    def brokers_wanted(self, now: float) -> set[int | None]:
        """The leaders of partitions that have something to send now; None stands for a leader that nobody knows."""
        return {queue.leader for queue in self._active if self._is_ready(queue, now)}

    def leaderless(self) -> set[str]:
        """The topics with something to send to a partition whose leader is not known."""
        return {queue.partition.topic for queue in self._active if queue.leader is None}

    def next_deadline(self, now: float) -> float | None:
        """When something happens by itself after now: a linger ends, a retry is due, a batch is given up."""
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
        """Whether the partition's first batch may leave, if its broker is there."""
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
        """Takes another epoch if the partition can go on only so. A transaction must be aborted instead."""
        if self.identity is None or self.limits.is_transactional or not queue.needs_new_epoch():
            return
        if queue.identity is None or queue.identity == self.identity:
            has_more = self.identity.epoch < _EPOCH_MAX
            self.identity = Identity(self.identity.producer_id, self.identity.epoch + 1) if has_more else None
        queue.renumber()

    # Coming back

    def written(
        self, queue: PartitionQueue, batch: ProducerBatch, base_offset: int, append_time: int = -1
    ) -> list[Finished]:
        """A broker has the batch."""
        queue.answered(batch)
        queue.accepted(batch)
        return self._finish(queue, batch, None, base_offset, append_time)

    def refused(
        self, queue: PartitionQueue, batch: ProducerBatch, code: int, message: str | None, now: float
    ) -> list[Finished]:
        """A broker does not have the batch, or nobody knows: it is sent again, split, or given up."""
        queue.answered(batch)
        error_code = error_code_of(code)
        if batch.is_given_up:
            self._rest(queue)
            return []
        if error_code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            queue.accepted(batch)
            return self._finish(queue, batch, None)
        batch.is_doubtful = batch.is_doubtful or error_code in _DOUBTFUL
        # Brokers know whole batches again, not parts of them: one that may be in the log already stays whole.
        if error_code in _TOO_LARGE and batch.count > 1 and not batch.is_doubtful:
            self._split(queue, batch)
            return []
        error = answer_error(code, f"writing {batch.count} records to {queue.partition}", message)
        batch.problem = str(error)
        if batch.tries <= self.limits.retries and now < batch.deadline and self._is_worth_retrying(queue, batch, code):
            self.retried += 1
            batch.retry_at = now + self.limits.backoff.wait_ms(batch.tries, self._random) / 1000
            queue.put_back([batch])
            return []
        queue.lost(batch, is_refused=error_code not in RETRIABLE_CODES)
        if error_code in _FENCING:
            fenced = ProducerFencedError(f"{error}; another producer has taken over from this one")
            return self._finish(queue, batch, fenced)
        return self._finish(queue, batch, error)

    def not_encoded(self, queue: PartitionQueue, batch: ProducerBatch, error: Exception) -> list[Finished]:
        """The batch could not be made into bytes, so it was not sent."""
        queue.answered(batch)
        queue.lost(batch, is_refused=True)
        problem = NotEncodedError(f"{batch.count} records for {queue.partition} cannot be encoded: {error!r}")
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
        """Gives up what was not delivered in time, also what is on the wire."""
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
        waited = f"{batch.count} records for {queue.partition} were not acknowledged within "
        waited += f"{self.limits.delivery_timeout * 1000:.0f} ms (delivery_timeout_ms)"
        if batch.tries == 0:
            why = "no broker that leads the partition could be asked" if queue.leader is None else "none left in time"
            return NotDeliveredError(f"{waited}: they were never sent, {batch.problem or why}")
        tried = f"they were sent {batch.tries} times and may be in the log"
        return NotDeliveredError(f"{waited}: {tried}; last problem: {batch.problem or 'no answer'}")

    def drop_unsent(self, error: Exception) -> list[Finished]:
        """Gives up all that is not on the wire, for a transaction that is aborted."""
        finished: list[Finished] = []
        for queue in list(self._active):
            dropped, rest = list(queue.batches), self._finish
            queue.batches.clear()
            for batch in dropped:
                finished += rest(queue, batch, error)
        return finished

    def drop_all(self, error: Exception) -> list[Finished]:
        """Gives up everything, for a producer that is closed."""
        finished = self.drop_unsent(error)
        for queue in list(self._active):
            for batch in queue.on_wire:
                if not batch.is_given_up:
                    finished += self._finish(queue, batch, error)
        return finished

    def pending(self) -> list[ProducerBatch]:
        """All batches whose fate is not known; the open ones are closed, so that nothing joins them."""
        found = []
        for queue in self._active:
            found += [batch for batch in queue.on_wire if not batch.is_given_up]
            if queue.batches:
                queue.batches[-1].is_closed = True
                found += queue.batches
        return found

    def adopt(self, identity: Identity) -> None:
        """The producer is known under this identity now. A transactional one numbers every partition from 0 on."""
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
        """Raises `InvariantViolation` unless all is in order."""
        for queue in self._queues.values():
            queue.check()
            if not queue.is_idle and queue not in self._active:
                violated(f"{queue.partition} has batches and is not served")
            if any(batch.count == 0 for batch in (*queue.batches, *queue.on_wire)):
                violated(f"{queue.partition} has an empty batch")
        alive = [
            batch.size for queue in self._active for batch in (*queue.batches, *queue.on_wire) if not batch.is_given_up
        ]
        if self.used_bytes != sum(alive):
            violated(f"{self.used_bytes} bytes are counted, and {sum(alive)} are there")
