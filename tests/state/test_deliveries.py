"""Deliveries of a queue against a model: each parked record is in its target or among the dead letters once.

The world has one companion log, two sinks that judge sequences as a broker does, and a leader that may be replaced at
any time. What the leader had written without committing may be lost then. What it had sent may arrive later, when
others lead. Records of aborted transactions must never be delivered; all others must, once the world is left in peace.

In a second world, the end of the log may be lost although it was committed, and with it parked records and plans that
were carried out. There, records may be delivered twice, but none that the log still has may be lost. What a leader had
sent arrives before the end is lost, and a leader is not replaced between the commit of a plan and the sink's answer to
its first question: in these moments a lost plan's sequences could be used again (decision 21).
"""

from array import array
from dataclasses import dataclass, field
from itertools import count as counter
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ottla.model.ids import Offset, ProducerId, TopicPartition
from ottla.model.invariants import InvariantViolation
from ottla.queues import delivery_state
from ottla.queues.delivery_state import DeliveryEffect, DeliveryState, Owe, Parcel, Send, Sink
from ottla.queues.kinds.kind import Found
from ottla.queues.offset_runs import runs_of
from ottla.queues.progress_records import Action, Plan, ProgressRecord, Refused, decode, encode
from tests.effort import effort

pytestmark = pytest.mark.slow

TARGETS = (TopicPartition("t", 0), TopicPartition("t", 1))
DEAD = TopicPartition("dlq.t", 0)
QUEUE_ID = 2**62
REMEMBERED = 5


@dataclass(frozen=True)
class Parked:
    """A data batch of the log."""

    count: int
    producer_id: int = -1


@dataclass(frozen=True)
class Ended:
    """A transaction marker."""

    producer_id: int
    is_commit: bool


class Sending(NamedTuple):
    """A batch on its way."""

    plan: Plan
    names: tuple[int, ...]
    """Of its records: an offset may be used again after the end of the log was lost."""


@dataclass
class Producer:
    """What a sink knows about a producer."""

    epoch: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    """(first sequence, count) of the last batches of the epoch."""


@dataclass
class SinkLog:
    """A partition that deliveries go to, with the state of its producers."""

    records: list[int] = field(default_factory=list)
    """Their names."""
    producers: dict[int, Producer] = field(default_factory=dict)

    def has(self, plan: Plan) -> bool:
        """Whether a batch with these sequences would be taken for a repeated one."""
        known = self.producers.get(plan.producer_id)
        span = (plan.first_sequence, plan.count)
        return known is not None and plan.producer_epoch == known.epoch and span in known.spans

    def append(self, sending: Sending) -> str:
        """ok, unknown (out of order) or fenced."""
        plan = sending.plan
        if self.has(plan):
            return "ok"
        known = self.producers.get(plan.producer_id)
        if known is not None:
            if plan.producer_epoch < known.epoch:
                return "unknown"
            last = known.spans[-1] if known.spans and plan.producer_epoch == known.epoch else (0, 0)
            if plan.first_sequence != sum(last):
                return "unknown"
        if known is None or plan.producer_epoch != known.epoch:
            known = self.producers[plan.producer_id] = Producer(plan.producer_epoch)
        known.spans = [*known.spans, (plan.first_sequence, plan.count)][-REMEMBERED:]
        self.records += sending.names
        return "ok"


@dataclass
class Leader:
    """The shell around the state: what it must send, and which records it knows to be owed."""

    state: DeliveryState
    load_end: int
    owed: set[int] = field(default_factory=set)
    sends: list[Sending] = field(default_factory=list)


class DeliveryMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, Parked | Ended | bytes]] = []
        self.end = 0
        self.start = 0
        self.high_watermark = 0
        self.sinks = {name: SinkLog() for name in (*TARGETS, DEAD)}
        self.open: set[int] = set()
        self.parked: dict[int, int] = {}
        """Offsets of parked records, and their transaction's producer id."""
        self.decided: dict[int, bool] = {}
        self.poison: set[int] = set()
        """Records that no target takes."""
        self.names: dict[int, int] = {}
        """Of parked records, by offset."""
        self.next_name = counter()
        self.next_id = counter(QUEUE_ID)
        self.leader_epoch = 0
        self.old_sends: list[Sending] = []
        self.leader = self.new_leader()

    # The log

    def write(self, entry: Parked | Ended | bytes) -> int:
        offset = self.end
        self.log.append((offset, entry))
        self.end += entry.count if isinstance(entry, Parked) else 1
        return offset

    def note(self, record: ProgressRecord) -> None:
        self.write(encode(record))

    def new_leader(self) -> Leader:
        return Leader(DeliveryState(Offset(self.start), self.leader_epoch), self.end)

    def carry_out(self, effects: list[DeliveryEffect]) -> None:
        for effect in effects:
            if isinstance(effect, Owe):
                self.leader.owed.update(effect.offsets)
            elif isinstance(effect, Send):
                self.begin_sending(effect)

    def begin_sending(self, send: Send) -> None:
        plan, state = send.plan, self.leader.state
        if send.asks_first and self.sinks[plan.sink].has(plan):
            self.note(state.refusal(plan, "sequences used", is_unknown_producer=True))
        else:
            self.leader.sends.append(Sending(plan, tuple(self.names[offset] for offset in plan.offsets())))

    def follow(self) -> None:
        state = self.leader.state
        for offset, entry in self.log:
            span = entry.count if isinstance(entry, Parked) else 1
            if offset + span <= state.followed:
                continue
            if offset + span > self.high_watermark:
                break
            match entry:
                case Parked(count, producer_id):
                    first = max(offset, state.followed)
                    offsets = array("q", range(first, offset + count))
                    found = Found(array("q", [0]) * len(offsets), offsets)
                    self.carry_out(state.on_data(Offset(first), offset + count - first, found, ProducerId(producer_id)))
                case Ended(producer_id, is_commit):
                    self.carry_out(state.on_marker(Offset(offset), ProducerId(producer_id), is_commit=is_commit))
                case bytes():
                    self.carry_out(state.on_progress(Offset(offset), decode(entry)))
        if not state.is_loaded and state.followed >= self.leader.load_end:
            self.carry_out(state.on_loaded())
        self.leader.owed = {offset for offset in self.leader.owed if offset not in state.settled}
        if state.is_loaded and state.producer_id is None:
            self.note(state.snapshot(next(self.next_id)))

    # What happens

    @initialize()
    def begin(self) -> None:
        self.follow()

    @rule(count=st.integers(1, 4), producer_id=st.sampled_from([-1, -1, 1, 2]), poisoned=st.sets(st.integers(0, 3)))
    def park(self, count: int, producer_id: int, poisoned: set[int]) -> None:
        offset = self.write(Parked(count, producer_id))
        if producer_id >= 0:
            self.open.add(producer_id)
        for at in range(count):
            self.parked[offset + at] = producer_id
            self.names[offset + at] = next(self.next_name)
            if producer_id < 0:
                self.decided[offset + at] = True
        if len(poisoned) < 3:
            self.poison |= {offset + at for at in poisoned if at < count}

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_commit=st.booleans())
    def end_transaction(self, data: st.DataObject, is_commit: bool) -> None:
        self.end_transaction_of(data.draw(st.sampled_from(sorted(self.open))), is_commit=is_commit)

    def end_transaction_of(self, producer_id: int, *, is_commit: bool) -> None:
        self.write(Ended(producer_id, is_commit))
        self.open.discard(producer_id)
        for offset, owner in self.parked.items():
            if owner == producer_id and offset not in self.decided:
                self.decided[offset] = is_commit

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        ends = [offset for offset, _ in self.log if offset > self.high_watermark] + [self.end]
        self.high_watermark = max(self.high_watermark, data.draw(st.sampled_from(ends)))
        self.follow()

    @precondition(lambda self: self.is_planning)
    @rule(data=st.data(), sink=st.sampled_from(TARGETS))
    def plan(self, data: st.DataObject, sink: TopicPartition) -> None:
        state = self.leader.state
        drafted = self.drafted()
        ready = sorted(self.leader.owed - drafted)
        if ready and state.is_free(sink):
            chosen = data.draw(st.lists(st.sampled_from(ready), min_size=1, max_size=4, unique=True))
            self.note(state.draft(sink, Parcel(sink, Action.DELIVER, "", runs_of(chosen))))

    @precondition(lambda self: self.is_planning and self.leader.state.returned)
    @rule()
    def plan_returned(self) -> None:
        state = self.leader.state
        drafted = self.drafted()
        for parcel in list(state.returned):
            sink = parcel.sink or DEAD
            if state.is_free(sink) and drafted.isdisjoint(parcel.offsets()):
                self.note(state.draft(sink, parcel))

    def drafted(self) -> set[int]:
        drafts = [sink.draft for sink in self.leader.state.sinks.values() if sink.draft is not None]
        return {offset for draft in drafts for offset in draft.offsets()}

    @property
    def is_planning(self) -> bool:
        return self.leader.state.is_loaded and self.leader.state.producer_id is not None

    @precondition(lambda self: self.leader.sends)
    @rule(is_answered=st.booleans())
    def send(self, is_answered: bool) -> None:
        sending = self.leader.sends.pop(0)
        plan = sending.plan
        state = self.leader.state
        assert min(plan.offsets()) >= self.start, "the batch cannot be built again: its records are deleted"
        sink = self.sinks[plan.sink]
        if self.is_refused(plan):
            self.note(state.refusal(plan, "poisoned"))
            return
        outcome = sink.append(sending)
        if not is_answered:
            self.leader.sends.append(sending)
        elif outcome == "ok":
            state.on_sent(plan)
        else:
            self.note(state.refusal(plan, outcome, is_unknown_producer=True))

    def is_refused(self, plan: Plan) -> bool:
        is_known = self.sinks[plan.sink].has(plan)
        return plan.sink != DEAD and not is_known and not self.poison.isdisjoint(plan.offsets())

    @precondition(lambda self: self.old_sends)
    @rule(data=st.data())
    def old_send_arrives(self, data: st.DataObject) -> None:
        sending = data.draw(st.sampled_from(self.old_sends))
        if not self.is_refused(sending.plan):
            self.sinks[sending.plan.sink].append(sending)

    @precondition(lambda self: self.is_planning)
    @rule()
    def note_done(self) -> None:
        done = self.leader.state.done()
        if done is not None:
            self.note(done)

    @precondition(lambda self: self.is_planning)
    @rule()
    def note_snapshot(self) -> None:
        state = self.leader.state
        assert state.producer_id is not None
        self.note(state.snapshot(state.producer_id))

    @precondition(lambda self: self.leader.state.snapshot_at is not None and self.leader.state.is_loaded)
    @rule()
    def move_start(self) -> None:
        state = self.leader.state
        assert state.snapshot_at is not None
        self.start = max(self.start, min(state.first_needed(), state.snapshot_at))
        self.log = [
            (offset, entry)
            for offset, entry in self.log
            if offset + (entry.count if isinstance(entry, Parked) else 1) > self.start
        ]

    @rule(keeps=st.integers(0, 3))
    def another_leads(self, keeps: int) -> None:
        """Progress that was not committed may be lost; clients' records are kept, to keep the model simple."""
        self.old_sends = (self.old_sends + self.leader.sends)[-6:]
        tail = [entry for entry in self.log if entry[0] >= self.high_watermark]
        if all(isinstance(entry, bytes) for _, entry in tail):
            self.log = self.log[: len(self.log) - len(tail)] + tail[:keeps]
            self.end = max([self.high_watermark, *(offset + 1 for offset, _ in tail[:keeps])])
        self.leader_epoch += 1
        self.leader = self.new_leader()
        self.follow()

    @rule()
    def the_log_is_read_again(self) -> None:
        """By the same leader, after an error."""
        self.old_sends = (self.old_sends + self.leader.sends)[-6:]
        self.leader = self.new_leader()
        self.follow()

    # What must hold

    @invariant()
    def nothing_is_twice(self) -> None:
        moved = [offset for sink in self.sinks.values() for offset in sink.records]
        assert len(moved) == len(set(moved)), f"delivered twice: {moved}"
        offsets = {name: offset for offset, name in self.names.items()}
        for name in moved:
            assert self.decided.get(offsets[name]), f"{offsets[name]} is aborted, undecided, or was never parked"

    @invariant()
    def the_state_is_sound(self) -> None:
        state = self.leader.state
        state.check()
        if state.is_loaded:
            assert state.owed == len(self.leader.owed), "the count of what is owed is wrong"

    def teardown(self) -> None:
        """Left in peace, everything is delivered."""
        for producer_id in sorted(self.open):
            self.end_transaction_of(producer_id, is_commit=True)
        for _ in range(60 + 4 * len(self.parked)):
            self.high_watermark = self.end
            self.follow()
            while self.leader.sends:
                self.send(True)
            state = self.leader.state
            if not self.is_planning:
                continue
            self.plan_returned()
            ready = sorted(self.leader.owed - self.drafted())
            if ready and state.is_free(TARGETS[0]):
                self.note(state.draft(TARGETS[0], Parcel(TARGETS[0], Action.DELIVER, "", runs_of(ready))))
            if self.high_watermark == self.end and not state.returned and not self.leader.owed:
                break
        self.nothing_is_twice()
        self.everything_arrived()

    def everything_arrived(self) -> None:
        delivered = {name for target in TARGETS for name in self.sinks[target].records}
        wanted = {offset for offset, is_committed in self.decided.items() if is_committed}
        assert delivered == self.names_of(wanted - self.poison), "a record was lost"
        dead = set(self.sinks[DEAD].records)
        assert dead == self.names_of(wanted & self.poison), "a record that no target takes was lost"

    def names_of(self, offsets: set[int]) -> set[int]:
        return {self.names[offset] for offset in offsets}


