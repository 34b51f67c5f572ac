"""Single stories of deliveries, with what the log says at each step; `tests/state` has all the others."""

from array import array

import pytest

from ottla.model.ids import NO_PRODUCER_ID, Offset, ProducerId, TopicPartition
from ottla.model.invariants import InvariantViolation
from ottla.queues.delivery_state import EPOCH_MAX, DeliveryState, Note, Owe, Parcel, Repartition, Send
from ottla.queues.kinds.kind import Found
from ottla.queues.offset_runs import runs_of
from ottla.queues.progress_records import (
    Action,
    Done,
    Grew,
    Plan,
    ProgressRecord,
    Refused,
    Settled,
    SinkProgress,
    Snapshot,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = 2**62 + 1


class Story:
    """A log and its leader."""

    def __init__(self) -> None:
        self.log: list[int | ProgressRecord] = []
        """Batches of so many parked records, and progress."""
        self.state = DeliveryState(Offset(0))
        self.state.on_loaded()
        self.note(Snapshot(ID, (), 0, 0))

    def park(self, count: int) -> None:
        self.log.append(count)
        base = self.state.followed
        offsets = array("q", range(base, base + count))
        self.state.on_data(base, count, Found(array("q", [0]) * count, offsets), NO_PRODUCER_ID)

    def note(self, record: ProgressRecord) -> list[object]:
        self.log.append(record)
        effects = self.state.on_progress(self.state.followed, record)
        self.state.check()
        return list(effects)

    def plan(self, *offsets: int, sink: TopicPartition = T0, action: Action = Action.DELIVER) -> Plan:
        plan = self.state.draft(sink, Parcel(sink, action, "", runs_of(offsets), 77))
        assert plan in [effect.plan for effect in self.note(plan) if isinstance(effect, Send)]
        return plan

    def deliver(self, *offsets: int, sink: TopicPartition = T0) -> Plan:
        plan = self.plan(*offsets, sink=sink)
        self.state.on_sent(plan)
        return plan

    def sent(self, offset: int) -> Send:
        """Delivers one record; returns what the shell was told."""
        plan = self.state.draft(T0, Parcel(T0, Action.DELIVER, "", (offset, 1)))
        (send,) = [effect for effect in self.note(plan) if isinstance(effect, Send)]
        self.state.on_sent(plan)
        return send

    def note_done(self) -> None:
        done = self.state.done()
        assert done is not None
        self.note(done)

    def read_from(self, start: int, leader_epoch: int = 0) -> DeliveryState:
        """What the next leader knows if the log starts here."""
        state, at = DeliveryState(Offset(start), leader_epoch), 0
        for entry in self.log:
            span = entry if isinstance(entry, int) else 1
            if at + span > start:
                if isinstance(entry, int):
                    first = max(at, start)
                    offsets = array("q", range(first, at + span))
                    found = Found(array("q", [0]) * len(offsets), offsets)
                    state.on_data(Offset(first), at + span - first, found, NO_PRODUCER_ID)
                else:
                    state.on_progress(Offset(at), entry)
            at += span
        return state


def test_a_snapshot_keeps_the_sequences_of_plans_that_are_deleted() -> None:
    story = Story()
    story.park(2)
    story.deliver(1, 2)
    story.note_done()
    story.note(story.state.snapshot(ID))
    start = min(story.state.first_needed(), story.state.snapshot_at or 0)
    assert start == 5
    sink = story.read_from(start).sinks[T0]
    assert (sink.producer_epoch, sink.next_sequence) == (0, 2)


def test_a_plan_that_was_under_way_at_the_snapshot_is_known_by_its_done() -> None:
    story = Story()
    story.park(2)
    plan = story.plan(1, 2)
    story.note(story.state.snapshot(ID))
    assert story.state.first_needed() == 1, "the plan may have to be sent again"
    story.state.on_sent(plan)
    assert story.state.first_needed() == 1, "the next leader does not know that it was sent"
    story.note_done()
    start = min(story.state.first_needed(), story.state.snapshot_at or 0)
    assert start == 4
    assert story.read_from(start).sinks[T0].next_sequence == 2


def test_a_plan_that_was_under_way_at_the_snapshot_is_known_if_it_is_refused() -> None:
    story = Story()
    story.park(1)
    story.deliver(1)
    story.note_done()
    story.park(1)
    refused = story.plan(4)
    story.note(story.state.snapshot(ID))
    story.note(story.state.refusal(refused, "too large"))
    dead = story.state.draft(TopicPartition("dlq.t", 0), story.state.returned[0])
    story.note(dead)
    story.state.on_sent(dead)
    story.note_done()
    start = min(story.state.first_needed(), story.state.snapshot_at or 0)
    assert start == 6, "behind the refused plan"
    for start in (6, 7):
        sink = story.read_from(start).sinks[T0]
        assert (sink.producer_epoch, sink.next_sequence) == (1, 0), "sequences of epoch 0 are not used again"


@pytest.mark.parametrize("is_read_back", [True, False])
def test_a_snapshot_has_the_sequences_of_plans_that_are_under_way(is_read_back: bool) -> None:
    story = Story()
    story.park(2)
    plan = story.state.draft(T0, Parcel(T0, Action.DELIVER, "", (1, 2)))
    if is_read_back:
        story.note(plan)
    assert (SinkProgress("t", 0, ID, 0, 2),) == story.state.snapshot(ID).sinks


def test_a_draft_that_was_not_written_leaves_nothing_behind() -> None:
    story = Story()
    story.park(1)
    story.state.on_draft_failed(story.state.draft(T0, Parcel(T0, Action.DELIVER, "", (1, 1))))
    assert () == story.state.snapshot(ID).sinks
    story.state.check()


def test_the_first_plan_of_each_leader_begins_an_epoch_and_asks_until_one_is_in_the_sink() -> None:
    story = Story()
    story.park(4)
    assert [True, False] == [send.asks_first for send in (story.sent(1), story.sent(2))]
    unfinished = story.state.sinks[T0].plan
    assert unfinished is not None
    assert (unfinished.producer_epoch, unfinished.first_sequence) == (0, 1)
    for leader_epoch, producer_epoch in ((0, 1), (1, 1), (7, 7), (EPOCH_MAX + 1, 1)):
        state = story.read_from(0, leader_epoch)
        assert [Send(unfinished, asks_first=False)] == state.on_loaded(), "with its old sequences, and not as a new one"
        state.on_sent(unfinished)
        plan = state.draft(T0, Parcel(T0, Action.DELIVER, "", (3, 1)))
        assert (producer_epoch, 0) == (plan.producer_epoch, plan.first_sequence)
        assert Send(plan, asks_first=True) in state.on_progress(state.followed, plan)
        state.on_progress(state.followed, state.refusal(plan, "too large"))
        again = state.draft(T0, Parcel(T0, Action.DELIVER, "", (4, 1)))
        assert (producer_epoch + 1, 0) == (again.producer_epoch, again.first_sequence)
        assert Send(again, asks_first=True) in state.on_progress(state.followed, again)
        state.on_sent(again)
        assert state.sinks[T0].is_agreed


def test_without_a_further_epoch_a_leader_continues_the_sequences() -> None:
    story = Story()
    story.park(1)
    story.note(Done((SinkProgress("t", 0, ID, EPOCH_MAX, 5),)))
    plan = story.plan(1)
    assert (EPOCH_MAX, 5) == (plan.producer_epoch, plan.first_sequence)


def test_the_last_plan_is_sent_again_by_the_next_leader_until_the_log_says_that_it_is_done() -> None:
    story = Story()
    story.park(3)
    first = story.deliver(1)
    assert story.read_from(0).on_loaded() == [Send(first)]
    second = story.deliver(3, 2)
    assert story.read_from(0).on_loaded() == [Send(second)], "the second plan says that the first is done"
    assert (second.first_sequence, second.count) == (1, 2)
    story.note_done()
    assert story.read_from(0).on_loaded() == []


def test_what_is_owed_planned_or_refused_is_undelivered() -> None:
    story = Story()
    story.park(10)
    assert 10 == story.state.undelivered
    story.plan(1, 2, 3)
    asking = story.plan(4, 5, sink=T1, action=Action.ASK)
    assert (10, 3) == (story.state.undelivered, story.state.on_their_way)
    story.state.on_sent(asking)
    story.note(story.state.refusal(story.state.sinks[T0].plan or asking, "too large"))
    assert (10, 0) == (story.state.undelivered, story.state.on_their_way)
    story.deliver(6, sink=TopicPartition("t", 2))
    assert 9 == story.state.undelivered


def test_sinks_do_not_wait_for_each_other() -> None:
    story = Story()
    story.park(2)
    story.plan(1)
    assert (story.state.is_free(T0), story.state.is_free(T1)) == (False, True)
    assert story.plan(2, sink=T1).first_sequence == 0
    with pytest.raises(InvariantViolation):
        story.state.draft(T0, Parcel(T0, Action.DELIVER, "", (2, 1)))


def test_a_refused_batch_is_halved_until_the_record_at_fault_is_found() -> None:
    story = Story()
    story.park(3)
    plan = story.plan(1, 2, 3)
    refused = story.state.refusal(plan, "too large")
    assert refused is not None
    story.note(refused)
    assert [(1, 1), (2, 2)] == [parcel.runs for parcel in story.state.returned]
    assert story.state.first_needed() == 1
    again = story.state.draft(T0, story.state.returned[0])
    assert (again.producer_epoch, again.first_sequence) == (1, 0)
    story.note(again)
    single = story.state.refusal(again, "too large")
    assert single is not None
    story.note(single)
    dead = story.state.returned[-1]
    assert (dead.sink, dead.action, dead.detail, dead.runs) == (None, Action.DEAD, "too large", (1, 1))
    assert story.read_from(0).returned == story.state.returned


def test_a_part_of_a_refused_parcel_that_was_planned_is_not_planned_again_by_the_next_leader() -> None:
    story = Story()
    story.park(6)
    plan = story.plan(1, 2, 3, 4, 5, 6)
    refused = story.state.refusal(plan, "out of order", is_unknown_producer=True)
    assert refused is not None
    story.note(refused)
    (parcel,) = story.state.returned
    # The sink takes smaller batches now.
    story.state.split_returned(parcel, 2)
    story.deliver(1, 2)
    for state in (story.state, story.read_from(0)):
        state.check()
        assert [[3, 4, 5, 6]] == [list(each.offsets()) for each in state.returned]
    story.deliver(3, 4, 5, 6)
    assert not story.state.returned
    assert not story.read_from(0).returned


def test_a_refused_dead_letter_is_planned_again_and_others_go_on() -> None:
    story = Story()
    story.park(2)
    plan = story.plan(1, action=Action.DEAD)
    story.note(story.state.refusal(plan, "too large"))
    assert [Parcel(None, Action.DEAD, "", (1, 1), 77)] == list(story.state.returned), "with its first reason"
    assert (1, 0) == (story.deliver(2).producer_epoch, story.state.owed)
    assert 1 == story.state.first_needed(), "it must not be deleted"


def test_a_sink_that_lost_its_state_gets_the_same_records_in_the_next_epoch() -> None:
    story = Story()
    story.park(2)
    plan = story.plan(1, 2)
    refused = story.state.refusal(plan, "out of order", is_unknown_producer=True)
    assert refused is not None
    story.note(refused)
    (parcel,) = story.state.returned
    again = story.state.draft(T0, parcel)
    assert (again.runs, again.producer_epoch, again.first_sequence) == (plan.runs, 1, 0)


def test_after_the_last_epoch_the_queue_needs_another_producer_id() -> None:
    story = Story()
    story.park(1)
    story.note(Done((SinkProgress("t", 0, ID, EPOCH_MAX, 0),)))
    plan = story.plan(1)
    refused = story.state.refusal(plan, "too large")
    assert refused is not None
    story.note(refused)
    assert story.state.producer_id is None
    story.note(story.state.snapshot(ID + 1))
    again = story.state.draft(T0, story.state.returned[0])
    assert (again.producer_id, again.producer_epoch) == (ID + 1, 0)


def test_records_that_were_asked_about_stay_owed_and_are_due_again() -> None:
    story = Story()
    story.park(1)
    plan = story.state.draft(T0, Parcel(T0, Action.ASK, "1", (1, 1), 500))
    effects = story.note(plan)
    assert effects == [Note(plan), Owe(array("q", [500]), array("q", [1])), Send(plan, asks_first=True)]
    assert (story.state.is_stale(1, 0), story.state.is_stale(1, 500), story.state.owed) == (True, False, 1)
    story.state.on_sent(plan)
    story.deliver(1)
    assert (story.state.is_stale(1, 500), story.state.owed) == (True, 0)


def test_a_record_that_is_decided_is_due_now_and_a_question_under_way_does_not_postpone_it() -> None:
    story = Story()
    story.park(2)
    question = story.state.draft(T1, Parcel(T1, Action.ASK, "1", (1, 2), 500))
    assert story.state.hasten([1], 40) == [Owe(array("q", [40]), array("q", [1]))]
    assert (story.state.is_stale(1, 0), story.state.is_stale(1, 40)) == (True, False)
    assert Owe(array("q", [500]), array("q", [2])) in story.note(question)
    assert not story.state.is_stale(1, 40)
    story.state.take(1)
    assert story.state.is_stale(1, 40), "it is planned once"
    story.deliver(1)
    assert (story.state.is_hastened(1), story.state.owed) == (False, 1)
    assert story.state.hasten([1], 50) == [Owe(array("q"), array("q"))], "it is settled"


def test_records_that_are_settled_without_a_delivery_are_known_from_the_log() -> None:
    story = Story()
    story.park(3)
    assert story.note(Settled((2, 2))) == [Note(Settled((2, 2)))]
    for state in (story.state, story.read_from(0), story.read_from(2)):
        assert [2 in state.settled, 3 in state.settled] == [True, True]
    assert (story.state.owed, story.read_from(0).owed, story.read_from(2).owed) == (1, 1, 0)


def test_a_transaction_counts_with_its_marker() -> None:
    state = DeliveryState(Offset(0))
    for base, producer_id in ((0, 5), (2, 6), (4, -1)):
        found = Found(array("q", [9, 9]), array("q", [base, base + 1]))
        state.on_data(Offset(base), 2, found, ProducerId(producer_id))
    assert state.owed == 2
    assert state.on_marker(Offset(6), ProducerId(5), is_commit=False) == []
    assert state.settled.first_unsettled == 2
    (owe,) = state.on_marker(Offset(7), ProducerId(6), is_commit=True)
    assert isinstance(owe, Owe)
    assert list(owe.offsets) == [2, 3]
    assert state.owed == 4


def test_growth_is_known_from_the_log() -> None:
    story = Story()
    assert story.note(Grew(7)) == [Repartition(7, Offset(1))]
    story.note(story.state.snapshot(ID))
    state = story.read_from(2)
    assert (state.partitions, state.grew_at) == (7, 1)


def test_an_old_refusal_does_not_touch_a_later_plan() -> None:
    story = Story()
    story.park(2)
    first = story.deliver(1)
    second = story.plan(2)
    story.note(Refused("t", 0, first.producer_id, first.producer_epoch, first.first_sequence, "late"))
    assert story.state.sinks[T0].plan == second
    assert not story.state.returned
