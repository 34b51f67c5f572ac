"""Transactional batches on their way into logs, while coordinators answer late or wrongly, transactions end, epochs are
bumped and partitions move.

What must hold, whatever happens: a batch is appended only while its transaction is open, or after a coordinator said
yes and if nothing has changed in the log since it was asked; batches of one producer reach a partition in the order in
which they came; a batch that was refused to be sent again is not overtaken; each batch has one outcome; memory is
bounded. When all coordinators have answered, nothing waits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION, AddPartitions
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
from tests.effort import effort

pytestmark = pytest.mark.slow

VERIFIES, ABORTABLE, JOINS = 9, 11, 12
BATCH_BYTES = 10
PARKED_BYTES_MAX = 60
NAMES = [TopicPartition("t", 0), TopicPartition("t", 1)]
PRODUCERS = [ProducerId(1), ProducerId(2)]
ERRORS = [
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
]
"""What a coordinator may answer, the usual more often."""


def expected_code(error: ErrorCode, version: int) -> ErrorCode:
    """The code that a client gets for the coordinator's."""
    match error:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.TRANSACTION_ABORTABLE:
            return error if version >= ABORTABLE else ErrorCode.INVALID_TXN_STATE
        case ErrorCode.CONCURRENT_TRANSACTIONS:
            return error if version >= JOINS else ErrorCode.NOT_ENOUGH_REPLICAS
        case _:
            return ErrorCode.NOT_ENOUGH_REPLICAS


@dataclass(eq=False)
class Entry:
    """What a log knows of a producer; replaced whenever a marker is written."""

    epoch: ProducerEpoch
    is_open: bool


@dataclass(eq=False)
class ModelPartition:
    """A partition as this broker leads it; one that moves away and comes back is another object."""

    name: TopicPartition
    entries: dict[ProducerId, Entry] = field(default_factory=dict)
    appended: dict[ProducerId, list[int]] = field(default_factory=dict)
    """Arrival numbers of the batches in the log."""
    lowest_refused: dict[ProducerId, tuple[ProducerEpoch, int]] = field(default_factory=dict)
    """Epoch and sequence of the batch that a producer unknown to the log must send again."""


@dataclass(eq=False)
class Written:
    """One batch that a client sent, and what became of it."""

    arrival: int
    outcome: str | ErrorCode | None = None
    is_kept: bool = False
    is_behind: bool = False
    """Whether it waits behind another batch, which is verified."""


@dataclass(eq=False)
class Question:
    """One request to a coordinator that is not answered yet."""

    question_id: int
    request: AddPartitions
    entries: dict[tuple[TopicPartition, ProducerId], Entry | None]
    """What the logs knew when it was asked."""
    is_retried: bool = False
    """Whether the answer leads to the same question again."""


