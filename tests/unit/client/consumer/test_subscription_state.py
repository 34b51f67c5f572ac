"""Positions of a consumer: where they come from, and what makes them doubtful."""

import pytest

from ottla.client.consumer.errors import NotAssignedError
from ottla.client.consumer.subscription_state import Kind, SubscriptionState
from ottla.client.fetch.partition_state import Phase
from ottla.client.network.list_offsets import END, START
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def assigned(policy: int | None = START) -> SubscriptionState:
    state = SubscriptionState(reset_policy=policy)
    state.assign_by_hand([A, B])
    return state


def test_committed_offsets_are_validated_if_their_epoch_is_known() -> None:
    state = assigned()
    assert state.on_committed(A, 5, -1)
    assert state.on_committed(B, 6, 2)
    assert (Phase.FETCHING, Phase.VALIDATING) == (state.state(A).phase, state.state(B).phase)
    assert {A: (5, -1), B: (6, 2)} == state.positions()
    assert state.on_validated(B, 6, leader_epoch=3, end_epoch=2, end_offset=6) is None
    assert (Phase.FETCHING, 6, 3) == (state.state(B).phase, state.state(B).offset, state.state(B).leader_epoch)
    state.check()


def test_without_a_commit_the_policy_says_where() -> None:
    state = assigned(END)
    assert state.on_committed(A, None, -1)
    assert (Phase.RESETTING, END) == (state.state(A).phase, state.state(A).reset_to)
    state.on_reset(A, END, 42)
    assert {A: (42, -1)} == state.positions()
    assert not assigned(None).on_committed(A, None, -1)


def test_a_seek_wins_over_answers_that_come_later() -> None:
    state = assigned()
    state.seek(A, 7)
    assert state.on_committed(A, 99, -1)
    state.on_reset(A, START, 0)
    assert 7 == state.state(A).offset
    state.reset(A, END)
    state.reset(A, START)
    state.on_reset(A, END, 50)
    assert Phase.RESETTING is state.state(A).phase
    state.seek(A, 3, 1)
    assert state.on_validated(A, 7, leader_epoch=5, end_epoch=0, end_offset=1) is None
    assert (Phase.VALIDATING, 3) == (state.state(A).phase, state.state(A).offset)


def test_a_new_leader_is_asked_whether_it_has_what_was_read() -> None:
    state = assigned()
    state.seek(A, 10)
    assert not state.on_leader(A, 4)
    state.state(A).offset_epoch = 4  # as reading does
    assert not state.on_leader(A, 4)
    assert Phase.FETCHING is state.state(A).phase
    assert state.on_leader(A, 5)
    assert Phase.VALIDATING is state.state(A).phase
    # It ends before: what was read beyond is lost, and reading goes on there.
    assert 8 == state.on_validated(A, 10, leader_epoch=5, end_epoch=3, end_offset=8)
    assert (Phase.FETCHING, 8, 3, 5) == (
        state.state(A).phase,
        state.state(A).offset,
        state.state(A).offset_epoch,
        state.state(A).leader_epoch,
    )


def test_where_nothing_was_read_nothing_can_be_lost() -> None:
    """After a reset, whoever leads is read from."""
    state = assigned()
    state.on_committed(A, None, -1)
    state.on_reset(A, START, 10)
    for leader_epoch in (4, 5):
        assert not state.on_leader(A, leader_epoch)
        assert (Phase.FETCHING, leader_epoch) == (state.state(A).phase, state.state(A).leader_epoch)


def test_a_leader_that_knows_no_such_epoch_starts_over_by_the_policy() -> None:
    state = assigned()
    state.seek(A, 10, 4)
    assert -1 == state.on_validated(A, 10, leader_epoch=5, end_epoch=-1, end_offset=-1)
    assert (Phase.RESETTING, START) == (state.state(A).phase, state.state(A).reset_to)
    state.check()


def test_without_a_policy_a_lost_record_stops_the_partition() -> None:
    state = assigned(None)
    state.seek(A, 10, 4)
    assert 8 == state.on_validated(A, 10, leader_epoch=5, end_epoch=3, end_offset=8)
    assert Phase.VALIDATING is state.state(A).phase
    state.seek(A, 8)
    assert Phase.FETCHING is state.state(A).phase


def test_an_unknown_epoch_is_not_asked_about() -> None:
    state = assigned()
    state.seek(A, 10)
    state.on_leader(A, 5)
    state.on_leader(A, 6)
    assert (Phase.FETCHING, 6) == (state.state(A).phase, state.state(A).leader_epoch)


def test_one_way_at_a_time() -> None:
    state = SubscriptionState(reset_policy=START)
    assert state.subscribe(["a"])
    assert not state.subscribe(["a"])
    with pytest.raises(MisuseError, match="uses subscribe, and cannot use assign as well; call unsubscribe"):
        state.assign_by_hand([A])
    state.unsubscribe()
    assert Kind.NOTHING is state.kind
    state.subscribe_pattern(r"a\d")
    assert state.match(["a1", "b1", "xa1", "a2"])
    assert {"a1", "a2"} == state.topics
    assert not state.match(["a2", "a1"])


def test_groups_keep_what_stays() -> None:
    state = SubscriptionState(reset_policy=START)
    state.subscribe(["t"])
    assert [A] == state.assign_by_group([A])
    state.seek(A, 5)
    state.state(A).is_paused = True
    assert [B] == state.assign_by_group([A, B])
    assert (5, True) == (state.state(A).offset, state.state(A).is_paused)
    state.assign_by_group([B])
    with pytest.raises(NotAssignedError, match="t-0 is not assigned to this consumer"):
        state.state(A)


def test_lag() -> None:
    state = assigned()
    assert state.lag(A, committed_only=False) is None
    state.seek(A, 10)
    state.state(A).high_watermark, state.state(A).last_stable_offset = 30, 25
    assert (20, 15) == (state.lag(A, committed_only=False), state.lag(A, committed_only=True))