class LosingMachine(DeliveryMachine):
    """The end of the log may be lost."""

    @rule(sink=st.sampled_from(TARGETS), count=st.integers(1, 2))
    def park_and_deliver(self, sink: TopicPartition, count: int) -> None:
        """Without an interruption, as nearly always."""
        for at in range(4):
            self.high_watermark = self.end
            self.follow()
            if at == 1:
                self.park(count, -1, set())
            elif at == 2 and self.is_planning and self.leader.state.is_free(sink):
                ready = sorted(self.leader.owed - self.drafted())[-count:]
                self.note(self.leader.state.draft(sink, Parcel(sink, Action.DELIVER, "", runs_of(ready))))
        while self.leader.sends:
            self.send(True)

    @precondition(lambda self: not self.open)
    @rule(entries=st.integers(1, 6), is_elected=st.booleans())
    def the_end_is_lost(self, entries: int, is_elected: bool) -> None:
        """By a power cut of the only replica, which does not change the leader epoch, or by an unclean election."""
        kept = max(0, len(self.log) - entries)
        lost = self.log[kept:]
        if not lost or lost[0][0] < self.start or any(isinstance(entry, Ended) for _, entry in lost):
            return
        for sending in [*self.old_sends, *self.leader.sends]:
            if not self.is_refused(sending.plan):
                self.sinks[sending.plan.sink].append(sending)
        self.old_sends = []
        self.end = lost[0][0]
        self.log = self.log[:kept]
        self.high_watermark = min(self.high_watermark, self.end)
        for offset in [offset for offset in self.parked if offset >= self.end]:
            del self.parked[offset], self.names[offset]
            self.decided.pop(offset, None)
            self.poison.discard(offset)
        self.leader_epoch += is_elected
        self.leader = self.new_leader()
        self.follow()

    @invariant()
    def nothing_is_twice(self) -> None:
        """Not promised here."""

    def everything_arrived(self) -> None:
        arrived = {name for sink in self.sinks.values() for name in sink.records}
        wanted = {offset for offset, is_committed in self.decided.items() if is_committed}
        assert self.names_of(wanted) <= arrived, "a record was lost"


