"""Members of a share group against a plain coordinator: polls, heartbeats, losses, in any order.

The coordinator assigns all partitions to all members. A member that the coordinator gave up finds out and joins again;
when everything calms down, all members have all partitions.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.client.errors import answer_error
from ottla.client.group.consumer_membership_state import HeartbeatAnswer, NameTopics
from ottla.client.group.membership_state import FindCoordinator, State, Wait
from ottla.client.group.share_membership_state import ShareHeartbeat, ShareMembershipState
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from tests.effort import effort

IDS = {"t": UUID(int=1), "u": UUID(int=2)}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


@dataclass
class Counted:
    epoch: int
    topics: tuple[str, ...]
    sent: dict[UUID, tuple[int, ...]] | None = None


@dataclass
class Coordinator:
    """All partitions of the topics that a member subscribed to."""

    partitions: dict[str, int] = field(default_factory=lambda: {"t": 2, "u": 1})
    epoch: int = 0
    members: dict[str, Counted] = field(default_factory=dict)

    def target(self, topics: tuple[str, ...]) -> dict[UUID, tuple[int, ...]]:
        return {IDS[topic]: tuple(range(self.partitions[topic])) for topic in topics}

    def heartbeat(self, member_id: str, action: ShareHeartbeat) -> HeartbeatAnswer:
        if action.member_epoch < 0:
            self.members.pop(member_id, None)
            return HeartbeatAnswer(error_code=0, member_epoch=action.member_epoch)
        if action.member_epoch == 0:
            assert action.topics is not None
            assert action.is_whole
            self.epoch += 1
            self.members[member_id] = Counted(self.epoch, action.topics)
        member = self.members.get(member_id)
        if member is None:
            return HeartbeatAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        if action.member_epoch not in (0, member.epoch):
            return HeartbeatAnswer(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        if action.topics is not None:
            member.topics = action.topics
        target = self.target(member.topics)
        assignment = target if target != member.sent or action.topics is not None else None
        member.sent = target
        return HeartbeatAnswer(error_code=0, member_epoch=member.epoch, heartbeat_interval=1.0, assignment=assignment)


class ShareMembershipMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.coordinator = Coordinator()
        self.clients = [
            ShareMembershipState(group_id="g", member_id=f"m{number}", poll_interval=30.0) for number in range(3)
        ]
        for each in self.clients:
            each.subscribe({"t"})

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(pick=st.integers(0, 2))
    def be_given_up(self, pick: int) -> None:
        self.coordinator.members.pop(self.clients[pick].member_id, None)

    @rule(pick=st.integers(0, 2), topics=st.sets(st.sampled_from(["t", "u"]), min_size=1))
    def subscribe(self, pick: int, topics: set[str]) -> None:
        self.clients[pick].subscribe(topics)

    @rule(pick=st.integers(0, 2))
    def leave(self, pick: int) -> None:
        farewell = self.clients[pick].leave("it was told to")
        if farewell is not None:
            self.coordinator.heartbeat(self.clients[pick].member_id, farewell)
        assert frozenset() == self.clients[pick].owned

    @precondition(lambda self: self.coordinator.partitions["t"] < 5)
    @rule()
    def add_partition(self) -> None:
        self.coordinator.partitions["t"] += 1

    @rule(seed=st.integers(0, 1000), count=st.integers(1, 30))
    def go_on(self, seed: int, count: int) -> None:
        rng = Random(seed)
        for _ in range(count):
            self.now += 0.2
            state = self.clients[rng.randrange(3)]
            if rng.random() < 0.3:
                state.on_poll(self.now)
            else:
                self.step(state, is_lost=rng.random() < 0.3)
            self.each_is_consistent()

    def step(self, state: ShareMembershipState, is_lost: bool = False) -> None:
        action = state.next_action(self.now)
        match action:
            case Wait():
                return
            case FindCoordinator():
                state.on_coordinator(7, self.now)
            case NameTopics():
                names = {} if is_lost else {topic_id: NAMES[topic_id] for topic_id in action.topic_ids}
                state.on_names(names, self.now + 0.5)
            case ShareHeartbeat():
                if is_lost and action.member_epoch >= 0:
                    state.on_trouble(self.now + 0.1, coordinator_lost=True)
                    return
                answer = self.coordinator.heartbeat(state.member_id, action)
                state.on_heartbeat(action, answer, self.now + 0.1)

    @invariant()
    def each_is_consistent(self) -> None:
        for state in self.clients:
            assert state.failure is None
            state.check()

    def teardown(self) -> None:
        """Left alone, each has what it subscribed to."""
        for turn in range(100):
            self.now += 0.4
            for state in self.clients:
                state.on_poll(self.now)
                self.step(state)
            if all(state.state is State.STABLE and self.expected(state) == state.owned for state in self.clients):
                return
            assert turn < 99, self.clients

    def expected(self, state: ShareMembershipState) -> set[TopicPartition]:
        return {
            TopicPartition(topic, partition)
            for topic in state.topics or ()
            for partition in range(self.coordinator.partitions[topic])
        }


def test_a_refused_member_fails_and_owns_nothing() -> None:
    machine = ShareMembershipMachine()
    machine.teardown()
    state = machine.clients[0]
    machine.now += 5
    action = state.next_action(machine.now)
    assert isinstance(action, ShareHeartbeat)
    refused = HeartbeatAnswer(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    state.on_heartbeat(action, refused, machine.now)
    state.check()
    expected = answer_error(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group g", "not authorized to access the group")
    assert (State.FAILED, str(expected)) == (state.state, str(state.failure))


TestShareMembership = ShareMembershipMachine.TestCase
TestShareMembership.settings = effort(examples=100, steps=15)
