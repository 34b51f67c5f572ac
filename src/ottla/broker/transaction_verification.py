"""Whether a transactional write belongs to its producer's transaction, before it goes into the log.

A write that was delayed on its way may arrive when its transaction is over, and would then hold readers back for ever.
So the first write of a producer to a partition asks the transaction's coordinator: an old client has added the
partition, which is verified, a newer one leaves it to us, and the partition joins now. While the log has the
transaction open nobody is asked. Appending is `replication/partition.py`'s, the coordinator's decision
`coordination/transactions/transaction_state.py`'s, and what a client hears of it `handlers/produce.py`'s.

Later batches of a producer wait behind one that waits for the coordinator, so that none overtakes another. What the log
knows of the producer is compared before and after: if it has changed meanwhile the transaction has ended, and the
coordinator's word is worth nothing.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION, AddPartitions, AddPartitionsResponse
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTransactionStateError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderError,
    OttlaError,
    OutOfOrderSequenceError,
    ProducerIdMappingError,
    TransactionAbortableError,
)
from ottla.model.ids import BrokerId, ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.batch import Batch
from ottla.replication.partition import AppendWaiter, Partition
from ottla.storage.producer_state import ProducerEntry

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

RETRY_MS: Final = 20
RETRIES: Final = 5
"""A client that has just ended a transaction may be faster than its markers: for so long it need not know."""

PARKED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all batches that wait; those that would be more are sent back to be tried again."""

REFUSED_KEPT_MAX: Final = 1000
"""Producers whose next write must be the one that was sent back; the oldest are forgotten when there are more."""

ABORTABLE_SINCE: Final = 11
JOINS_SINCE: Final = 12
"""Versions of Produce: from one on clients know TRANSACTION_ABORTABLE, from the other partitions join unasked."""

_ERRORS: Final[Mapping[ErrorCode, type[OttlaError]]] = {
    ErrorCode.PRODUCER_FENCED: InvalidProducerEpochError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProducerIdMappingError,
    ErrorCode.INVALID_TXN_STATE: InvalidTransactionStateError,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionAbortableError,
    ErrorCode.CONCURRENT_TRANSACTIONS: ConcurrentTransactionsError,
    ErrorCode.INVALID_REQUEST: InvalidRequestError,
}
"""What a producer hears. Whatever else went wrong passes, and old clients know no other error that only says so."""


class TransactionalPart(NamedTuple):
    """One batch of a request, where it shall go, and as which part of the request."""

    partition: Partition
    batch: Batch
    at: int


class TransactionalWrites(NamedTuple):
    """What the batches of one Produce request have in common."""

    transactional_id: str
    version: int
    acks: int
    waiter: AppendWaiter


_Key = tuple[Partition, ProducerId]


class _Question:
    """One request's batches while their coordinator is asked."""

    __slots__ = ("guards", "is_parked", "parts", "retries", "writes")

    def __init__(self, writes: TransactionalWrites, parts: list[TransactionalPart]) -> None:
        self.writes = writes
        self.parts = parts
        self.guards: list[ProducerEntry | None] = []
        """What the logs knew of the producer when the coordinator was asked."""
        self.retries = 0
        self.is_parked = False


