"""A producer's transactions as a table of states: what may be called when, and what an error leaves possible.

Pure: takes calls and outcomes, answers what is allowed. `transaction_requests.py` asks the coordinator, and
`producer_core.py` runs both.

    uninitialized --init--> ready --begin--> open --commit/abort--> ending --ended--> ready
                                              | fail                  | fail
                                              +-------> failed <------+   --abort--> ending
    any --break--> broken, for good
"""

from enum import StrEnum
from typing import Final, NoReturn

from ottla.client.errors import RETRIABLE_CODES, AnswerError
from ottla.client.producer.errors import ProducerBrokenError, ProducerFencedError, TransactionFailedError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition


class TransactionPhase(StrEnum):
    """Where a transactional producer is."""

    UNINITIALIZED = "not initialized: call init_transactions first"
    READY = "without a transaction: call begin_transaction first"
    OPEN = "in a transaction: commit or abort it first"
    ENDING = "ending a transaction: wait until commit or abort is through"
    FAILED = "in a transaction that failed: call abort_transaction"
    BROKEN = "broken: close it and make another one"


class Severity(StrEnum):
    """What an error of the coordinator leaves possible."""

    RETRY = "ask again"
    ABORT = "abort the transaction"
    BREAK = "close the producer"


_BREAKING: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
FENCING_CODES: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""What says that somebody else has taken over."""

_MOVES: Final = {
    "init_transactions": {TransactionPhase.UNINITIALIZED: TransactionPhase.UNINITIALIZED},
    "begin_transaction": {TransactionPhase.READY: TransactionPhase.OPEN},
    "send": {TransactionPhase.OPEN: TransactionPhase.OPEN},
    "send_offsets_to_transaction": {TransactionPhase.OPEN: TransactionPhase.OPEN},
    "commit_transaction": {TransactionPhase.OPEN: TransactionPhase.ENDING},
    "abort_transaction": {
        TransactionPhase.OPEN: TransactionPhase.ENDING,
        TransactionPhase.FAILED: TransactionPhase.ENDING,
    },
}
"""What may be called in which phase, and the phase that follows."""


def severity(code: int) -> Severity:
    """What an error of a transaction's or a group's coordinator leaves possible."""
    if code in RETRIABLE_CODES:
        return Severity.RETRY
    return Severity.BREAK if code in _BREAKING else Severity.ABORT


class ProducerTransactionState:
    """Mutable; one for a producer with a transactional id."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = TransactionPhase.UNINITIALIZED
        self.version = 1
        """2 where the brokers count an epoch for each transaction and need not be told its partitions before."""
        self.error: Exception | None = None
        """Why it is failed or broken."""
        self.wants_new_epoch = False
        """Whether a batch failed, so that after the abort the numbers must begin anew."""
        self._unregistered: dict[TopicPartition, None] = {}
        self._registered: set[TopicPartition] = set()
        self._has_offsets = False

    def call(self, name: str) -> None:
        """The program calls this method. Raises what went wrong before, or `MisuseError` if it is not its time."""
        following = _MOVES[name].get(self.phase)
        if following is None:
            self._refuse(name)
        self.phase = following

    def _refuse(self, name: str) -> NoReturn:
        if self.phase is TransactionPhase.BROKEN and self.error is not None:
            raise self.error.with_traceback(None)
        if self.phase is TransactionPhase.FAILED:
            raise TransactionFailedError(
                f"{name}: the transaction of {self.transactional_id!r} failed and can only be aborted; call"
                f" abort_transaction, then begin again: {self.error}"
            ) from self.error
        raise MisuseError(f"{name}: the producer of {self.transactional_id!r} is {self.phase.value}")

    # What the transaction has

    def touch(self, partition: TopicPartition) -> bool:
        """A record goes to this partition; whether the coordinator must be told first."""
        if partition in self._registered or partition in self._unregistered:
            return False
        if self.version >= 2:
            self._registered.add(partition)
            return False
        self._unregistered[partition] = None
        return True

    def unregistered(self) -> list[TopicPartition]:
        """Partitions that the coordinator must be told of."""
        return list(self._unregistered)

    def registered(self, partitions: list[TopicPartition]) -> None:
        """The coordinator knows of these."""
        for partition in partitions:
            self._unregistered.pop(partition, None)
            self._registered.add(partition)

    def touch_offsets(self) -> None:
        """A group's offsets are part of it."""
        self._has_offsets = True

    @property
    def is_empty(self) -> bool:
        """Whether no coordinator has heard of the transaction, so that none must hear of its end."""
        return not self._registered and not self._has_offsets

    @property
    def is_under_way(self) -> bool:
        """Whether there is a transaction to end."""
        return self.phase in (TransactionPhase.OPEN, TransactionPhase.FAILED)

    # What becomes of it

    def initialized(self, version: int) -> None:
        """The coordinator has given an identity."""
        self.version = version
        self.phase = TransactionPhase.READY

    def ended(self) -> None:
        """It is committed or aborted."""
        self.phase = TransactionPhase.READY
        self.error = None
        self.wants_new_epoch = self._has_offsets = False
        self._unregistered.clear()
        self._registered.clear()

    def fail(self, error: Exception) -> None:
        """Something of it failed: only abort is left."""
        self.wants_new_epoch = True
        if self.phase in (TransactionPhase.OPEN, TransactionPhase.ENDING):
            self.phase = TransactionPhase.FAILED
            self.error = error

    def break_off(self, error: Exception) -> None:
        """Nothing is possible any more; the first reason stays."""
        if self.phase is not TransactionPhase.BROKEN:
            self.phase = TransactionPhase.BROKEN
            self.error = error

    def refused(self, plain: AnswerError, story: str = "") -> OttlaError:
        """A coordinator refused for good: the state follows, and this is what to raise.

        `story` says what the coordinator knows of whoever has the transactional id now.
        """
        if plain.error_code in FENCING_CODES:
            fenced = ProducerFencedError(
                f"{plain}: a newer producer uses the transactional id {self.transactional_id!r}, or the transaction"
                f" took longer than transaction_timeout_ms{story and f' ({story})'}; close this producer"
            )
            self.break_off(fenced)
            return fenced
        if severity(plain.error_code) is Severity.BREAK:
            broken = ProducerBrokenError(f"{plain}; close this producer and make another one")
            self.break_off(broken)
            return broken
        self.fail(plain)
        return TransactionFailedError(f"{plain}; call abort_transaction, then begin again")

    def check_sendable(self) -> None:
        """Raises unless a record may be sent now."""
        if self.phase is not TransactionPhase.OPEN:
            self._refuse("send")
