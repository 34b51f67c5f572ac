"""What a member of a group whose coordinator assigns says after an answer was lost."""

from uuid import UUID

from ottla.client.group.consumer_membership_state import ConsumerMembershipState, GroupHeartbeat, HeartbeatAnswer
from ottla.model.ids import TopicPartition

TOPIC, TOPIC_ID = "t", UUID(int=1)


def member() -> ConsumerMembershipState:
    """One that owns a partition."""
    state = ConsumerMembershipState(group_id="g", member_id="m", poll_interval=30.0)
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


def test_while_every_answer_comes_only_what_changed_is_said() -> None:
    state = member()
    for now in (1.0, 2.0, 3.0):
        asked = heartbeat(state, now)
        state.on_heartbeat(asked, HeartbeatAnswer(error_code=0, member_epoch=1, heartbeat_interval=1.0), now)
    assert GroupHeartbeat(member_epoch=1) == asked