class TransactionVerification:
    """The transactional writes of all clients; see the module's docstring."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._behind: dict[_Key, list[tuple[TransactionalWrites, TransactionalPart]]] = {}
        """Batches that wait for an earlier one of their producer; a key without any has only the earlier one."""
        self._parked_bytes = 0
        self._refused: dict[_Key, tuple[ProducerEpoch, int]] = {}
        """The epoch and first sequence of batches that were sent back to be tried again, where the log knows nothing of
        their producer, and so could not tell that a later one is out of order."""

    # Produce

    def append(self, writes: TransactionalWrites, parts: Sequence[TransactionalPart]) -> None:
        """Appends the batches of one producer in one epoch, each at once or when it may be; the waiter is told.

        A batch that has to wait is copied.
        """
        must_ask = writes.version >= JOINS_SINCE or self._broker.config.transaction_partition_verification_enable
        unknown: list[TransactionalPart] = []
        for part in parts:
            partition, batch, _ = part
            behind = self._behind.get((partition, batch.producer_id))
            if behind is not None:
                if (kept := self._kept(writes, [part])) is not None:
                    behind.append((writes, kept[0]))
            elif not must_ask or _has_opened(partition, batch):
                _append(writes, part)
            else:
                unknown.append(part)
        if unknown:
            self._ask(_Question(writes, unknown))

    def _ask(self, question: _Question) -> None:
        writes, batch = question.writes, question.parts[0].batch
        joins = writes.version >= JOINS_SINCE
        question.guards = [part.partition.log.producers.get(batch.producer_id) for part in question.parts]
        answer = ask_coordinator(
            self._broker,
            AddPartitions(
                transactional_id=writes.transactional_id,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                partitions=tuple(dict.fromkeys(_name(part.partition) for part in question.parts)),
                verify_only=not joins,
                client_version=EPOCH_BUMP_VERSION if joins else 0,
            ),
        )
        if answer.done():
            self._on_answer(question, answer)
        elif self._park(question):
            answer.add_done_callback(partial(self._on_answer, question))

    def _park(self, question: _Question) -> bool:
        """Whether its batches wait now; if not, they have been refused."""
        if question.is_parked:
            return True
        kept = self._kept(question.writes, question.parts)
        if kept is None:
            return False
        question.parts, question.is_parked = kept, True
        for part in kept:
            self._behind.setdefault((part.partition, part.batch.producer_id), [])
        return True

    def _kept(self, writes: TransactionalWrites, parts: list[TransactionalPart]) -> list[TransactionalPart] | None:
        """Copies of batches that have to wait, since others get their memory when the turn ends; None if there are too
        many that wait, and these are refused."""
        size = sum(part.batch.size_bytes for part in parts)
        if self._parked_bytes + size > PARKED_BYTES_MAX:
            for part in parts:
                full = f"{PARKED_BYTES_MAX} bytes of batches wait for their coordinators; try again"
                writes.waiter.on_outcome(part.at, NotEnoughReplicasError(full))
            return None
        self._parked_bytes += size
        writes.waiter.on_waiting()
        return [part._replace(batch=Batch(bytearray(part.batch.buffer))) for part in parts]

    def _on_answer(self, question: _Question, answer: "asyncio.Future[AddPartitionsResponse]") -> None:
        if answer.cancelled():
            # The broker stops, and nobody waits for the coordinator any more; who waits here may ask the next leader.
            errors = {_name(part.partition): ErrorCode.COORDINATOR_NOT_AVAILABLE for part in question.parts}
        else:
            errors = dict(answer.result().errors)
        joins = question.writes.version >= JOINS_SINCE
        if joins and question.retries < RETRIES and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values():
            question.retries += 1
            if self._park(question):
                self._broker.timers.after(RETRY_MS, partial(self._ask, question))
            return
        for part, guard in zip(question.parts, question.guards, strict=True):
            error = errors.get(_name(part.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            self._settle(question.writes, part, guard, error)
        if question.is_parked:
            self._parked_bytes -= sum(part.batch.size_bytes for part in question.parts)
            for part in question.parts:
                self._release(part, errors)

    def _settle(
        self, writes: TransactionalWrites, part: TransactionalPart, guard: ProducerEntry | None, error: ErrorCode
    ) -> None:
        partition, batch, at = part
        key = partition, batch.producer_id
        try:
            if error is not ErrorCode.NONE:
                refusal = _refusal(error, writes.version, part)
                if guard is None and isinstance(refusal, NotEnoughReplicasError | ConcurrentTransactionsError):
                    self._remember_refused(key, batch)
                raise refusal
            if self._broker.partitions.get(partition.topic, partition.index) is not partition:
                raise NotLeaderError(f"{_name(partition)} was given away while a batch for it waited")
            if partition.log.producers.get(batch.producer_id) is not guard:
                raise InvalidTransactionStateError(
                    f"producer {batch.producer_id} ended its transaction while a batch for {_name(partition)} waited"
                )
            if guard is None:
                self._check_first(writes, part)
            _append(writes, part)
        except OttlaError as refused:
            writes.waiter.on_outcome(at, refused)

    def _check_first(self, writes: TransactionalWrites, part: TransactionalPart) -> None:
        """The log knows nothing of the producer, and would take any sequence; some cannot be the first."""
        batch = part.batch
        epoch, sequence = self._refused.get((part.partition, batch.producer_id), (batch.producer_epoch, -1))
        is_overtaking = epoch == batch.producer_epoch and 0 <= sequence < batch.base_sequence
        # Where every transaction has an epoch of its own, so have the sequences, and they begin at 0.
        if is_overtaking or (writes.version >= JOINS_SINCE and batch.base_sequence > 0):
            raise OutOfOrderSequenceError(
                f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence {batch.base_sequence} to"
                f" {_name(part.partition)}, which lacks an earlier one"
            )
        self._refused.pop((part.partition, batch.producer_id), None)

    def _remember_refused(self, key: _Key, batch: Batch) -> None:
        refused = batch.producer_epoch, batch.base_sequence
        known = self._refused.pop(key, refused)
        is_older = known[0] > refused[0] or (known[0] == refused[0] and known[1] < refused[1])
        self._refused[key] = known if is_older else refused
        if len(self._refused) > REFUSED_KEPT_MAX:
            del self._refused[next(iter(self._refused))]

    def _release(self, head: TransactionalPart, errors: Mapping[TopicPartition, ErrorCode]) -> None:
        """Lets those go on that waited behind a batch; if it was refused they are, too, or they would overtake it."""
        behind = self._behind.pop((head.partition, head.batch.producer_id), None)
        if not behind:
            return
        error = errors.get(_name(head.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
        for writes, part in behind:
            self._parked_bytes -= part.batch.size_bytes
            if error is not ErrorCode.NONE and part.batch.producer_epoch == head.batch.producer_epoch:
                writes.waiter.on_outcome(part.at, _refusal(error, writes.version, part))
            else:
                self.append(writes, [part])

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
        """Whether a producer may write to a partition within its transaction; what is written must be so at once.

        With `joins` the partition becomes part of the transaction.
        """
        for attempt in range(1 + RETRIES):
            if is_open(partition, producer_id, producer_epoch):
                return ErrorCode.NONE
            guard = partition.log.producers.get(producer_id)
            name = _name(partition)
            request = AddPartitions(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                partitions=(name,),
                verify_only=not joins,
                client_version=EPOCH_BUMP_VERSION if joins else 0,
            )
            error = dict((await ask_coordinator(self._broker, request)).errors)[name]
            if error is ErrorCode.NONE and partition.log.producers.get(producer_id) is not guard:
                return ErrorCode.INVALID_TXN_STATE
            if not joins or error is not ErrorCode.CONCURRENT_TRANSACTIONS or attempt == RETRIES:
                break
            await self._broker.clock.sleep(RETRY_MS / 1000)
        return error


def ask_coordinator(
    broker: "Broker", request: AddPartitions, *, elsewhere: bool = True
) -> "asyncio.Future[AddPartitionsResponse]":
    """The coordinator's answer; here mostly it is there already. Whatever fails is an error of every partition.

    Without `elsewhere` only this broker is asked. A request that came to the wrong broker must not be passed on: it may
    be older than what its client has done since, and two brokers that take each other for it would never end.
    """
    answer: asyncio.Future[AddPartitionsResponse] = asyncio.get_running_loop().create_future()
    try:
        shard = broker.transactions.shard_of(request.transactional_id)
        shard.check_active()
    except NotCoordinatorError as error:
        coordinator = broker.transactions.coordinator_of(request.transactional_id) if elsewhere else None
        if coordinator is not None:
            return asyncio.get_running_loop().create_task(_ask_elsewhere(broker, coordinator, request))
        answer.set_result(_failed(request, error.code))
    except OttlaError as error:
        answer.set_result(_failed(request, error.code))
    else:
        shard.carry_out(shard.machine.add_partitions(request, shard.now_ms(), answer))
    return answer


async def _ask_elsewhere(broker: "Broker", coordinator: BrokerId, request: AddPartitions) -> AddPartitionsResponse:
    from kio.schema.add_partitions_to_txn.v5.request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from kio.schema.types import ProducerId as WireProducerId
    from kio.schema.types import TopicName, TransactionalId
    from kio.static.primitive import i16, i32

    topics: dict[str, list[int]] = {}
    for name in request.partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TransactionalId(request.transactional_id),
        producer_id=WireProducerId(request.producer_id),
        producer_epoch=i16(request.producer_epoch),
        verify_only=request.verify_only,
        topics=tuple(
            AddPartitionsToTxnTopic(name=TopicName(topic), partitions=tuple(i32(index) for index in indexes))
            for topic, indexes in topics.items()
        ),
    )
    message = AddPartitionsToTxnRequest(transactions=(transaction,))
    try:
        answer = await broker.peers.ask(coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, message)
    except OttlaError as error:
        # A coordinator that cannot be reached has said nothing; it, or the next one, may be asked again.
        silent = error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        return _failed(request, ErrorCode.COORDINATOR_NOT_AVAILABLE if silent else error.code)
    if answer.error_code:
        return _failed(request, ErrorCode(int(answer.error_code)))
    errors = {
        TopicPartition(topic.name, int(part.partition_index)): ErrorCode(int(part.partition_error_code))
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for part in topic.results_by_partition
    }
    return AddPartitionsResponse(
        errors=tuple((name, errors.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)) for name in request.partitions)
    )


def _failed(request: AddPartitions, code: ErrorCode) -> AddPartitionsResponse:
    return AddPartitionsResponse(errors=tuple((name, code) for name in request.partitions))


def is_open(partition: Partition, producer_id: ProducerId, producer_epoch: ProducerEpoch) -> bool:
    """Whether the log has a transaction of the producer open, in this epoch."""
    entry = partition.log.producers.get(producer_id)
    return entry is not None and entry.transaction_start is not None and entry.epoch == producer_epoch


def _has_opened(partition: Partition, batch: Batch) -> bool:
    """Whether the batch's transaction is open, or will be when what was queued in this turn is written."""
    if is_open(partition, batch.producer_id, batch.producer_epoch):
        return True
    partition.append_queued()
    return is_open(partition, batch.producer_id, batch.producer_epoch)


def _append(writes: TransactionalWrites, part: TransactionalPart) -> None:
    try:
        part.partition.append_soon(part.batch, writes.acks, writes.waiter, part.at)
    except OttlaError as error:
        writes.waiter.on_outcome(part.at, error)


def _name(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


def _refusal(error: ErrorCode, version: int, part: TransactionalPart) -> OttlaError:
    kind = _ERRORS.get(error, NotEnoughReplicasError)
    if kind is TransactionAbortableError and version < ABORTABLE_SINCE:
        kind = InvalidTransactionStateError
    if kind is ConcurrentTransactionsError and version < JOINS_SINCE:
        kind = NotEnoughReplicasError
    return kind(
        f"{_name(part.partition)} is not part of a transaction of producer {part.batch.producer_id} in epoch"
        f" {part.batch.producer_epoch}: the coordinator says {error.name}"
    )
