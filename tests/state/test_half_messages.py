"""Half messages on three partitions against a model: what is committed arrives once, what is rolled back never.

The world has the logs of three companion partitions, and what they deliver, ask and give up. Each partition has a
leader, with the real gate, queue and delivery state, that may be replaced at any time and reads its log again. Records
that it has due are judged, planned and sent in any order. Log starts move as far as leaders allow.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from ottla.model.errors import InvalidRecordError
from ottla.model.ids import NO_PRODUCER_ID, Offset, TimestampMs, TopicPartition
from ottla.model.invariants import InvariantViolation
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.delivery_state import Apply, DeliveryEffect, DeliveryState, Note, Owe, Parcel, Send
from ottla.queues.gate import Gate
from ottla.queues.kinds.half_admission import HalfAdmission
from ottla.queues.kinds.half_queue import HalfQueue, HalfSettings
from ottla.queues.kinds.kind import Ask, DeadLetter, Deliver, Drop, Verdict
from ottla.queues.offset_runs import runs_of
from ottla.queues.progress_records import Action, Plan, ProgressRecord, Settled, Snapshot, decode, encode
from ottla.records.batch import Batch
from ottla.records.builder import build_batch
from ottla.records.decode import decode_records
from ottla.records.record import Headers, Record
from tests.effort import effort

PARTITIONS = 3
CHECK_MAX = 2
QUEUE_ID = 2**62
IDS = ("a", "b")
PLANNED = (set(Action), set(Action), {Action.DELIVER}, {Action.DEAD})


@dataclass
class Leader:
    """The shell around queue and state."""

    state: DeliveryState
    kind: HalfQueue
    due: list[tuple[int, int]] = field(default_factory=list)
    ready: list[tuple[TopicPartition, Action, str, int, int]] = field(default_factory=list)
    """Sink, action, detail, when due again, and offset."""
    to_note: list[int] = field(default_factory=list)
    sends: list[Plan] = field(default_factory=list)


@dataclass
class Partition:
    log: dict[int, Record | bytes] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    appended: set[tuple[int, int, int, int]] = field(default_factory=set)
    """What was sent by other partitions: the sink recognises what is sent again."""


class HalfMachine(RuleBasedStateMachine):
    """The world of the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.partitions = [Partition() for _ in range(PARTITIONS)]
        self.sent: set[tuple[object, ...]] = set()
        self.delivered: Counter[bytes] = Counter()
        self.dead: Counter[bytes] = Counter()
        self.questions: Counter[bytes] = Counter()
        self.prepared: dict[bytes, tuple[str, int]] = {}
        """Id and partition of each half message, by its value."""
        self.decided: dict[str, Counter[str]] = {}
        """How often each decision was sent about an id."""
        self.leaders = [self.lead(index) for index in range(PARTITIONS)]

    # The log

    def lead(self, index: int) -> Leader:
        partition = self.partitions[index]
        kind = HalfQueue(
            TopicPartition("t", index),
            lambda: DeadLetterPlace(TopicPartition("dlq.t", index)),
            lambda: HalfSettings(100, CHECK_MAX, PARTITIONS),
        )
        leader = Leader(DeliveryState(Offset(partition.start)), kind)
        for offset in range(partition.start, partition.end):
            self.follow(leader, offset, partition.log[offset])
        self.carry_out(leader, leader.state.on_loaded())
        if leader.state.producer_id is None:
            self.note(index, leader, Snapshot(QUEUE_ID + index, (), 0, 0))
        return leader

    def write(self, index: int, entry: Record | bytes) -> int:
        partition = self.partitions[index]
        offset = partition.end
        partition.log[offset] = entry._replace(offset=offset) if isinstance(entry, Record) else entry
        partition.end += 1
        return offset

    def note(self, index: int, leader: Leader, record: ProgressRecord) -> None:
        offset = self.write(index, encode(record))
        self.follow(leader, offset, self.partitions[index].log[offset])

    def follow(self, leader: Leader, offset: int, entry: Record | bytes) -> None:
        state = leader.state
        if isinstance(entry, bytes):
            self.carry_out(leader, state.on_progress(Offset(offset), decode(entry)))
        else:
            found = leader.kind.read(Batch(build_batch([entry])))
            self.carry_out(leader, state.on_data(Offset(offset), 1, found, NO_PRODUCER_ID))
        state.check()

    def carry_out(self, leader: Leader, effects: list[DeliveryEffect]) -> None:
        for effect in effects:
            match effect:
                case Owe():
                    leader.due += zip(effect.due_ms, effect.offsets, strict=True)
                case Apply():
                    due_now, _ = leader.kind.apply(effect.found)
                    self.carry_out(leader, leader.state.hasten(due_now, self.now))
                case Note():
                    leader.kind.on_progress(effect.record)
                case Send():
                    leader.sends.append(effect.plan)
                case _:
                    raise AssertionError(effect)

    def produce(self, index: int, id: str, state: str, value: bytes, *, gate_knows: bool) -> bool:
        """Sends a record through the gate; returns whether it was accepted. A gate of a new leader knows nothing."""
        leader = self.leaders[index]

        def nothing(_: bytes) -> bool:
            return False

        rules = HalfAdmission(
            open_max=100,
            open_count=0,
            check_after_ms=50,
            is_enabled=True,
            is_open=leader.kind.is_open if gate_knows else nothing,
            is_known=leader.kind.is_known if gate_knows else nothing,
        )
        headers: Headers = (("ottla.half.id", id.encode()), ("ottla.half.state", state.encode()))
        batch = Batch(bytearray(build_batch([Record(0, 0, None, value, headers)])))
        try:
            admitted = Gate(rules.admit).admit(batch, TimestampMs(self.now))
        except InvalidRecordError:
            return False
        (record,) = decode_records(admitted)
        offset = self.write(index, record)
        self.follow(leader, offset, self.partitions[index].log[offset])
        return True

    # What clients do

    @rule(index=st.integers(0, PARTITIONS - 1), id=st.sampled_from(IDS), gate_knows=st.booleans())
    def prepare(self, index: int, id: str, gate_knows: bool) -> None:
        # Another id once this one is decided: who reuses ids cannot tell which message a decision is about.
        id = f"{id}{len([each for each in self.decided if each.startswith(id)])}"
        value = b"%d" % len(self.prepared)
        if self.produce(index, id, "prepare", value, gate_knows=gate_knows):
            self.prepared[value] = (id, index)

    @precondition(lambda self: self.prepared)
    @rule(
        data=st.data(), index=st.integers(0, PARTITIONS - 1), state=st.sampled_from(("commit", "rollback")),
        gate_knows=st.booleans(),
    )  # fmt: skip
    def decide(self, data: st.DataObject, index: int, state: str, gate_knows: bool) -> None:
        id = data.draw(st.sampled_from(sorted({id for id, _ in self.prepared.values()})))
        self.decided.setdefault(id, Counter())[state] += 1
        assert self.produce(index, id, state, b"", gate_knows=gate_knows)

    @rule(ms=st.sampled_from((1, 50, 100)))
    def wait(self, ms: int) -> None:
        self.now += ms

    # What leaders do

    @rule(index=st.integers(0, PARTITIONS - 1))
    def judge(self, index: int) -> None:
        leader = self.leaders[index]
        state = leader.state
        due = sorted(each for each in leader.due if each[0] <= self.now)
        leader.due = [each for each in leader.due if each[0] > self.now]
        for due_ms, offset in due:
            if state.is_stale(offset, due_ms):
                continue
            record = self.partitions[index].log[offset]
            assert isinstance(record, Record)
            self.add_ready(leader, offset, leader.kind.verdict(record, self.now))

    def add_ready(self, leader: Leader, offset: int, verdict: Verdict) -> None:
        if not isinstance(verdict, Ask):
            leader.state.take(offset)
        match verdict:
            case Deliver():
                leader.ready.append((verdict.sink, Action.DELIVER, "", -1, offset))
            case Ask():
                leader.ready.append((verdict.sink, Action.ASK, verdict.detail, verdict.again_ms, offset))
            case DeadLetter():
                sink = leader.kind.dead_letter_sink()
                leader.ready.append((sink, Action.DEAD, verdict.reason, -1, offset))
            case Drop(is_noted=True):
                leader.to_note.append(offset)
            case Drop():
                leader.state.drop([offset])
            case _:
                raise AssertionError(verdict)

    @rule(index=st.integers(0, PARTITIONS - 1), actions=st.sampled_from(PLANNED))
    def plan(self, index: int, actions: set[Action]) -> None:
        leader = self.leaders[index]
        state = leader.state
        if leader.to_note:
            noted, leader.to_note = sorted(leader.to_note), []
            self.note(index, leader, Settled(runs_of(noted)))
        for ready in list(leader.ready):
            sink, action, detail, again_ms, offset = ready
            if action is Action.ASK and state.is_hastened(offset):
                leader.ready.remove(ready)
            elif action in actions and state.is_free(sink):
                leader.ready.remove(ready)
                self.note(index, leader, state.draft(sink, Parcel(sink, action, detail, (offset, 1), again_ms)))

    @rule(index=st.integers(0, PARTITIONS - 1), is_noticed=st.booleans())
    def send(self, index: int, is_noticed: bool) -> None:
        leader = self.leaders[index]
        for plan in list(leader.sends):
            self.append(index, plan)
            if is_noticed:
                leader.sends.remove(plan)
                leader.state.on_sent(plan)

    def append(self, index: int, plan: Plan) -> None:
        """A sink takes a batch once."""
        key = (index, plan.sink, plan.producer_id, plan.producer_epoch, plan.first_sequence)
        if key in self.sent:
            return
        self.sent.add(key)
        (offset,) = plan.offsets()
        record = self.partitions[index].log[offset]
        assert isinstance(record, Record)
        kind = self.leaders[index].kind
        kept = tuple(header for header in record.headers if header[0] not in kind.dropped_headers)
        moved = record._replace(headers=(*kept, *kind.added_headers(plan.action, plan.detail, record)))
        value = moved.value or b""
        if plan.action is Action.ASK:
            self.questions[value] += 1
        elif plan.action is Action.DEAD:
            self.dead[value] += 1
        elif plan.topic == "t":
            assert plan.partition == index
            self.delivered[value] += 1
        else:
            at = self.write(plan.partition, moved)
            self.follow(self.leaders[plan.partition], at, self.partitions[plan.partition].log[at])

    @rule(index=st.integers(0, PARTITIONS - 1))
    def fail_over(self, index: int) -> None:
        self.leaders[index] = self.lead(index)

    @rule(index=st.integers(0, PARTITIONS - 1))
    def move_start(self, index: int) -> None:
        leader, partition = self.leaders[index], self.partitions[index]
        state = leader.state
        done = state.done()
        if done is not None:
            self.note(index, leader, done)
        self.note(index, leader, state.snapshot(QUEUE_ID + index))
        held = leader.kind.needed_from()
        start = min(state.first_needed(), partition.end - 1 if held is None else held)
        if start > partition.start:
            partition.start = start
            leader.kind.on_start(Offset(start))

    # What must hold

    def teardown(self) -> None:
        for _ in range(40):
            self.now += 200
            for index in range(PARTITIONS):
                self.judge(index)
                self.plan(index, set(Action))
                self.send(index, True)
        assert [0] * PARTITIONS == [leader.state.owed for leader in self.leaders], "something is owed for ever"
        for value, (id, _) in self.prepared.items():
            decisions = set(self.decided.get(id, ()))
            ends = (self.delivered[value], self.dead[value])
            assert sum(ends) <= 1, f"{value!r} arrived twice"
            assert self.questions[value] <= CHECK_MAX
            if not decisions:
                assert ends == (0, 1), f"{value!r} was not given up"
            if decisions <= {"rollback"}:
                assert not self.delivered[value], f"{value!r} was delivered without a commit"
            if decisions <= {"commit"}:
                assert sum(ends) == 1, f"{value!r} is lost"
            is_alone = [other for other, _ in self.prepared.values()].count(id) == 1
            if is_alone and self.dead[value]:
                assert self.questions[value] == CHECK_MAX, f"{value!r} was given up too early"
        for id in {id for id, _ in self.prepared.values()}:
            by_partition = Counter(
                index for value, (other, index) in self.prepared.items() if other == id and self.delivered[value]
            )
            assert max(by_partition.values(), default=0) <= 1, f"a repetition of {id} was delivered"
            assert by_partition.total() <= self.decided.get(id, Counter())["commit"], f"a commit of {id} counted twice"


