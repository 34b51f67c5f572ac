"""Verification of transactional batches: how often a coordinator is asked, and which batch must come again first."""

from ottla.coordination.transactions.verification_state import (
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
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition

NAME = TopicPartition("t", 0)
VERIFIES, JOINS = 9, 12


def state() -> VerificationState:
    """One whose logs know nothing of any producer."""
    return VerificationState(lambda batch: None, lambda batch: True)


def batch(sequence: int, version: int = VERIFIES, epoch: int = 0) -> PendingBatch:
    """A batch of the one producer."""
    return PendingBatch(
        partition="p",
        name=NAME,
        transactional_id="id",
        version=version,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        size_bytes=10,
        write=None,
    )


def answered(verification: VerificationState, pending: PendingBatch, error: ErrorCode) -> list[VerificationEffect]:
    """A batch whose coordinator answers at once."""
    (asked,) = verification.on_batches([pending])
    assert isinstance(asked, Ask)
    return verification.on_answer(asked.question_id, {NAME: error}, 0)


def code(effects: list[VerificationEffect]) -> ErrorCode:
    """The error of the one batch, NONE if it is appended."""
    (effect,) = effects
    assert isinstance(effect, Append | Refuse)
    return effect.error.code if isinstance(effect, Refuse) else ErrorCode.NONE


def test_a_transaction_that_is_being_ended_is_retried_a_few_times() -> None:
    verification, head, now_ms = state(), batch(0, JOINS), 0
    (ask,) = verification.on_batches([head])
    for retry in range(RETRIES):
        assert isinstance(ask, Ask)
        effects = verification.on_answer(ask.question_id, {NAME: ErrorCode.CONCURRENT_TRANSACTIONS}, now_ms)
        assert ([Keep((head,))] if retry == 0 else []) == effects
        assert now_ms + RETRY_MS == verification.next_deadline()
        assert [] == verification.on_tick(now_ms + RETRY_MS - 1)
        now_ms += RETRY_MS
        (ask,) = verification.on_tick(now_ms)
    assert isinstance(ask, Ask)
    effects = verification.on_answer(ask.question_id, {NAME: ErrorCode.CONCURRENT_TRANSACTIONS}, now_ms)
    assert (ErrorCode.CONCURRENT_TRANSACTIONS, None) == (code(effects), verification.next_deadline())
    assert 0 == verification.parked_bytes


def test_the_first_refused_batch_must_come_again_first() -> None:
    verification = state()
    for sequence in (0, 1):
        refused = answered(verification, batch(sequence), ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert ErrorCode.NOT_ENOUGH_REPLICAS is code(refused)
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is code(answered(verification, batch(1), ErrorCode.NONE))
    assert ErrorCode.NONE is code(answered(verification, batch(0), ErrorCode.NONE))


def test_a_refusal_in_an_older_epoch_does_not_count() -> None:
    verification = state()
    for epoch in (1, 0):
        answered(verification, batch(0, epoch=epoch), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER is code(answered(verification, batch(1, epoch=1), ErrorCode.NONE))
    assert ErrorCode.NONE is code(answered(verification, batch(1, epoch=0), ErrorCode.NONE))


def test_batches_of_another_epoch_go_on_behind_a_refused_one() -> None:
    verification, head, same, other = state(), batch(0), batch(1), batch(0, epoch=1)
    (ask,) = verification.on_batches([head])
    assert isinstance(ask, Ask)
    assert [Keep((head,))] == verification.on_pending(ask.question_id)
    assert [Keep((same,)), Keep((other,))] == verification.on_batches([same, other])
    effects = verification.on_answer(ask.question_id, {NAME: ErrorCode.PRODUCER_FENCED}, 0)
    assert [head, same] == [effect.batch for effect in effects if isinstance(effect, Refuse)]
    assert Resume(other) == effects[-1]