class Verification(RuleBasedStateMachine):
    """The state under test, and logs, producers and coordinators as simple values."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.led = {name: ModelPartition(name) for name in NAMES}
        self.epochs = dict.fromkeys(PRODUCERS, ProducerEpoch(0))
        self.sequences: dict[tuple[TopicPartition, ProducerId, ProducerEpoch], int] = {}
        self.sent: list[Written] = []
        self.questions: list[Question] = []
        self.asked: dict[int, int] = {}
        """How often each question was asked."""
        self.verdict: tuple[Question, Mapping[TopicPartition, ErrorCode]] | None = None
        """The answer whose effects are being carried out."""
        self.at_once: list[list[ErrorCode]] = []
        """Answers of coordinators that need no time, first one first."""
        self.state = VerificationState(self.entry_of, self.is_led, PARKED_BYTES_MAX)

    # What the state reads

    def entry_of(self, batch: PendingBatch) -> Entry | None:
        assert isinstance(batch.partition, ModelPartition)
        return batch.partition.entries.get(batch.producer_id)

    def is_led(self, batch: PendingBatch) -> bool:
        return self.led.get(batch.name) is batch.partition

    # The shell, as simple as it can be

    def arrive(self, batches: list[PendingBatch]) -> None:
        pending = []
        for batch in batches:
            entry = self.entry_of(batch)
            is_open = entry is not None and entry.is_open and entry.epoch == batch.producer_epoch
            batch.write.is_behind = self.state.is_held(batch.partition, batch.producer_id)
            if batch.write.is_behind or not is_open:
                pending.append(batch)
            else:
                self.append(batch)
        if pending:
            self.carry_out(self.state.on_batches(pending))

    def carry_out(self, effects: list[VerificationEffect]) -> None:
        for effect in effects:
            match effect:
                case Append(batch):
                    self.check_append(batch)
                    self.append(batch)
                case Refuse(batch, error):
                    self.check_refusal(batch, error.code)
                    self.end(batch, error.code)
                case Keep(batches):
                    for batch in batches:
                        batch.write.is_kept = True
                case Resume(batch):
                    self.check_resume(batch)
                    verdict, self.verdict = self.verdict, None
                    self.arrive([batch])
                    self.verdict = verdict
                case Ask(question_id, request):
                    self.ask(question_id, request)

    def ask(self, question_id: int, request: AddPartitions) -> None:
        self.asked[question_id] = self.asked.get(question_id, 0) + 1
        assert self.asked[question_id] <= 1 + RETRIES
        assert request.verify_only == (request.client_version != EPOCH_BUMP_VERSION)
        entries = {
            (name, request.producer_id): self.led[name].entries.get(request.producer_id)
            for name in request.partitions
            if name in self.led
        }
        question = Question(question_id, request, entries)
        if self.at_once:
            self.answer(question, self.at_once.pop(0))
        else:
            self.questions.append(question)
            verdict, self.verdict = self.verdict, None
            self.carry_out(self.state.on_pending(question_id))
            self.verdict = verdict

    def answer(self, question: Question, errors: list[ErrorCode]) -> None:
        verdict = self.verdict
        said = dict(zip(question.request.partitions, errors * len(question.request.partitions), strict=False))
        self.verdict = question, said
        question.is_retried = self.is_retried(question, said)
        self.carry_out(self.state.on_answer(question.question_id, said, self.now_ms))
        self.verdict = verdict

    def append(self, batch: PendingBatch) -> None:
        partition = batch.partition
        assert isinstance(partition, ModelPartition)
        arrivals = partition.appended.setdefault(batch.producer_id, [])
        assert not arrivals or arrivals[-1] < batch.write.arrival, "a batch was overtaken"
        arrivals.append(batch.write.arrival)
        entry = partition.entries.get(batch.producer_id)
        if entry is None or not entry.is_open or entry.epoch != batch.producer_epoch:
            partition.entries[batch.producer_id] = Entry(batch.producer_epoch, True)
        self.end(batch, "appended")

    def end(self, batch: PendingBatch, outcome: str | ErrorCode) -> None:
        assert batch.write.outcome is None, "two outcomes"
        batch.write.outcome = outcome

    # What effects must be

    def check_append(self, batch: PendingBatch) -> None:
        """Only after a coordinator said yes, and if nothing has changed since it was asked."""
        assert self.verdict is not None
        question, said = self.verdict
        assert said[batch.name] is ErrorCode.NONE
        assert self.is_led(batch)
        before = question.entries[batch.name, batch.producer_id]
        entry = self.entry_of(batch)
        # Another batch of this very answer may have opened the transaction.
        assert entry is before or (entry is not None and entry.is_open and entry.epoch == batch.producer_epoch)
        if before is None:
            assert batch.version < JOINS or batch.base_sequence == 0
            partition = batch.partition
            assert isinstance(partition, ModelPartition)
            epoch, sequence = partition.lowest_refused.pop(batch.producer_id, (None, -1))
            assert epoch != batch.producer_epoch or batch.base_sequence <= sequence, "a refused batch was overtaken"

    def check_resume(self, batch: PendingBatch) -> None:
        """A batch goes on behind one that was refused only if its epoch is another."""
        assert self.verdict is not None
        question, said = self.verdict
        assert said[batch.name] is ErrorCode.NONE or question.request.producer_epoch != batch.producer_epoch

    def check_refusal(self, batch: PendingBatch, code: ErrorCode) -> None:
        """The error that the coordinator's answer, the log or the lack of memory makes necessary."""
        if self.verdict is None or self.verdict[0].is_retried:
            # There is no room for the batch, or for those of its request, to wait.
            assert code is ErrorCode.NOT_ENOUGH_REPLICAS
            assert self.state.parked_bytes + BATCH_BYTES * len(NAMES) > PARKED_BYTES_MAX
            return
        question, said = self.verdict
        error = said[batch.name]
        before = question.entries.get((batch.name, batch.producer_id))
        if error is not ErrorCode.NONE:
            assert expected_code(error, batch.version) is code
            if (
                not batch.write.is_behind
                and before is None
                and code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS)
            ):
                self.note_refused(batch)
            return
        match code:
            case ErrorCode.NOT_LEADER_OR_FOLLOWER:
                assert not self.is_led(batch)
            case ErrorCode.INVALID_TXN_STATE:
                assert self.entry_of(batch) is not before
            case _:
                assert (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None) == (code, before)
                assert batch.base_sequence > 0

    def is_retried(self, question: Question, said: Mapping[TopicPartition, ErrorCode]) -> bool:
        """Whether the coordinator is asked again, without its client noticing."""
        if question.request.verify_only or self.asked[question.question_id] > RETRIES:
            return False
        changed = [
            name
            for (name, producer_id), before in question.entries.items()
            if name in self.led and self.led[name].entries.get(producer_id) is not before
        ]
        is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in said.values()
        return is_concurrent or any(said[name] is ErrorCode.NONE for name in changed)

    def note_refused(self, batch: PendingBatch) -> None:
        partition = batch.partition
        assert isinstance(partition, ModelPartition)
        new = batch.producer_epoch, batch.base_sequence
        epoch, sequence = partition.lowest_refused.get(batch.producer_id, new)
        if epoch < new[0] or (epoch == new[0] and new[1] < sequence):
            epoch, sequence = new
        partition.lowest_refused[batch.producer_id] = epoch, sequence

    # What happens

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True),
        version=st.sampled_from([VERIFIES, ABORTABLE, JOINS, JOINS]),
        is_again=st.booleans(),
    )
    def write(self, producer_id: ProducerId, names: list[TopicPartition], version: int, is_again: bool) -> None:
        """One Produce request; `is_again` begins with the sequence 0 once more."""
        epoch = self.epochs[producer_id]
        batches = []
        for name in names:
            if name not in self.led:
                continue
            place = (name, producer_id, epoch)
            sequence = 0 if is_again else self.sequences.get(place, 0)
            self.sequences[place] = sequence + 1
            self.sent.append(Written(len(self.sent)))
            batches.append(
                PendingBatch(
                    partition=self.led[name],
                    name=name,
                    transactional_id=f"id-{producer_id}",
                    version=version,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    size_bytes=BATCH_BYTES,
                    write=self.sent[-1],
                )
            )
        if batches:
            self.arrive(batches)

    @rule(errors=st.lists(st.sampled_from(ERRORS), min_size=1, max_size=2))
    def coordinator_will_answer_at_once(self, errors: list[ErrorCode]) -> None:
        self.at_once.append(errors)

    @precondition(lambda self: self.questions)
    @rule(which=st.integers(0, 3), errors=st.lists(st.sampled_from(ERRORS), min_size=1, max_size=2))
    def coordinator_answers(self, which: int, errors: list[ErrorCode]) -> None:
        self.answer(self.questions.pop(which % len(self.questions)), errors)

    @precondition(lambda self: self.questions)
    @rule()
    def coordinator_answers_for_no_partition(self) -> None:
        question = self.questions.pop(0)
        unknown = dict.fromkeys(question.request.partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
        self.verdict = question, unknown
        self.carry_out(self.state.on_answer(question.question_id, {}, self.now_ms))
        self.verdict = None

    @rule(producer_id=st.sampled_from(PRODUCERS), name=st.sampled_from(NAMES))
    def marker(self, producer_id: ProducerId, name: TopicPartition) -> None:
        """The transaction ends in a partition."""
        partition = self.led.get(name)
        if partition is not None:
            partition.entries[producer_id] = Entry(self.epochs[producer_id], False)

    @rule(producer_id=st.sampled_from(PRODUCERS))
    def bump_epoch(self, producer_id: ProducerId) -> None:
        self.epochs[producer_id] = ProducerEpoch(self.epochs[producer_id] + 1)

    @rule(name=st.sampled_from(NAMES))
    def move(self, name: TopicPartition) -> None:
        """A partition moves away, or comes back without its producers."""
        if name in self.led:
            del self.led[name]
        else:
            self.led[name] = ModelPartition(name)

    @rule(span_ms=st.sampled_from([1, RETRY_MS, 3 * RETRY_MS]))
    def time_passes(self, span_ms: int) -> None:
        self.now_ms += span_ms
        self.carry_out(self.state.on_tick(self.now_ms))
        deadline_ms = self.state.next_deadline()
        assert deadline_ms is None or deadline_ms > self.now_ms

    @invariant()
    def holds(self) -> None:
        self.state.check()
        waiting = [each for each in self.sent if each.outcome is None]
        assert len(waiting) * BATCH_BYTES == self.state.parked_bytes <= PARKED_BYTES_MAX
        assert all(each.is_kept for each in waiting), "a batch waits in memory that is used for something else"

    def teardown(self) -> None:
        """Every coordinator answers in the end, though none ever agrees, and nothing waits any more."""
        self.at_once.clear()
        for _ in range(10 * len(self.sent) + 1):
            while self.questions:
                self.answer(self.questions.pop(0), [ErrorCode.CONCURRENT_TRANSACTIONS])
            deadline_ms = self.state.next_deadline()
            if deadline_ms is None:
                break
            self.now_ms = deadline_ms
            self.carry_out(self.state.on_tick(self.now_ms))
        assert [] == [each for each in self.sent if each.outcome is None]
        assert (0, None) == (self.state.parked_bytes, self.state.next_deadline())
        self.state.check()


TestVerification = Verification.TestCase
TestVerification.settings = effort(200, 40)