def test_half_messages_arrive_once_or_never() -> None:
    run_state_machine_as_test(HalfMachine, settings=effort(150, 40))


def delivered_and_deleted(machine: HalfMachine) -> None:
    """The half message of partition 0 is delivered, and the log starts behind it; then another broker leads."""
    machine.judge(0)
    machine.plan(0, {Action.DELIVER})
    machine.send(0, True)
    machine.move_start(0)
    machine.fail_over(0)


def repeat_and_commit_twice(machine: HalfMachine) -> None:
    """The gate does not notice a repetition, whose dead letter is late."""
    machine.produce(0, "a", "prepare", b"first", gate_knows=True)
    machine.produce(0, "a", "prepare", b"second", gate_knows=False)
    machine.produce(0, "a", "commit", b"", gate_knows=True)
    delivered_and_deleted(machine)
    machine.produce(0, "a", "commit", b"", gate_knows=True)
    machine.teardown()
    assert (Counter([b"first"]), Counter([b"second"])) == (machine.delivered, machine.dead)


def commit_behind_a_gate_that_knows_nothing(machine: HalfMachine) -> None:
    """The decision is parked and finds its half message; another partition has one with the same id."""
    machine.produce(0, "a", "prepare", b"here", gate_knows=True)
    machine.produce(1, "a", "prepare", b"there", gate_knows=True)
    machine.produce(0, "b", "prepare", b"between", gate_knows=True)
    machine.produce(0, "a", "commit", b"", gate_knows=False)
    delivered_and_deleted(machine)
    machine.teardown()
    assert (Counter([b"here"]), Counter([b"there", b"between"])) == (machine.delivered, machine.dead)


