"""Members of a classic group against a plain coordinator: polls, requests, losses and ends in any order.

Whatever happens, no two members that the coordinator counts in have the same partition, and when everything calms down
every partition has an owner.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ottla.client.group import classic_membership_state as actions
from ottla.client.group.assignors.assignor import Assignor
from ottla.client.group.assignors.range_assignor import RangeAssignor
from ottla.client.group.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from ottla.client.group.classic_membership_state import ClassicMembershipState, Joined
from ottla.client.group.membership_state import FindCoordinator, State, Wait
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from tests.effort import effort

TOPICS = frozenset({"a", "b"})
BROKER = 7
ASSIGNORS: dict[str, type[Assignor]] = {
    "range": RangeAssignor,
    "sticky": StickyAssignor,
    "cooperative": CooperativeStickyAssignor,
}


@dataclass
class Coordinator:
    """Counts members in, and lets each round begin when all have joined."""

    generation: int = 0
    members: dict[str, bytes] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)
    """Who has joined the round that is being prepared; empty if none is."""
    protocol: str = ""
    assignments: dict[str, bytes] | None = None
    next_id: int = 0

    @property
    def is_preparing(self) -> bool:
        return bool(self.joined)

    def join(self, action: actions.Join) -> Joined | None:
        """None: come back later, not all are here."""
        member_id = action.member_id
        if member_id == "":
            self.next_id += 1
            return Joined(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{self.next_id}")
        if member_id not in self.members and int(member_id[1:]) <= self.next_id and member_id in self.gone:
            return Joined(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        self.protocol, self.members[member_id] = action.protocols[0]
        if member_id not in self.joined:
            self.joined.append(member_id)
            self.assignments = None
        return None

    gone: set[str] = field(default_factory=set)

    def complete(self) -> dict[str, Joined]:
        """The answers of a round in which everybody has joined."""
        if not self.is_preparing or set(self.joined) != set(self.members):
            return {}
        self.generation += 1
        leader, self.joined = self.joined[0], []
        told = tuple((member_id, None, metadata) for member_id, metadata in self.members.items())
        self.assignments = None
        return {
            member_id: Joined(
                error_code=0,
                generation=self.generation,
                protocol=self.protocol,
                leader=leader,
                member_id=member_id,
                members=told if member_id == leader else (),
            )
            for member_id in self.members
        }

    def check(self, member_id: str, generation: int) -> ErrorCode:
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # A coordinator that lost a member answers the others so, also those that wait for a lost leader's assignment.
        if self.is_preparing or self.must_rejoin:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def expire(self, member_id: str) -> None:
        """A member is given up; the others must join again."""
        if self.members.pop(member_id, None) is None:
            return
        self.gone.add(member_id)
        if member_id in self.joined:
            self.joined.remove(member_id)
        self.must_rejoin = bool(self.members)

    must_rejoin: bool = False


@dataclass(eq=False)
class Client:
    """A member, and the answer that it waits for."""

    state: ClassicMembershipState
    parked: actions.Join | actions.Sync | None = None


class MembershipMachine(RuleBasedStateMachine):
    """See the module's docstring."""

    assignor = "range"

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.coordinator = Coordinator()
        self.counts = {"a": 3, "b": 2}
        self.clients: list[Client] = []

    def client(self, pick: int) -> Client:
        return self.clients[pick % len(self.clients)]

    @precondition(lambda self: len(self.clients) < 4)
    @rule()
    def start_client(self) -> None:
        state = ClassicMembershipState(
            group_id="g",
            poll_interval=30.0,
            session=10.0,
            heartbeat_interval=1.0,
            assignors=[ASSIGNORS[self.assignor]()],
        )
        state.subscribe(TOPICS)
        self.clients.append(Client(state))

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9))
    def crash(self, pick: int) -> None:
        """It is gone, and the coordinator finds out."""
        client = self.client(pick)
        self.clients.remove(client)
        self.expire(client.state.member_id)

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9))
    def be_given_up(self, pick: int) -> None:
        """The coordinator did not hear of it for too long, but it lives."""
        self.expire(self.client(pick).state.member_id)

    def expire(self, member_id: str) -> None:
        self.coordinator.expire(member_id)

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9))
    def poll(self, pick: int) -> None:
        state = self.client(pick).state
        state.on_poll(self.now)
        if state.handover is not None:
            handover = state.handover
            assert not handover.added & handover.revoked
            assert handover.assigned == (state.owned - handover.revoked - handover.lost) | handover.added
            state.on_handover_done(handover)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(topic=st.sampled_from(sorted(TOPICS)))
    def grow(self, topic: str) -> None:
        self.counts[topic] = min(self.counts[topic] + 1, 6)
        for client in self.clients:
            client.state.on_partition_counts(self.counts)

    @precondition(lambda self: self.clients)
    @rule(pick=st.integers(0, 9), is_lost=st.integers(0, 6))
    def step(self, pick: int, is_lost: int = 1) -> None:
        client = self.client(pick)
        if client.parked is not None:
            self.look_at_parked()
            return
        action = client.state.next_action(self.now)
        if isinstance(action, Wait):
            return
        if is_lost == 0 and not isinstance(action, actions.Leave):
            client.state.on_trouble(self.now + 0.1, coordinator_lost=True)
            return
        self.do(client, action)
        self.look_at_parked()

    @precondition(lambda self: self.clients)
    @rule(seed=st.integers(0, 1000), count=st.integers(1, 60))
    def go_on(self, seed: int, count: int) -> None:
        """Polls and requests in some order, which examples of single steps seldom make long enough."""
        rng = Random(seed)
        for _ in range(count):
            self.now += 0.1
            pick = rng.randrange(len(self.clients))
            if rng.random() < 0.4:
                self.poll(pick)
            else:
                self.step(pick)
            self.nobody_shares_a_partition()

    def do(self, client: Client, action: object) -> None:
        state, coordinator = client.state, self.coordinator
        match action:
            case FindCoordinator():
                state.on_coordinator(BROKER, self.now)
            case actions.CountPartitions():
                assert action.topics <= TOPICS
                state.on_partition_counts({topic: self.counts[topic] for topic in action.topics})
            case actions.Join():
                answer = coordinator.join(action)
                if answer is None:
                    client.parked = action
                else:
                    state.on_joined(answer, self.now, self.now + 0.1)
            case actions.Sync():
                code = coordinator.check(action.member_id, action.generation)
                if code:
                    state.on_synced(code, b"", self.now, self.now + 0.1)
                    return
                if action.assignments:
                    coordinator.assignments = dict(action.assignments)
                client.parked = action
            case actions.Heartbeat():
                code = coordinator.check(action.member_id, action.generation)
                state.on_heartbeat(code, action, self.now, self.now + 0.1)
            case actions.Leave():
                self.expire(action.member_id)

    def look_at_parked(self) -> None:
        coordinator = self.coordinator
        answers = coordinator.complete()
        if answers:
            coordinator.must_rejoin = False
        for client in self.clients:
            parked = client.parked
            if isinstance(parked, actions.Join):
                answer = answers.get(parked.member_id)
                if answer is None and parked.member_id not in coordinator.members:
                    answer = Joined(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
                if answer is not None:
                    client.parked = None
                    client.state.on_joined(answer, self.now, self.now + 0.1)
            elif isinstance(parked, actions.Sync):
                code = coordinator.check(parked.member_id, parked.generation)
                if code or coordinator.assignments is not None:
                    client.parked = None
                    given = (coordinator.assignments or {}).get(parked.member_id, b"")
                    client.state.on_synced(code, given, self.now, self.now + 0.1)

    @invariant()
    def nobody_shares_a_partition(self) -> None:
        owned: list[TopicPartition] = []
        for client in self.clients:
            assert client.state.failure is None
            if client.state.member_id in self.coordinator.members and client.state.is_member:
                owned += client.state.owned
        assert len(set(owned)) == len(owned)

    def teardown(self) -> None:
        """Left alone, they agree."""
        for turn in range(400):
            self.now += 0.4
            for pick in range(len(self.clients)):
                self.poll(pick)
                self.step(pick)
            wanted = {TopicPartition(topic, at) for topic, count in self.counts.items() for at in range(count)}
            owned = [partition for client in self.clients for partition in client.state.owned]
            is_calm = all(client.state.state is State.STABLE and not client.state.wants_poll for client in self.clients)
            if is_calm and sorted(wanted) == sorted(owned):
                return
            assert turn < 399 or not self.clients, [client.state for client in self.clients]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_members_agree_in_the_end_and_never_share(name: str) -> None:
    machine = type("Machine", (MembershipMachine,), {"assignor": name})
    run_state_machine_as_test(machine, settings=effort(examples=60, steps=60))