TestDeliveries = DeliveryMachine.TestCase
TestDeliveries.settings = effort(150, 60)
TestLosses = LosingMachine.TestCase
TestLosses.settings = effort(150, 60)


@pytest.mark.parametrize("machine", [DeliveryMachine, LosingMachine])
def test_few_producer_epochs(monkeypatch: pytest.MonkeyPatch, machine: type[DeliveryMachine]) -> None:
    """If all epochs of a producer id are used, the queue needs another."""
    monkeypatch.setattr(delivery_state, "EPOCH_MAX", 2)
    run_state_machine_as_test(machine, settings=effort(60, 60))


# The machine itself: it must find mistakes


def nothing_after_loading(state: DeliveryState) -> list[DeliveryEffect]:
    state.is_loaded = True
    return []


def commit_always(state: DeliveryState, offset: Offset, producer_id: ProducerId, *, is_commit: bool) -> Any:
    return ON_MARKER(state, offset, producer_id, is_commit=True)


def forget_plans(state: DeliveryState) -> Offset:
    return Offset(min(state.followed, state.settled.first_unsettled))


def lose_a_half(state: DeliveryState, refused: Refused) -> None:
    before = len(state.returned)
    ON_REFUSED(state, refused)
    if len(state.returned) == before + 2:
        state.returned.pop()