def drop_without_a_note(kind: HalfQueue, offset: int, hops: bytes | None) -> Verdict:
    verdict = HALF_DECISION(kind, offset, hops)
    return Drop() if verdict == Drop(is_noted=True) else verdict


def need_nothing(_: HalfQueue) -> None:
    return None


@pytest.mark.parametrize(
    ("story", "mistakes"),
    [
        (repeat_and_commit_twice, {"needed_from": need_nothing}),
        (
            commit_behind_a_gate_that_knows_nothing,
            {"needed_from": need_nothing, "_decision_verdict": drop_without_a_note},
        ),
    ],
)
def test_what_was_deleted_has_its_effect(
    story: Callable[[HalfMachine], None], mistakes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    story(HalfMachine())
    for name, mistake in mistakes.items():
        monkeypatch.setattr(HalfQueue, name, mistake)
    with pytest.raises(AssertionError):
        story(HalfMachine())


def take_nothing(_: DeliveryState, __: int) -> None:
    pass


def judge_as_open(kind: HalfQueue, record: Record, now_ms: int) -> Verdict:
    verdict = HALF_VERDICT(kind, record, now_ms)
    return Deliver(TopicPartition("t", 0)) if verdict == Drop() else verdict


def never_count(kind: HalfQueue, record: Plan | Settled) -> None:
    if not isinstance(record, Plan) or record.action is not Action.ASK:
        HALF_ON_PROGRESS(kind, record)


def hand_on_for_ever(kind: HalfQueue, offset: int, hops: bytes | None) -> Verdict:
    return HALF_DECISION(kind, offset, None)


HALF_VERDICT = HalfQueue.verdict
HALF_ON_PROGRESS = HalfQueue.on_progress
HALF_DECISION = HalfQueue._decision_verdict
MISTAKES: list[tuple[type, str, Any]] = [
    (DeliveryState, "take", take_nothing),
    (HalfQueue, "verdict", judge_as_open),
    (HalfQueue, "on_progress", never_count),
    (HalfQueue, "_decision_verdict", hand_on_for_ever),
]


@pytest.mark.slow
@pytest.mark.parametrize(("owner", "name", "mistake"), MISTAKES, ids=[each[2].__name__ for each in MISTAKES])
def test_a_mistake_is_found(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mistake: Any) -> None:
    monkeypatch.setattr(owner, name, mistake)
    tries = settings(effort(600, 50), phases=[Phase.generate])
    with pytest.raises((AssertionError, InvariantViolation, KeyError)):
        run_state_machine_as_test(HalfMachine, settings=tries)
