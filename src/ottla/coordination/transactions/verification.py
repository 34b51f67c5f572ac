"""Verifies that a transactional write belongs to its producer's open transaction before it is appended.

While the log has the transaction open, a batch is appended at once. Any other batch goes to `verification_state.py`,
which decides; this module asks the coordinator, appends, copies batches that wait, and runs the retry timer. Appending
is in `replication/partition.py`, what a client hears of it in `broker/handlers/records/produce.py`.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION, AddPartitions, AddPartitionsResponse
from ottla.coordination.transactions.verification_state import (
    JOINS_SINCE,
    RETRIES,
    RETRY_MS,
    Append,
    Ask,
    Keep,
    PendingBatch,
    Refuse,
    Resume,
    VerificationEffect,
    VerificationState,
)
from ottla.env.ports import Clock
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.records.batch import Batch
from ottla.replication.partition import Partition
from ottla.replication.partition_state import AppendWaiter
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers
from ottla.replication.timing_wheel import Deadline


class TransactionalPart(NamedTuple):
    """One batch of a request, its partition, and its place in the request."""

    partition: Partition
    batch: Batch
    at: int


class TransactionalWrites(NamedTuple):
    """What the batches of one Produce request have in common."""

    transactional_id: str
    version: int
    acks: int
    waiter: AppendWaiter


class _Write:
    """A batch that is verified; its part has a copy of the batch once it has to wait."""

    __slots__ = ("part", "writes")

    def __init__(self, writes: TransactionalWrites, part: TransactionalPart) -> None:
        self.writes = writes
        self.part = part


class TransactionVerification:
    """The transactional writes of all clients.

    `add_partitions` asks the coordinator of a transactional id. `is_enabled` says whether writes of clients that add
    their partitions themselves are verified.
    """

    def __init__(
        self,
        partitions: PartitionTable,
        *,
        clock: Clock,
        timers: Timers,
        add_partitions: Callable[[AddPartitions], "asyncio.Future[AddPartitionsResponse]"],
        is_enabled: Callable[[], bool],
    ) -> None:
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._add_partitions = add_partitions
        self._is_enabled = is_enabled
        self._state = VerificationState(_entry_of, self._is_led)
        self._timer: Deadline | None = None

    # Produce

    def append(self, writes: TransactionalWrites, parts: Sequence[TransactionalPart]) -> None:
        """Appends the batches of one producer in one epoch, each at once or when it is verified; the waiter hears the
        outcome. A batch that has to wait is copied."""
        is_held = self._state.is_held
        must_verify = writes.version >= JOINS_SINCE or self._is_enabled()
        pending: list[PendingBatch] = []
        for part in parts:
            partition, batch, _ = part
            if is_held(partition, batch.producer_id) or (must_verify and not _has_opened(partition, batch)):
                pending.append(_pending(writes, part))
            else:
                _append(writes, part)
        if pending:
            self._carry_out(self._state.on_batches(pending))

    def _carry_out(self, effects: Sequence[VerificationEffect]) -> None:
        for effect in effects:
            match effect:
                case Append(batch):
                    _append(batch.write.writes, batch.write.part)
                case Refuse(batch, error):
                    batch.write.writes.waiter.on_outcome(batch.write.part.at, error)
                case Keep(batches):
                    batches[0].write.writes.waiter.on_waiting()
                    for batch in batches:
                        part = batch.write.part
                        batch.write.part = part._replace(batch=part.batch.copied())
                case Resume(batch):
                    self.append(batch.write.writes, [batch.write.part])
                case Ask(question_id, request):
                    self._ask(question_id, request)
        self._arm()

    def _ask(self, question_id: int, request: AddPartitions) -> None:
        answer = self._add_partitions(request)
        if answer.done():
            self._on_answer(question_id, request, answer)
        else:
            answer.add_done_callback(partial(self._on_answer, question_id, request))
            self._carry_out(self._state.on_pending(question_id))

    def _on_answer(
        self, question_id: int, request: AddPartitions, answer: "asyncio.Future[AddPartitionsResponse]"
    ) -> None:
        if answer.cancelled():
            # The broker stops. The client may retry at the partition's next leader.
            errors = dict.fromkeys(request.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            errors = dict(answer.result().errors)
        self._carry_out(self._state.on_answer(question_id, errors, self._now_ms()))

    def _is_led(self, batch: PendingBatch) -> bool:
        return self._partitions.get(*batch.name) is batch.partition

    # Retries

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _arm(self) -> None:
        deadline_ms = self._state.next_deadline()
        # Deadlines only move later while the timer runs: each is RETRY_MS after the event that set it.
        if deadline_ms is not None and self._timer is None:
            self._timer = self._timers.after(deadline_ms - self._now_ms(), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._carry_out(self._state.on_tick(self._now_ms()))

    # Offsets of a group

    async def check(
        self,
        partition: Partition,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        *,
        joins: bool,
    ) -> ErrorCode:
        """Whether a producer may write to a partition within its transaction, now and without waiting in between.

        With `joins` the partition becomes part of the transaction.
        """
        name = TopicPartition(partition.topic, partition.index)
        request = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=(name,),
            verify_only=not joins,
            client_version=EPOCH_BUMP_VERSION if joins else 0,
        )
        attempt = 0
        while not is_open(partition, producer_id, producer_epoch):
            entry = partition.log.producers.get(producer_id)
            error = dict((await self._add_partitions(request)).errors)[name]
            if error is ErrorCode.NONE and partition.log.producers.get(producer_id) is not entry:
                # A transaction ended meanwhile, or another request of the same producer has opened this one.
                if is_open(partition, producer_id, producer_epoch):
                    break
                error = ErrorCode.INVALID_TXN_STATE
            elif error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return error
            if not joins or attempt == RETRIES:
                return error
            attempt += 1
            await self._clock.sleep(_RETRY_SECONDS)
        return ErrorCode.NONE


_RETRY_SECONDS: Final = RETRY_MS / 1000


def is_open(partition: Partition, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
    """Whether the log has a transaction of the producer open, in this epoch."""
    entry = partition.log.producers.get(producer_id)
    return entry is not None and entry.transaction_start is not None and entry.epoch == producer_epoch


def _has_opened(partition: Partition, batch: Batch) -> bool:
    """Whether the batch's transaction is open, or will be when the batches queued in this turn are written."""
    if is_open(partition, batch.producer_id, batch.producer_epoch):
        return True
    partition.append_queued()
    return is_open(partition, batch.producer_id, batch.producer_epoch)


def _pending(writes: TransactionalWrites, part: TransactionalPart) -> PendingBatch:
    partition, batch, _ = part
    return PendingBatch(
        partition=partition,
        name=TopicPartition(partition.topic, partition.index),
        transactional_id=writes.transactional_id,
        version=writes.version,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        size_bytes=batch.size_bytes,
        write=_Write(writes, part),
    )


def _entry_of(batch: PendingBatch) -> object | None:
    part: TransactionalPart = batch.write.part
    return part.partition.log.producers.get(batch.producer_id)


def _append(writes: TransactionalWrites, part: TransactionalPart) -> None:
    try:
        part.partition.append_soon(part.batch, writes.acks, writes.waiter, part.at)
    except OttlaError as error:
        writes.waiter.on_outcome(part.at, error)
