"""Decides what happens to transactional batches whose transaction the log does not have open.

Pure. A batch that was delayed on its way may arrive after its transaction has ended, and would then hold back
read_committed consumers forever. So the first batch of a producer to a partition is verified with the transaction
coordinator: an old client has added the partition, a newer one leaves it to the broker, and the partition joins now.
- While the coordinator is asked, later batches of the same producer and partition wait behind the first one, so that
  none overtakes another.
- What the log knows of the producer is compared before and after. If it has changed, a transaction has ended meanwhile,
  and the coordinator's answer no longer counts. Where every transaction has its own epoch, it may have been the
  previous transaction, whose client does not wait for markers: the coordinator is asked again.
- A refused batch refuses those of its epoch that wait behind it; batches of another epoch go on.
- Batches that wait use bounded memory; beyond that they are refused, and the client retries.

`verification.py` carries out the effects. The coordinator's own decision is in `transaction_state.py`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION, AddPartitions
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidRequestError,
    InvalidTransactionStateError,
    NotEnoughReplicasError,
    NotLeaderError,
    OttlaError,
    OutOfOrderSequenceError,
    ProducerIdMappingError,
    TransactionAbortableError,
)
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.model.invariants import violated

RETRY_MS: Final = 20
RETRIES: Final = 5
"""A client that has just ended a transaction may be faster than its markers. The broker retries this often before the
client is told."""

PARKED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Size of all batches that wait; further ones are refused, and the client retries."""

REFUSED_KEPT_MAX: Final = 1000
"""Producers whose next batch must be the refused one; beyond this the oldest are forgotten."""

ABORTABLE_SINCE: Final = 11
"""From this version of Produce on, clients know TRANSACTION_ABORTABLE."""
JOINS_SINCE: Final = 12
"""From this version of Produce on, a partition joins the transaction with its first batch."""

_ERRORS: Final[Mapping[ErrorCode, type[OttlaError]]] = {
    ErrorCode.PRODUCER_FENCED: InvalidProducerEpochError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ProducerIdMappingError,
    ErrorCode.INVALID_TXN_STATE: InvalidTransactionStateError,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionAbortableError,
    ErrorCode.CONCURRENT_TRANSACTIONS: ConcurrentTransactionsError,
    ErrorCode.INVALID_REQUEST: InvalidRequestError,
}
"""The producer's error for the coordinator's. Any other is temporary: old clients know only NOT_ENOUGH_REPLICAS for
that."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PendingBatch:
    """One batch that cannot be appended at once. Those of one Produce request share transactional id and version."""

    partition: Hashable
    """The partition object: one that was given up and came back is another."""
    name: TopicPartition
    transactional_id: str
    version: int
    """Of the Produce request."""
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    size_bytes: int
    write: Any
    """What the shell needs to append or refuse the batch."""

    @property
    def key(self) -> "Key":
        """Batches with the same key are appended in the order in which they came."""
        return self.partition, self.producer_id

    @property
    def joins(self) -> bool:
        """Whether the partition joins the transaction with this batch."""
        return self.version >= JOINS_SINCE


Key = tuple[Hashable, ProducerId]


@dataclass(frozen=True, slots=True)
class Append:
    """The batch belongs to its transaction: append it."""

    batch: PendingBatch


@dataclass(frozen=True, slots=True)
class Refuse:
    """The batch is not appended; its client gets this error."""

    batch: PendingBatch
    error: OttlaError


@dataclass(frozen=True, slots=True)
class Keep:
    """The batches, of one request, wait: copy them, since their memory is reused when the turn ends."""

    batches: tuple[PendingBatch, ...]


@dataclass(frozen=True, slots=True)
class Resume:
    """The batch no longer waits: treat it as if it had just arrived."""

    batch: PendingBatch


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the coordinator; then call `on_answer`, or first `on_pending` if there is no answer yet."""

    question_id: int
    request: AddPartitions


VerificationEffect = Append | Refuse | Keep | Resume | Ask


class _Question:
    """The batches of one request that are verified together."""

    __slots__ = ("batches", "entries", "is_parked", "retries")

    def __init__(self, batches: tuple[PendingBatch, ...]) -> None:
        self.batches = batches
        self.entries: list[object | None] = []
        """What the logs knew of the producer when the coordinator was last asked."""
        self.retries = 0
        self.is_parked = False

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)


