"""The states of a producer's transactions: which method may be called when, and what is possible after an error.

Pure: takes calls and outcomes, and says what is allowed. `producer_transactions.py` does the work.

    uninitialized --init--> ready --begin--> open --commit/abort--> ending --ended--> ready
                                              | fail                  | fail
                                              +-------> failed <------+   --abort--> ending
    any --break--> broken; the producer must be closed
"""

from enum import StrEnum
from typing import Final, NoReturn

from ottla.client.errors import RETRIABLE_CODES, AnswerError
from ottla.client.producer.errors import (
    ProducerBrokenError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError, OttlaError
from ottla.model.ids import TopicPartition


class TransactionPhase(StrEnum):
    """The state of a transactional producer, with what to do next."""

    UNINITIALIZED = "not initialized: call init_transactions first"
    READY = "not in a transaction: call begin_transaction first"
    OPEN = "in a transaction: commit or abort it first"
    ENDING = "ending a transaction: wait until commit or abort returns"
    FAILED = "in a transaction that failed: call abort_transaction"
    BROKEN = "broken: close it and create a new one"


class Severity(StrEnum):
    """What is possible after an error of the coordinator."""

    RETRY = "retry"
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
"""Errors that mean that another producer uses the transactional id."""

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
"""The phases in which each method may be called, and the phase that follows."""


def severity(code: int) -> Severity:
    """What is possible after an error of a transaction or group coordinator."""
    if code in RETRIABLE_CODES:
        return Severity.RETRY
    return Severity.BREAK if code in _BREAKING else Severity.ABORT


class ProducerTransactionState:
    """Mutable; one for each producer with a transactional id."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.phase = TransactionPhase.UNINITIALIZED
        self.version = 1
        """2 where brokers bump the epoch for each transaction and add partitions to it themselves (KIP-890)."""
        self.error: Exception | None = None
        """Why the phase is FAILED or BROKEN."""
        self.wants_new_epoch = False
        """Whether a numbered batch was not written: sequence numbers start at 0 under a new epoch after the abort."""
        self._unregistered: dict[TopicPartition, None] = {}
        self._registered: set[TopicPartition] = set()
        self._has_offsets = False

    def call(self, name: str) -> None:
        """The program calls the method `name`. Raises the earlier failure, or `MisuseError` in the wrong phase."""
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
                f" abort_transaction, then begin a new transaction: {self.error}"
            ) from self.error
        raise MisuseError(f"{name}: the producer of {self.transactional_id!r} is {self.phase.value}")

    # Partitions and offsets of the transaction

    def touch(self, partition: TopicPartition) -> bool:
        """A record is appended to this partition; returns whether the coordinator must add the partition first."""
        if partition in self._registered or partition in self._unregistered:
            return False
        if self.version >= 2:
            self._registered.add(partition)
            return False
        self._unregistered[partition] = None
        return True

    def unregistered(self) -> list[TopicPartition]:
        """Partitions that the coordinator must add to the transaction; none once it failed."""
        return list(self._unregistered) if self.phase in (TransactionPhase.OPEN, TransactionPhase.ENDING) else []

    def drop_unregistered(self) -> None:
        """The transaction is aborted: the coordinator is not asked for more partitions."""
        self._unregistered.clear()

    def registered(self, partitions: list[TopicPartition]) -> None:
        """The coordinator added these partitions."""
        for partition in partitions:
            self._unregistered.pop(partition, None)
            self._registered.add(partition)

    def touch_offsets(self) -> None:
        """Offsets of a group are part of the transaction."""
        self._has_offsets = True

    @property
    def is_empty(self) -> bool:
        """Whether no coordinator knows of the transaction, so that none must end it."""
        return not self._registered and not self._has_offsets

    @property
    def is_under_way(self) -> bool:
        """Whether there is a transaction to end."""
        return self.phase in (TransactionPhase.OPEN, TransactionPhase.FAILED)

    # Outcomes

    def initialized(self, version: int) -> None:
        """The coordinator assigned a producer id and epoch."""
        self.version = version
        self.phase = TransactionPhase.READY

    def ended(self) -> None:
        """The transaction is committed or aborted."""
        self.phase = TransactionPhase.READY
        self.error = None
        self.wants_new_epoch = self._has_offsets = False
        self._unregistered.clear()
        self._registered.clear()

    def fail(self, error: Exception) -> None:
        """A part of the transaction failed: only abort is possible."""
        self.wants_new_epoch = True
        if self.phase in (TransactionPhase.OPEN, TransactionPhase.ENDING):
            self.phase = TransactionPhase.FAILED
            self.error = error

    def break_off(self, error: Exception) -> None:
        """The producer can only be closed; keeps the first reason."""
        if self.phase is not TransactionPhase.BROKEN:
            self.phase = TransactionPhase.BROKEN
            self.error = error

    def refused(self, plain: AnswerError, owner: str = "") -> OttlaError:
        """A coordinator refused finally: changes the phase and returns the error to raise.

        `owner` describes the producer that has the transactional id now.
        """
        if plain.error_code in FENCING_CODES:
            fenced = ProducerFencedError(
                f"{plain}: a newer producer uses the transactional id {self.transactional_id!r}, or the transaction"
                f" took longer than transaction_timeout_ms{owner and f' ({owner})'}; close this producer"
            )
            self.break_off(fenced)
            return fenced
        if severity(plain.error_code) is Severity.BREAK:
            broken = ProducerBrokenError(f"{plain}; close this producer and create a new one", plain.error_code)
            self.break_off(broken)
            return broken
        self.fail(plain)
        return TransactionFailedError(f"{plain}; call abort_transaction, then begin a new transaction")

    def failure(self) -> Exception | None:
        """The error of records that were not sent yet when the transaction failed; None if it did not fail."""
        if self.phase is TransactionPhase.BROKEN:
            return self.error
        if self.phase is not TransactionPhase.FAILED:
            return None
        aborted = TransactionAbortedError(
            f"not sent because the transaction of {self.transactional_id!r} failed: {self.error}"
        )
        aborted.__cause__ = self.error
        return aborted

    def check_sendable(self) -> None:
        """Raises unless a record may be sent now."""
        if self.phase is not TransactionPhase.OPEN:
            self._refuse("send")
