"""What a member of a group whose coordinator assigns says after an answer was lost."""

from uuid import UUID

import pytest

from ottla.client.group.consumer_membership_state import ConsumerMembershipState, GroupHeartbeat, HeartbeatAnswer
from ottla.model.ids import TopicPartition

TOPIC, TOPIC_ID = "t", UUID(int=1)


def member(instance_id: str | None = None) -> ConsumerMembershipState:
    """One that owns a partition."""
    state = ConsumerMembershipState(group_id="g", member_id="m", instance_id=instance_id, poll_interval=30.0)
    state.subscribe({TOPIC})
    state.on_poll(0.0)
    state.on_coordinator(7, 0.0)
    asked = heartbeat(state, 0.0)
    answer = HeartbeatAnswer(error_code=0, member_epoch=1, heartbeat_interval=1.0, assignment={TOPIC_ID: (0,)})
    state.on_heartbeat(asked, answer, 0.1)
    state.on_names({TOPIC_ID: TOPIC}, 0.0)
    state.on_poll(0.0)
    assert state.handover is not None
    state.on_handover_done(state.handover)
    assert {TopicPartition(TOPIC, 0)} == state.owned
    return state


def heartbeat(state: ConsumerMembershipState, now: float) -> GroupHeartbeat:
    action = state.next_action(now)
    assert isinstance(action, GroupHeartbeat)
    return action


def test_after_a_lost_answer_all_is_said_so_that_all_is_told_again() -> None:
    state = member()
    assert GroupHeartbeat(member_epoch=1, owned={TOPIC_ID: (0,)}) == heartbeat(state, 1.0)
    state.on_trouble(1.1, coordinator_lost=False)
    everything = GroupHeartbeat(member_epoch=1, topics=(TOPIC,), owned={TOPIC_ID: (0,)}, is_whole=True)
    asked = heartbeat(state, 1.1)
    assert everything == asked
    answer = HeartbeatAnswer(error_code=0, member_epoch=2, heartbeat_interval=1.0, assignment={TOPIC_ID: (0, 1)})
    state.on_heartbeat(asked, answer, 1.2)
    state.on_poll(1.2)
    assert state.handover is not None
    assert {TopicPartition(TOPIC, 1)} == state.handover.added


def test_partitions_that_are_being_taken_are_claimed() -> None:
    """Or the coordinator would give them to another member while the listener of this one is busy."""
    state = member()
    asked = heartbeat(state, 1.0)
    answer = HeartbeatAnswer(error_code=0, member_epoch=2, heartbeat_interval=1.0, assignment={TOPIC_ID: (0, 1)})
    state.on_heartbeat(asked, answer, 1.1)
    state.on_poll(1.1)
    handover = state.handover
    assert handover is not None
    state.on_handover_started(handover)
    state.on_trouble(1.2, coordinator_lost=False)
    assert {TOPIC_ID: (0, 1)} == heartbeat(state, 1.2).owned
    fewer = HeartbeatAnswer(error_code=0, member_epoch=3, heartbeat_interval=1.0, assignment={TOPIC_ID: (0,)})
    state.on_heartbeat(asked, fewer, 1.3)
    state.on_handover_done(handover)
    assert {TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)} == state.owned
    state.on_poll(1.4)
    assert state.handover is not None
    assert {TopicPartition(TOPIC, 1)} == state.handover.revoked
    state.on_handover_done(state.handover)
    assert {TOPIC_ID: (0,)} == heartbeat(state, 1.5).owned


def test_an_assignment_that_changes_nothing_is_acknowledged() -> None:
    """The one before it was never taken; the coordinator cannot give its partitions away until it knows."""
    state = member()
    plain = HeartbeatAnswer(error_code=0, member_epoch=1, heartbeat_interval=1.0)
    state.on_heartbeat(heartbeat(state, 1.0), plain, 1.0)
    for partitions in ((0, 1), (0,)):
        assignment = {TOPIC_ID: partitions}
        answer = HeartbeatAnswer(error_code=0, member_epoch=2, heartbeat_interval=1.0, assignment=assignment)
        state.on_heartbeat(GroupHeartbeat(member_epoch=1), answer, 1.0)
    state.on_poll(1.0)
    assert state.handover is None
    assert {TOPIC_ID: (0,)} == heartbeat(state, 2.0).owned
    assert heartbeat(state, 3.0).owned is None


def test_while_every_answer_comes_only_what_changed_is_said() -> None:
    state = member()
    for now in (1.0, 2.0, 3.0):
        asked = heartbeat(state, now)
        state.on_heartbeat(asked, HeartbeatAnswer(error_code=0, member_epoch=1, heartbeat_interval=1.0), now)
    assert GroupHeartbeat(member_epoch=1) == asked


@pytest.mark.parametrize(
    ("instance_id", "epoch"), [(None, -1), ("i", -2)], ids=["a dynamic member leaves", "a static one may come back"]
)
def test_the_last_heartbeat_tells_whether_the_member_leaves_for_good(instance_id: str | None, epoch: int) -> None:
    farewell = GroupHeartbeat(member_epoch=epoch)
    assert farewell == member(instance_id).leave("close")
    # The same where the program no longer polls.
    assert farewell == heartbeat(member(instance_id), 30.0)
