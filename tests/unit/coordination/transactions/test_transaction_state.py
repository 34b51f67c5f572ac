"""Every event in every state of a transactional id, for both kinds of clients."""

from dataclasses import replace

import pytest

from ottla.coordination.transactions.records import TransactionEntry, TransactionStatus
from ottla.coordination.transactions.requests import AddPartitions, EndTransaction, InitProducerId
from ottla.coordination.transactions.transaction_state import (
    TransactionDecision,
    abort_by_coordinator,
    add_partitions,
    check_entry,
    check_step,
    completed,
    end_transaction,
    init_producer_id,
    timeout_deadline,
    verify_partitions,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerEpoch, ProducerId, TimestampMs, TopicPartition
from ottla.model.invariants import InvariantViolation

S = TransactionStatus
E = ErrorCode
PID, OTHER_PID, FRESH_PID = ProducerId(7), ProducerId(8), ProducerId(9)
NOW, START = 50_000, 40_000
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)

EMPTY, ONGOING = S.EMPTY, S.ONGOING
PREPARED = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
COMPLETE = (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
AT_REST = (EMPTY, *COMPLETE)


def entry_in(status: TransactionStatus, *, epoch: int = 5, client_version: int = 0) -> TransactionEntry:
    """An id in that state; one of version 2 whose transaction is decided has had its epoch bumped to `epoch`."""
    return TransactionEntry(
        producer_id=PID,
        previous_producer_id=PID,
        producer_epoch=ProducerEpoch(epoch),
        timeout_ms=1000,
        status=status,
        partitions=() if status in AT_REST else (ORDERS,),
        last_update_ms=TimestampMs(START),
        start_ms=TimestampMs(-1 if status is EMPTY else START),
        client_version=client_version,
    )


def init(
    entry: TransactionEntry | None,
    expected: tuple[int, int] = (-1, -1),
    *,
    last_epoch: int | None = None,
    fresh_id: ProducerId | None = FRESH_PID,
    version: int = 2,
) -> TransactionDecision:
    request = InitProducerId(
        transactional_id="t",
        timeout_ms=2000,
        expected_producer_id=ProducerId(expected[0]),
        expected_producer_epoch=ProducerEpoch(expected[1]),
    )
    return init_producer_id(
        entry,
        request,
        last_epoch=None if last_epoch is None else ProducerEpoch(last_epoch),
        fresh_id=fresh_id,
        transaction_version=version,
        now_ms=NOW,
    )


def add(
    entry: TransactionEntry | None, *added: TopicPartition, pid: ProducerId = PID, epoch: int = 5
) -> TransactionDecision:
    request = AddPartitions(
        transactional_id="t", producer_id=pid, producer_epoch=ProducerEpoch(epoch), partitions=added, client_version=2
    )
    return add_partitions(entry, request, NOW)


def end(
    entry: TransactionEntry | None,
    commit: bool,
    *,
    version: int,
    pid: ProducerId = PID,
    epoch: int = 5,
    fresh_id: ProducerId | None = FRESH_PID,
) -> TransactionDecision:
    request = EndTransaction(
        transactional_id="t",
        producer_id=pid,
        producer_epoch=ProducerEpoch(epoch),
        commit=commit,
        client_version=version,
    )
    return end_transaction(entry, request, fresh_id=fresh_id, now_ms=NOW)


def told(decision: TransactionDecision) -> tuple[ErrorCode, int, int]:
    return decision.error, decision.producer_id, decision.producer_epoch


# InitProducerId


def test_a_new_id_gets_a_fresh_producer_id() -> None:
    assert init(None, fresh_id=None).needs_producer_id
    decision = init(None)
    assert (E.NONE, FRESH_PID, 0) == told(decision)
    expected = TransactionEntry(
        producer_id=FRESH_PID,
        previous_producer_id=FRESH_PID,
        producer_epoch=ProducerEpoch(0),
        timeout_ms=2000,
        status=EMPTY,
        last_update_ms=TimestampMs(NOW),
    )
    assert (expected,) == decision.entries


def test_a_producer_that_the_log_has_forgotten_starts_anew() -> None:
    assert (E.NONE, FRESH_PID, 0) == told(init(None, (PID, 5)))


@pytest.mark.parametrize("status", AT_REST)
def test_init_at_rest_bumps_the_epoch(status: TransactionStatus) -> None:
    decision = init(entry_in(status, client_version=2))
    assert (E.NONE, PID, 6) == told(decision)
    (entry,) = decision.entries
    assert (EMPTY, 2000, -1, NOW, 2) == (
        entry.status, entry.timeout_ms, entry.start_ms, entry.last_update_ms, entry.client_version,
    )  # fmt: skip
    assert decision.last_epoch is None, "whoever had the id before is fenced"


@pytest.mark.parametrize("status", AT_REST)
def test_init_with_the_expected_epoch_goes_on_and_can_be_retried(status: TransactionStatus) -> None:
    decision = init(entry_in(status), (PID, 5))
    assert (E.NONE, PID, 6, 5) == (*told(decision), decision.last_epoch)
    retried = init(decision.entries[0], (PID, 5), last_epoch=5)
    assert (E.NONE, PID, 6, 5) == (*told(retried), retried.last_epoch)
    assert E.PRODUCER_FENCED == init(decision.entries[0], (PID, 5)).error, "a new coordinator does not know of it"


@pytest.mark.parametrize("status", [*AT_REST, ONGOING])
@pytest.mark.parametrize("expected", [(PID, 4), (PID, 6), (OTHER_PID, 5), (OTHER_PID, 32766)])
def test_init_with_an_unexpected_producer_is_fenced(status: TransactionStatus, expected: tuple[int, int]) -> None:
    assert TransactionDecision(error=E.PRODUCER_FENCED) == init(entry_in(status), expected)


@pytest.mark.parametrize("status", AT_REST)
def test_used_up_epochs_lead_to_a_new_producer_id(status: TransactionStatus) -> None:
    entry = entry_in(status, epoch=32766)
    assert init(entry, fresh_id=None).needs_producer_id
    assert (E.NONE, FRESH_PID, 0, None) == (*told(init(entry)), init(entry).last_epoch)
    decision = init(entry, (PID, 32766))
    assert (E.NONE, FRESH_PID, 0, 32766) == (*told(decision), decision.last_epoch)
    for _ in range(2):
        decision = init(decision.entries[0], (PID, 32766), last_epoch=32766)
        assert (E.NONE, FRESH_PID, 0) == told(decision), "the retry, and the retry of the retry"
    assert E.PRODUCER_FENCED == init(entry, (PID, 32765)).error


@pytest.mark.parametrize("status", [*PREPARED, S.PREPARE_EPOCH_FENCE])
def test_init_waits_for_markers(status: TransactionStatus) -> None:
    assert TransactionDecision(error=E.CONCURRENT_TRANSACTIONS) == init(entry_in(status))
    assert TransactionDecision(error=E.CONCURRENT_TRANSACTIONS) == init(entry_in(status), (OTHER_PID, 5))


@pytest.mark.parametrize(("version", "client_version"), [(0, 0), (1, 0), (2, 2)])
def test_init_during_a_transaction_fences_and_aborts(version: int, client_version: int) -> None:
    decision = init(entry_in(ONGOING), version=version)
    assert (E.CONCURRENT_TRANSACTIONS, -1, -1, None) == (*told(decision), decision.last_epoch)
    aborting = replace(
        entry_in(S.PREPARE_ABORT, epoch=6), last_update_ms=TimestampMs(NOW), client_version=client_version
    )
    assert (aborting,) == decision.entries
    again = init(completed(aborting, NOW))
    assert (E.NONE, PID, 7) == told(again), "the epoch in between was given to nobody"


def test_a_producer_that_goes_on_from_its_own_open_transaction_is_not_fenced() -> None:
    decision = init(entry_in(ONGOING), (PID, 5))
    assert (E.CONCURRENT_TRANSACTIONS, 5) == (decision.error, decision.last_epoch)
    again = init(completed(decision.entries[0], NOW), (PID, 5), last_epoch=5)
    assert (E.NONE, PID, 6) == told(again)


def test_fencing_at_the_last_epoch_needs_a_new_producer_id() -> None:
    entry = entry_in(ONGOING, epoch=32766)
    assert init(entry, fresh_id=None).needs_producer_id
    (aborting,) = init(entry).entries
    assert (32767, FRESH_PID) == (aborting.producer_epoch, aborting.next_producer_id)
    (aborting,) = init(entry, version=1, fresh_id=None).entries
    assert (32767, -1) == (aborting.producer_epoch, aborting.next_producer_id)


# AddPartitions and AddOffsets


@pytest.mark.parametrize("status", AT_REST)
def test_the_first_partition_begins_a_transaction(status: TransactionStatus) -> None:
    decision = add(entry_in(status), ORDERS)
    began = replace(entry_in(ONGOING), last_update_ms=TimestampMs(NOW), start_ms=TimestampMs(NOW), client_version=2)
    assert TransactionDecision(entries=(began,)) == decision


def test_more_partitions_extend_a_transaction() -> None:
    decision = add(entry_in(ONGOING), ORDERS, BILLS)
    extended = replace(entry_in(ONGOING), partitions=(ORDERS, BILLS), last_update_ms=TimestampMs(NOW), client_version=2)
    assert TransactionDecision(entries=(extended,)) == decision
    assert TransactionDecision() == add(entry_in(ONGOING), ORDERS), "it has that one"


@pytest.mark.parametrize("status", [*AT_REST, ONGOING])
def test_only_the_producer_adds_partitions(status: TransactionStatus) -> None:
    assert TransactionDecision(error=E.INVALID_PRODUCER_ID_MAPPING) == add(entry_in(status), BILLS, pid=OTHER_PID)
    assert TransactionDecision(error=E.PRODUCER_FENCED) == add(entry_in(status), BILLS, epoch=4)
    assert TransactionDecision(error=E.PRODUCER_FENCED) == add(entry_in(status), BILLS, epoch=6)


def test_an_unknown_id_has_no_producer() -> None:
    assert TransactionDecision(error=E.INVALID_PRODUCER_ID_MAPPING) == add(None, ORDERS)
    assert TransactionDecision(error=E.INVALID_PRODUCER_ID_MAPPING) == end(None, True, version=0)
    assert TransactionDecision(error=E.INVALID_PRODUCER_ID_MAPPING) == end(None, True, version=2)


@pytest.mark.parametrize("status", [*PREPARED, S.PREPARE_EPOCH_FENCE])
@pytest.mark.parametrize(("pid", "epoch"), [(PID, 5), (PID, 4), (FRESH_PID, 0)])
def test_partitions_wait_for_markers(status: TransactionStatus, pid: ProducerId, epoch: int) -> None:
    assert TransactionDecision(error=E.CONCURRENT_TRANSACTIONS) == add(entry_in(status), BILLS, pid=pid, epoch=epoch)


def verified(entry: TransactionEntry | None, pid: ProducerId = PID, epoch: int = 5) -> list[ErrorCode]:
    request = AddPartitions(
        transactional_id="t",
        producer_id=pid,
        producer_epoch=ProducerEpoch(epoch),
        partitions=(ORDERS, BILLS),
        verify_only=True,
    )
    found = verify_partitions(entry, request)
    assert [ORDERS, BILLS] == [partition for partition, _ in found]
    return [error for _, error in found]


def test_partitions_are_verified_one_by_one() -> None:
    assert [E.NONE, E.TRANSACTION_ABORTABLE] == verified(entry_in(ONGOING))
    for status in AT_REST:
        assert [E.TRANSACTION_ABORTABLE] * 2 == verified(entry_in(status))
    for status in PREPARED:
        assert [E.CONCURRENT_TRANSACTIONS] * 2 == verified(entry_in(status))
    assert [E.PRODUCER_FENCED] * 2 == verified(entry_in(ONGOING), epoch=4)
    assert [E.INVALID_PRODUCER_ID_MAPPING] * 2 == verified(entry_in(ONGOING), pid=OTHER_PID)
    assert [E.INVALID_PRODUCER_ID_MAPPING] * 2 == verified(None)


# EndTxn, versions 0 and 1


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("commit", [True, False])
def test_an_end_decides_the_outcome(version: int, commit: bool) -> None:
    decision = end(entry_in(ONGOING), commit, version=version)
    status = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
    prepared = replace(entry_in(status), last_update_ms=TimestampMs(NOW))
    assert TransactionDecision(entries=(prepared,)) == decision
    complete = S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT
    assert replace(entry_in(complete), last_update_ms=TimestampMs(NOW + 1)) == completed(prepared, NOW + 1)


@pytest.mark.parametrize(
    ("status", "commit", "error"),
    [
        (EMPTY, True, E.INVALID_TXN_STATE),
        (EMPTY, False, E.INVALID_TXN_STATE),
        (S.PREPARE_COMMIT, True, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_COMMIT, False, E.INVALID_TXN_STATE),
        (S.PREPARE_ABORT, True, E.INVALID_TXN_STATE),
        (S.PREPARE_ABORT, False, E.CONCURRENT_TRANSACTIONS),
        (S.COMPLETE_COMMIT, True, E.NONE),
        (S.COMPLETE_COMMIT, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, True, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, E.NONE),
        (S.PREPARE_EPOCH_FENCE, True, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_EPOCH_FENCE, False, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_an_end_outside_of_a_transaction(status: TransactionStatus, commit: bool, error: ErrorCode) -> None:
    assert TransactionDecision(error=error) == end(entry_in(status), commit, version=0)


@pytest.mark.parametrize("status", list(TransactionStatus)[:6])
def test_only_the_producer_ends_a_transaction(status: TransactionStatus) -> None:
    for epoch in (4, 6):
        assert TransactionDecision(error=E.PRODUCER_FENCED) == end(entry_in(status), True, version=0, epoch=epoch)
    assert TransactionDecision(error=E.INVALID_PRODUCER_ID_MAPPING) == end(
        entry_in(status), True, version=0, pid=OTHER_PID
    )


# EndTxn, version 2


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_of_version_2_bumps_the_epoch(commit: bool) -> None:
    decision = end(entry_in(ONGOING), commit, version=2)
    status = S.PREPARE_COMMIT if commit else S.PREPARE_ABORT
    prepared = replace(entry_in(status, epoch=6, client_version=2), last_update_ms=TimestampMs(NOW))
    assert (prepared,) == decision.entries
    assert (E.NONE, PID, 6, 5) == (*told(decision), decision.last_epoch)
    assert (PID, 6) == (completed(prepared, NOW).producer_id, completed(prepared, NOW).producer_epoch)


def test_an_end_of_version_2_with_the_last_epoch_rotates_the_producer_id() -> None:
    entry = entry_in(ONGOING, epoch=32766)
    assert end(entry, True, version=2, epoch=32766, fresh_id=None).needs_producer_id
    decision = end(entry, True, version=2, epoch=32766)
    assert (E.NONE, FRESH_PID, 0) == told(decision)
    (prepared,) = decision.entries
    assert (PID, 32767, FRESH_PID) == (prepared.producer_id, prepared.producer_epoch, prepared.next_producer_id)
    complete = completed(prepared, NOW)
    assert (FRESH_PID, PID, -1, 0) == (
        complete.producer_id, complete.previous_producer_id, complete.next_producer_id, complete.producer_epoch,
    )  # fmt: skip
    assert (E.NONE, FRESH_PID, 0) == told(end(complete, True, version=2, epoch=32766)), "the retry"
    assert E.INVALID_TXN_STATE == end(complete, False, version=2, epoch=32766).error
    assert E.INVALID_PRODUCER_ID_MAPPING == end(complete, True, version=2, epoch=32765).error
    began = add(complete, ORDERS, pid=FRESH_PID, epoch=0).entries[0]
    assert E.INVALID_PRODUCER_ID_MAPPING == end(began, True, version=2, epoch=32766).error


BUMP = object()


@pytest.mark.parametrize(
    ("status", "commit", "is_retry", "outcome"),
    [
        (EMPTY, False, True, E.PRODUCER_FENCED),
        (EMPTY, False, False, BUMP),
        (EMPTY, True, True, E.PRODUCER_FENCED),
        (EMPTY, True, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, True, E.NONE),
        (S.COMPLETE_ABORT, False, False, BUMP),
        (S.COMPLETE_ABORT, True, True, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, True, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, False, True, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, False, False, BUMP),
        (S.COMPLETE_COMMIT, True, True, E.NONE),
        (S.COMPLETE_COMMIT, True, False, E.INVALID_TXN_STATE),
        (S.PREPARE_COMMIT, True, True, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_COMMIT, False, True, E.INVALID_TXN_STATE),
        (S.PREPARE_COMMIT, False, False, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, False, True, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, True, True, E.INVALID_TXN_STATE),
        (S.PREPARE_ABORT, True, False, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_EPOCH_FENCE, True, False, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_an_end_of_version_2_outside_of_a_transaction(
    status: TransactionStatus, commit: bool, is_retry: bool, outcome: object
) -> None:
    entry = entry_in(status, client_version=2)
    decision = end(entry, commit, version=2, epoch=4 if is_retry else 5)
    if outcome is BUMP:
        assert (E.NONE, PID, 6) == told(decision)
        assert [S.PREPARE_ABORT, S.COMPLETE_ABORT] == [written.status for written in decision.entries]
        assert [NOW, NOW] == [written.start_ms for written in decision.entries]
    elif outcome is E.NONE:
        assert TransactionDecision(producer_id=PID, producer_epoch=ProducerEpoch(5)) == decision
    else:
        assert outcome is decision.error
        assert () == decision.entries


@pytest.mark.parametrize("status", [EMPTY, ONGOING, *COMPLETE])
def test_a_stranger_does_not_end_a_transaction_of_version_2(status: TransactionStatus) -> None:
    entry = entry_in(status, client_version=2)
    assert E.INVALID_PRODUCER_ID_MAPPING == end(entry, True, version=2, pid=OTHER_PID).error
    for epoch in (3, 6):
        assert E.PRODUCER_FENCED == end(entry, True, version=2, epoch=epoch).error


def test_the_epoch_before_is_no_retry_of_an_end_that_did_not_bump() -> None:
    assert E.PRODUCER_FENCED == end(entry_in(S.COMPLETE_COMMIT), True, version=2, epoch=4).error
    assert E.PRODUCER_FENCED == end(entry_in(ONGOING, client_version=2), True, version=2, epoch=4).error


def test_an_abort_of_version_2_at_rest_can_rotate_too() -> None:
    entry = entry_in(S.COMPLETE_COMMIT, epoch=32766, client_version=2)
    decision = end(entry, False, version=2, epoch=32766)
    assert (E.NONE, FRESH_PID, 0) == told(decision)
    assert [(PID, 32767), (FRESH_PID, 0)] == [(new.producer_id, new.producer_epoch) for new in decision.entries]


# The coordinator's own


@pytest.mark.parametrize(("version", "last_epoch"), [(1, None), (2, 5)])
def test_a_timeout_fences_and_aborts(version: int, last_epoch: int | None) -> None:
    decision = abort_by_coordinator(entry_in(ONGOING), fresh_id=None, transaction_version=version, now_ms=NOW)
    (aborting,) = decision.entries
    assert (S.PREPARE_ABORT, 6, (ORDERS,)) == (aborting.status, aborting.producer_epoch, aborting.partitions)
    assert last_epoch == decision.last_epoch


def test_a_timeout_never_takes_the_epoch_beyond_its_type() -> None:
    entry = entry_in(ONGOING, epoch=32767)
    for version in (1, 2):
        decision = abort_by_coordinator(entry, fresh_id=FRESH_PID, transaction_version=version, now_ms=NOW)
        assert 32767 == decision.entries[0].producer_epoch


def test_deadlines() -> None:
    assert START + 1001 == timeout_deadline(entry_in(ONGOING))
    assert timeout_deadline(replace(entry_in(ONGOING), timeout_ms=2**31 - 1)) is None
    assert START == timeout_deadline(entry_in(S.PREPARE_EPOCH_FENCE))
    assert [None] * 5 == [timeout_deadline(entry_in(status)) for status in (*AT_REST, *PREPARED)]


@pytest.mark.parametrize(
    "entry",
    [
        replace(entry_in(EMPTY), producer_id=ProducerId(-1)),
        replace(entry_in(EMPTY), producer_epoch=ProducerEpoch(-1)),
        replace(entry_in(EMPTY), timeout_ms=0),
        replace(entry_in(EMPTY), start_ms=TimestampMs(1)),
        replace(entry_in(S.COMPLETE_COMMIT), partitions=(ORDERS,)),
        replace(entry_in(ONGOING), next_producer_id=FRESH_PID),
        replace(entry_in(ONGOING), partitions=(ORDERS, ORDERS)),
    ],
)
def test_impossible_entries_are_noticed(entry: TransactionEntry) -> None:
    with pytest.raises(InvariantViolation):
        check_entry("t", entry)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, entry_in(ONGOING)),
        (entry_in(S.PREPARE_COMMIT), entry_in(S.COMPLETE_ABORT)),
        (entry_in(S.PREPARE_ABORT), entry_in(S.PREPARE_COMMIT)),
        (entry_in(EMPTY), entry_in(S.PREPARE_COMMIT)),
        (entry_in(ONGOING), entry_in(EMPTY)),
        (entry_in(EMPTY), entry_in(EMPTY, epoch=4)),
    ],
)
def test_impossible_steps_are_noticed(old: TransactionEntry | None, new: TransactionEntry) -> None:
    with pytest.raises(InvariantViolation):
        check_step("t", old, new)