class VerificationState:
    """All batches that wait for a coordinator, or behind such a batch.

    `entry_of` gives what the log knows of a batch's producer, compared by identity, or None; `is_led` says whether this
    broker still leads the batch's partition. Both only read.

    Invariants: exactly the keys of parked questions have a queue of batches behind them; `parked_bytes` is the size of
    all batches in parked questions and queues; a question with a retry deadline is parked.
    """

    def __init__(
        self,
        entry_of: Callable[[PendingBatch], object | None],
        is_led: Callable[[PendingBatch], bool],
        parked_bytes_max: int = PARKED_BYTES_MAX,
    ) -> None:
        self._entry_of = entry_of
        self._is_led = is_led
        self._parked_bytes_max = parked_bytes_max
        self._questions: dict[int, _Question] = {}
        self._next_id = 0
        self._retries: Deadlines[int] = Deadlines()
        self._behind: dict[Key, list[PendingBatch]] = {}
        """Batches that wait behind one that is being verified; the list of a key may be empty."""
        self._refused: dict[Key, tuple[ProducerEpoch, int]] = {}
        """Epoch and first sequence of batches that were refused as temporary, where the log knows nothing of their
        producer and could not tell that a later batch is out of order."""
        self.parked_bytes = 0

    # Events

    def is_held(self, partition: Hashable, producer_id: ProducerId) -> bool:
        """Whether a batch of this producer must wait behind another."""
        return (partition, producer_id) in self._behind

    def on_batches(self, batches: Sequence[PendingBatch]) -> list[VerificationEffect]:
        """Batches of one request that are held, or whose transaction the log does not have open."""
        effects: list[VerificationEffect] = []
        unverified: list[PendingBatch] = []
        for batch in batches:
            behind = self._behind.get(batch.key)
            if behind is None:
                unverified.append(batch)
            elif self._has_room_for(batch.size_bytes):
                behind.append(batch)
                effects.append(Keep((batch,)))
            else:
                effects.append(self._full(batch))
        if unverified:
            question_id, self._next_id = self._next_id, self._next_id + 1
            self._questions[question_id] = _Question(tuple(unverified))
            effects.append(self._ask(question_id))
        return effects

    def on_pending(self, question_id: int) -> list[VerificationEffect]:
        """The coordinator was asked and has not answered yet."""
        return self._park(question_id)

    def on_answer(
        self, question_id: int, errors: Mapping[TopicPartition, ErrorCode], now_ms: int
    ) -> list[VerificationEffect]:
        """The coordinator's verdict on each partition; one that it does not mention has failed."""
        question = self._questions.get(question_id)
        if question is None:
            return []  # Its batches were refused when they should have waited.
        if self._asks_again(question, errors):
            question.retries += 1
            effects = self._park(question_id)
            if question_id in self._questions:
                self._retries.set(question_id, now_ms + RETRY_MS)
            return effects
        del self._questions[question_id]
        effects = [
            self._settled(batch, entry, errors.get(batch.name, ErrorCode.UNKNOWN_SERVER_ERROR))
            for batch, entry in zip(question.batches, question.entries, strict=True)
        ]
        if question.is_parked:
            self.parked_bytes -= question.size_bytes
            for batch in question.batches:
                effects += self._released(batch, errors.get(batch.name, ErrorCode.UNKNOWN_SERVER_ERROR))
        return effects

    def on_tick(self, now_ms: int) -> list[VerificationEffect]:
        """Asks again where that is due."""
        effects: list[VerificationEffect] = []
        while (question_id := self._retries.pop(now_ms)) is not None:
            effects.append(self._ask(question_id))
        return effects

    def next_deadline(self) -> int | None:
        """When `on_tick` must be called next."""
        return self._retries.next()

    # Decisions

    def _ask(self, question_id: int) -> Ask:
        question = self._questions[question_id]
        question.entries = [self._entry_of(batch) for batch in question.batches]
        first = question.batches[0]
        request = AddPartitions(
            transactional_id=first.transactional_id,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            partitions=tuple(dict.fromkeys(batch.name for batch in question.batches)),
            verify_only=not first.joins,
            client_version=EPOCH_BUMP_VERSION if first.joins else 0,
        )
        return Ask(question_id, request)

    def _asks_again(self, question: _Question, errors: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Whether markers of the previous transaction are still being written, or were while the coordinator was
        asked."""
        if not question.batches[0].joins or question.retries >= RETRIES:
            return False
        return ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() or any(
            errors.get(batch.name) is ErrorCode.NONE and self._is_led(batch) and self._entry_of(batch) is not entry
            for batch, entry in zip(question.batches, question.entries, strict=True)
        )

    def _park(self, question_id: int) -> list[VerificationEffect]:
        """Lets the batches of a question wait; refuses them, and drops the question, if there is no room."""
        question = self._questions[question_id]
        if question.is_parked:
            return []
        if not self._has_room_for(question.size_bytes):
            del self._questions[question_id]
            return [self._full(batch) for batch in question.batches]
        question.is_parked = True
        for batch in question.batches:
            self._behind.setdefault(batch.key, [])
        return [Keep(question.batches)]

    def _has_room_for(self, size_bytes: int) -> bool:
        """Counts batches that are to wait, if they fit."""
        if self.parked_bytes + size_bytes > self._parked_bytes_max:
            return False
        self.parked_bytes += size_bytes
        return True

    def _full(self, batch: PendingBatch) -> Refuse:
        why = f"{self._parked_bytes_max} bytes of batches already wait for transaction coordinators; retry"
        return Refuse(batch, NotEnoughReplicasError(why))

    def _settled(self, batch: PendingBatch, entry: object | None, error: ErrorCode) -> VerificationEffect:
        """What becomes of a batch, verified when the log knew this `entry` of its producer."""
        if error is not ErrorCode.NONE:
            refusal = _refusal(error, batch)
            if entry is None and isinstance(refusal, NotEnoughReplicasError | ConcurrentTransactionsError):
                self._remember_refused(batch)
            return Refuse(batch, refusal)
        if not self._is_led(batch):
            return Refuse(batch, NotLeaderError(f"partition {batch.name} moved while a batch for it was verified"))
        if self._entry_of(batch) is not entry:
            return Refuse(
                batch,
                InvalidTransactionStateError(
                    f"producer {batch.producer_id} ended its transaction while a batch for partition {batch.name} was"
                    " verified"
                ),
            )
        if entry is None and self._is_out_of_order(batch):
            return Refuse(
                batch,
                OutOfOrderSequenceError(
                    f"producer {batch.producer_id} epoch {batch.producer_epoch} sent sequence {batch.base_sequence} to"
                    f" partition {batch.name}, which lacks an earlier one"
                ),
            )
        if entry is None:
            self._refused.pop(batch.key, None)
        return Append(batch)

    def _is_out_of_order(self, batch: PendingBatch) -> bool:
        """The log knows nothing of the producer and would take any sequence; some cannot be the first."""
        epoch, sequence = self._refused.get(batch.key, (batch.producer_epoch, -1))
        is_overtaking = epoch == batch.producer_epoch and 0 <= sequence < batch.base_sequence
        # Where every transaction has an epoch of its own, its sequences begin at 0.
        return is_overtaking or (batch.joins and batch.base_sequence > 0)

    def _remember_refused(self, batch: PendingBatch) -> None:
        refused = batch.producer_epoch, batch.base_sequence
        known = self._refused.pop(batch.key, refused)
        is_older = known[0] > refused[0] or (known[0] == refused[0] and known[1] < refused[1])
        self._refused[batch.key] = known if is_older else refused
        if len(self._refused) > REFUSED_KEPT_MAX:
            del self._refused[next(iter(self._refused))]

    def _released(self, head: PendingBatch, error: ErrorCode) -> list[VerificationEffect]:
        """Lets the batches behind one that is settled go on; if the coordinator refused it, those of its epoch are
        refused too, or they would overtake it."""
        effects: list[VerificationEffect] = []
        for batch in self._behind.pop(head.key, ()):
            self.parked_bytes -= batch.size_bytes
            is_refused = error is not ErrorCode.NONE and batch.producer_epoch == head.producer_epoch
            effects.append(Refuse(batch, _refusal(error, batch)) if is_refused else Resume(batch))
        return effects

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        parked = {id: question for id, question in self._questions.items() if question.is_parked}
        keys = {batch.key for question in parked.values() for batch in question.batches}
        if keys != set(self._behind):
            violated(f"verification: queues exist for {list(self._behind)}, parked batches have {list(keys)}")
        behind = [batch for queue in self._behind.values() for batch in queue]
        size = sum(question.size_bytes for question in parked.values()) + sum(batch.size_bytes for batch in behind)
        if size != self.parked_bytes or size > self._parked_bytes_max:
            violated(f"verification: {size} bytes wait, {self.parked_bytes} are counted")
        for question_id, question in self._questions.items():
            if question_id in self._retries and not question.is_parked:
                violated(f"verification: question {question_id} is retried but not parked")
            if question.retries > RETRIES:
                violated(f"verification: question {question_id} was retried {question.retries} times")


def _refusal(error: ErrorCode, batch: PendingBatch) -> OttlaError:
    kind = _ERRORS.get(error, NotEnoughReplicasError)
    if kind is TransactionAbortableError and batch.version < ABORTABLE_SINCE:
        kind = InvalidTransactionStateError
    if kind is ConcurrentTransactionsError and not batch.joins:
        kind = NotEnoughReplicasError
    return kind(
        f"partition {batch.name} is not part of a transaction of producer {batch.producer_id} epoch"
        f" {batch.producer_epoch}: the coordinator answered {error.name}"
    )