def keep_the_epoch(state: DeliveryState, refused: Refused) -> None:
    sink = state.sinks.get(refused.sink)
    before = sink.producer_epoch if sink is not None else 0
    ON_REFUSED(state, refused)
    if sink is not None:
        sink.producer_epoch = before


def continue_sequences(state: DeliveryState, sink: TopicPartition, parcel: Parcel) -> Plan:
    """As if the log knew every plan that was ever made."""
    known = state.sinks.get(sink)
    if known is not None:
        known.is_own = known.is_agreed = True
    return DRAFT(state, sink, parcel)


def never_ask(machine: DeliveryMachine, send: Send) -> None:
    BEGIN_SENDING(machine, send._replace(asks_first=False))


DRAFT = DeliveryState.draft
BEGIN_SENDING = DeliveryMachine.begin_sending
ON_MARKER = DeliveryState.on_marker
ON_REFUSED = DeliveryState._on_refused

MISTAKES: list[tuple[type, str, Any]] = [
    (DeliveryState, "on_loaded", nothing_after_loading),
    (DeliveryState, "on_marker", commit_always),
    (DeliveryState, "first_needed", forget_plans),
    (DeliveryState, "_on_refused", lose_a_half),
    (DeliveryState, "_on_refused", keep_the_epoch),
    (Plan, "next_sequence", property(lambda plan: plan.first_sequence)),
    (Sink, "is_free", property(lambda sink: sink.draft is None)),
]


LOSING_MISTAKES: list[tuple[type, str, Any]] = [
    (DeliveryState, "draft", continue_sequences),
]
"""Found only if the end of the log may be lost."""


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [*MISTAKES, *LOSING_MISTAKES],
    ids=[getattr(each[2], "__name__", each[1]) for each in [*MISTAKES, *LOSING_MISTAKES]],
)
def test_a_mistake_is_found(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mistake: Any) -> None:
    monkeypatch.setattr(owner, name, mistake)
    machine = LosingMachine if (owner, name, mistake) in LOSING_MISTAKES else DeliveryMachine
    tries = settings(effort(400, 50), phases=[Phase.generate])
    with pytest.raises((AssertionError, InvariantViolation)):
        run_state_machine_as_test(machine, settings=tries)


def test_new_records_arrive_although_the_plans_before_them_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def live() -> None:
        world = LosingMachine()
        world.begin()
        for _ in range(2):
            world.park_and_deliver(TARGETS[0], 1)
            world.the_end_is_lost(entries=2, is_elected=False)
        world.park_and_deliver(TARGETS[0], 1)
        world.teardown()

    live()
    monkeypatch.setattr(DeliveryMachine, "begin_sending", never_ask)
    with pytest.raises(AssertionError, match="a record was lost"):
        live()
