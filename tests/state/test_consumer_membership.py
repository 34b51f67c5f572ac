"""Members of a group whose coordinator assigns, against a plain coordinator: polls, heartbeats, losses, in any order.

The coordinator gives a partition to a member only when nobody else says that it has it. Whatever happens, no two
members that it counts in have the same partition, and when everything calms down every partition has an owner.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.client.group import consumer_membership_state as actions
from ottla.client.group.consumer_membership_state import ConsumerMembershipState, HeartbeatAnswer
from ottla.client.group.membership_state import FindCoordinator, State, Wait
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from tests.effort import effort

TOPIC, TOPIC_ID = "t", UUID(int=1)
PARTITIONS = range(5)


@dataclass
class Counted:
    epoch: int
    has: set[int] = field(default_factory=set)
    """What it says it has, or was given and did not say that it let go of."""
    given: set[int] | None = None
    """The assignment that it was last sent."""


@dataclass
class Coordinator:
    """Targets are by turns; a partition is given when everybody else has let go of it."""

    epoch: int = 0
    members: dict[str, Counted] = field(default_factory=dict)

    def target(self, member_id: str) -> set[int]:
        turn = sorted(self.members).index(member_id)
        return {partition for partition in PARTITIONS if partition % len(self.members) == turn}

    def heartbeat(self, member_id: str, action: actions.GroupHeartbeat) -> HeartbeatAnswer:
        if action.member_epoch < 0:
            self.expire(member_id)
            return HeartbeatAnswer(error_code=0, member_epoch=action.member_epoch)
        member = self.members.get(member_id)
        if action.member_epoch == 0:
            assert (action.topics, action.owned, action.is_whole) == ((TOPIC,), {}, True)
            self.epoch += member is None
            member = self.members[member_id] = Counted(self.epoch)
        elif member is None:
            return HeartbeatAnswer(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        elif action.member_epoch != member.epoch:
            return HeartbeatAnswer(error_code=ErrorCode.FENCED_MEMBER_EPOCH)
        if action.owned is not None:
            told = set(action.owned.get(TOPIC_ID, ()))
            assert told <= member.has, "it says it has what it was never given"
            if member.given is None or told <= member.given:
                member.has = told
        target = self.target(member_id)
        keeps = member.has & target
        free = target - set().union(*(each.has for other, each in self.members.items() if other != member_id))
        if member.has <= target:
            member.epoch = self.epoch
            keeps |= free
            member.has |= free
        assignment = None
        if keeps != member.given or action.member_epoch == 0:
            member.given = keeps
            assignment = {TOPIC_ID: tuple(sorted(keeps))} if keeps else {}
        return HeartbeatAnswer(error_code=0, member_epoch=member.epoch, heartbeat_interval=1.0, assignment=assignment)

    def expire(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self.epoch += 1


class ConsumerMembershipMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.coordinator = Coordinator()
        self.clients: list[ConsumerMembershipState] = []
        self.started = 0

    def client(self, pick: int) -> ConsumerMembershipState:
        return self.clients[pick % len(self.clients)]

    @precondition(lambda self: len(self.clients) < 4)
    @rule()
    def start_client(self) -> None:
        self.started += 1
        state = ConsumerMembershipState(group_id="g", member_id=f"m{self.started}", poll_interval=30.0)
        state.subscribe({TOPIC})
        self.clients.append(state)

    @precondition(lambda self: len(self.clients) > 2)
    @rule(pick=st.integers(0, 9), lives=st.booleans())
    def be_given_up(self, pick: int, lives: bool) -> None:
        client = self.client(pick)
        self.coordinator.expire(client.member_id)
        if not lives:
            self.clients.remove(client)

    @rule(seconds=st.sampled_from([0.1, 1.0, 1.0, 5.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.clients)
    @rule(seed=st.integers(0, 1000), count=st.integers(1, 40))
    def go_on(self, seed: int, count: int) -> None:
        rng = Random(seed)
        for _ in range(count):
            self.now += 0.2
            state = self.client(rng.randrange(9))
            if rng.random() < 0.4:
                self.poll(state, busy=rng.random() < 0.3)
            else:
                self.step(state, is_lost=rng.random() < 0.3)
            self.nobody_shares_a_partition()

    def poll(self, state: ConsumerMembershipState, busy: bool = False) -> None:
        state.on_poll(self.now)
        if state.handover is not None:
            handover = state.handover
            assert handover.assigned == (state.owned - handover.revoked - handover.lost) | handover.added
            if busy:
                # While the listener is busy, heartbeats go on.
                state.on_handover_started(handover)
                for _ in range(2):
                    self.now += 0.6
                    self.step(state)
            state.on_handover_done(handover)

    def step(self, state: ConsumerMembershipState, is_lost: bool = False) -> None:
        action = state.next_action(self.now)
        match action:
            case Wait():
                return
            case FindCoordinator():
                state.on_coordinator(7, self.now)
            case actions.NameTopics():
                assert {TOPIC_ID} == action.topic_ids
                state.on_names({} if is_lost else {TOPIC_ID: TOPIC}, self.now + 0.5)
            case actions.GroupHeartbeat():
                if is_lost and action.member_epoch >= 0:
                    state.on_trouble(self.now + 0.1, coordinator_lost=True)
                    return
                answer = self.coordinator.heartbeat(state.member_id, action)
                state.on_heartbeat(action, answer, self.now + 0.1)

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        owned: list[TopicPartition] = []
        for state in self.clients:
            assert state.failure is None
            if state.member_id in self.coordinator.members and state.is_member:
                owned += state.owned
        assert len(set(owned)) == len(owned)

    def teardown(self) -> None:
        """Left alone, they agree."""
        wanted = [TopicPartition(TOPIC, partition) for partition in PARTITIONS]
        for turn in range(300):
            self.now += 0.4
            for state in self.clients:
                self.poll(state)
                self.step(state)
            owned = sorted(partition for state in self.clients for partition in state.owned)
            if wanted == owned and all(state.state is State.STABLE for state in self.clients):
                return
            assert turn < 299 or not self.clients, self.clients


@pytest.mark.parametrize("lives", [((4, 2), (30, 0)), ((1, 12), (29, 400))])
def test_a_lost_answer_while_partitions_are_taken(lives: tuple[tuple[int, int], tuple[int, int]]) -> None:
    """Members once told that they own nothing while their listener took partitions, which then went to others."""
    machine = ConsumerMembershipMachine()
    for _ in range(3):
        machine.start_client()
    (count, seed), (count_later, seed_later) = lives
    machine.go_on(count=count, seed=seed)
    machine.pass_time(seconds=31.0)
    machine.go_on(count=count_later, seed=seed_later)
    machine.teardown()


def test_partitions_that_were_assigned_and_never_taken_are_given_to_others() -> None:
    machine = ConsumerMembershipMachine()
    for _ in range(4):
        machine.start_client()
    machine.go_on(count=6, seed=2)
    machine.pass_time(seconds=0.1)
    machine.go_on(count=31, seed=55)
    machine.go_on(count=22, seed=35)
    machine.be_given_up(pick=0, lives=False)
    machine.teardown()


TestConsumerMembership = ConsumerMembershipMachine.TestCase
TestConsumerMembership.settings = effort(examples=120, steps=15)
