"""A producer's transaction as a table: what may be called when, and what errors leave possible."""

import pytest

from ottla.client.errors import answer_error
from ottla.client.producer.errors import ProducerBrokenError, ProducerFencedError, TransactionFailedError
from ottla.client.producer.transactions.transaction_state import (
    ProducerTransactionState,
    Severity,
    TransactionPhase,
    severity,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

CALLS = (
    "init_transactions",
    "begin_transaction",
    "send",
    "send_offsets_to_transaction",
    "commit_transaction",
    "abort_transaction",
)
ALLOWED = {
    TransactionPhase.UNINITIALIZED: {"init_transactions"},
    TransactionPhase.READY: {"begin_transaction"},
    TransactionPhase.OPEN: {"send", "send_offsets_to_transaction", "commit_transaction", "abort_transaction"},
    TransactionPhase.ENDING: set(),
    TransactionPhase.FAILED: {"abort_transaction"},
    TransactionPhase.BROKEN: set(),
}
EXPECTED_ERROR = {TransactionPhase.FAILED: TransactionFailedError, TransactionPhase.BROKEN: ProducerFencedError}
PARTITION = TopicPartition("t", 0)


def state_in(phase: TransactionPhase) -> ProducerTransactionState:
    state = ProducerTransactionState("x")
    state.phase = phase
    if phase is TransactionPhase.BROKEN:
        state.error = ProducerFencedError("fenced")
    return state


@pytest.mark.parametrize("phase", list(TransactionPhase))
@pytest.mark.parametrize("name", CALLS)
def test_what_may_be_called(phase: TransactionPhase, name: str) -> None:
    state = state_in(phase)
    if name in ALLOWED[phase]:
        state.call(name)
        return
    with pytest.raises(EXPECTED_ERROR.get(phase, MisuseError)):
        state.call(name)
    assert phase is state.phase


@pytest.mark.parametrize(
    ("code", "expected", "kind", "phase"),
    [
        (ErrorCode.PRODUCER_FENCED, Severity.BREAK, ProducerFencedError, TransactionPhase.BROKEN),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Severity.BREAK, ProducerFencedError, TransactionPhase.BROKEN),
        (ErrorCode.INVALID_TXN_STATE, Severity.BREAK, ProducerBrokenError, TransactionPhase.BROKEN),
        (ErrorCode.TRANSACTION_ABORTABLE, Severity.ABORT, TransactionFailedError, TransactionPhase.FAILED),
        (ErrorCode.ILLEGAL_GENERATION, Severity.ABORT, TransactionFailedError, TransactionPhase.FAILED),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Severity.ABORT, TransactionFailedError, TransactionPhase.FAILED),
    ],
)
def test_refusals(code: ErrorCode, expected: Severity, kind: type[Exception], phase: TransactionPhase) -> None:
    assert expected is severity(code)
    state = state_in(TransactionPhase.OPEN)
    error = state.refused(answer_error(code, "doing something"))
    assert kind is type(error)
    assert code.name in str(error)
    assert phase is state.phase


def test_what_passes_by_itself_is_asked_again() -> None:
    for code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        assert Severity.RETRY is severity(code)


def test_version_1_tells_the_coordinator_of_each_partition_once() -> None:
    state = state_in(TransactionPhase.OPEN)
    assert [True, False] == [state.touch(PARTITION), state.touch(PARTITION)]
    assert state.is_empty
    assert [PARTITION] == state.unregistered()
    state.registered([PARTITION])
    assert ([], False, False) == (state.unregistered(), state.is_empty, state.touch(PARTITION))
    state.ended()
    assert state.is_empty
    assert state.touch(PARTITION)


def test_version_2_need_not() -> None:
    state = state_in(TransactionPhase.UNINITIALIZED)
    state.initialized(2)
    assert TransactionPhase.READY is state.phase
    assert not state.touch(PARTITION)
    assert ([], False) == (state.unregistered(), state.is_empty)


def test_the_first_reason_to_break_stays_and_ending_forgets_failures() -> None:
    state = state_in(TransactionPhase.OPEN)
    state.fail(ValueError("lost"))
    assert (TransactionPhase.FAILED, True) == (state.phase, state.wants_new_epoch)
    state.call("abort_transaction")
    state.ended()
    assert (TransactionPhase.READY, None, False) == (state.phase, state.error, state.wants_new_epoch)
    first = ProducerFencedError("first")
    state.break_off(first)
    state.break_off(ProducerBrokenError("second"))
    assert first is state.error
