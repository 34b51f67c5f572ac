"""A group whose consumers are replaced, from the old style to the new and back, while it works.

Consumers of both kinds do what real ones do: old ones give everything up before they join, and the leader of a classic
group assigns; new ones keep a partition until they have given it up. They come, go, fall silent and are slow, topics
grow, coordinators fail. All along, no two members own the same partition. When everything heals, every partition is
owned by exactly one of those who are there, whatever an operator allows groups to become.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig, ConsumerHeartbeat, MigrationPolicy
from ottla.coordination.groups.requests import JoinResponse, LeaveRequest, LeavingMember, MemberProtocol
from ottla.model.error_codes import ErrorCode
from ottla.protocol.consumer_protocol import read_assignment
from tests.effort import effort
from tests.scenarios.consumer_offsets_rig import ConsumerOffsetsRig
from tests.unit.coordination.consumer_offsets_driver import assignment, subscription

pytestmark = pytest.mark.slow

CONSUMERS_MAX = 4
# Mostly the usual one, in which groups can change both ways.
POLICIES = [*MigrationPolicy, *[MigrationPolicy.BIDIRECTIONAL] * 2]
OUT, JOINED, IN = "out", "joined", "in"
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


@dataclass
class OldConsumer:
    """One that joins, syncs and sends heartbeats. `token` is of the request that it waits for."""

    name: str
    member_id: str = ""
    generation: int = -1
    phase: str = OUT
    token: Hashable | None = None
    led: tuple[str, ...] = ()
    partitions: int = 0
    owned: set[int] = field(default_factory=set)

    def step(self, rig: ConsumerOffsetsRig) -> None:
        """Does the next thing, or nothing while it waits."""
        if self.token is not None:
            self.hear(rig)
        elif self.phase == OUT:
            # It gives up all it has before it asks.
            self.owned.clear()
            self.partitions = rig.topics["foo"].partition_count
            protocols = (MemberProtocol("range", subscription("foo")),)
            request = rig.request(self.member_id, protocols=protocols, rebalance_timeout_ms=20_000)
            self.token = rig.ask("join", request)
        elif self.phase == JOINED:
            self.token = rig.sync(self.member_id, self.generation, self.assigned())
        else:
            self.beat(rig)

    def assigned(self) -> dict[str, bytes]:
        """What it assigns, if it leads."""
        shares: dict[str, tuple[int, ...]] = dict.fromkeys(sorted(self.led), ())
        for partition in range(self.partitions if self.led else 0):
            taker = sorted(self.led)[partition % len(self.led)]
            shares[taker] = (*shares[taker], partition)
        return {member_id: assignment({"foo": share} if share else {}) for member_id, share in shares.items()}

    def hear(self, rig: ConsumerOffsetsRig) -> None:
        if self.token in rig.waiting:
            return
        # The answer may be lost with the coordinator that owed it.
        response: Any = rig.responses.get(self.token)
        self.token = None
        if response is None or response.error is not ErrorCode.NONE:
            self.phase = OUT
            if response is not None and response.error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            elif response is not None and response.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = response.member_id
        elif isinstance(response, JoinResponse):
            self.member_id, self.generation, self.phase = response.member_id, response.generation, JOINED
            self.led = tuple(each.member_id for each in response.members)
        else:
            self.owned, self.phase = set(read_assignment(response.assignment).partitions.get("foo", ())), IN

    def beat(self, rig: ConsumerOffsetsRig) -> None:
        error = rig.heartbeat(self.member_id, self.generation)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        has_grown = bool(self.led) and self.partitions != rig.topics["foo"].partition_count
        if error is not ErrorCode.NONE or has_grown:
            self.phase = OUT

    def leave(self, rig: ConsumerOffsetsRig) -> None:
        rig.ask("leave", LeaveRequest(group_id="g", members=(LeavingMember(member_id=self.member_id),)))


@dataclass
class NewConsumer:
    """One that only sends heartbeats."""

    name: str
    epoch: int = 0
    owned: set[int] = field(default_factory=set)
    revoking: set[int] = field(default_factory=set)

    @property
    def member_id(self) -> str:
        return self.name

    def step(self, rig: ConsumerOffsetsRig) -> None:
        """A full heartbeat, after giving up what it was told to."""
        self.owned -= self.revoking
        self.revoking.clear()
        topic_id = rig.topics["foo"].topic_id
        response = self.beat(
            rig,
            topic_names=("foo",),
            rebalance_timeout_ms=20_000,
            owned_partitions={topic_id: tuple(sorted(self.owned))} if self.owned else {},
        )
        if response.error in GONE:
            self.epoch, self.owned = 0, set()
        if response.error is ErrorCode.NONE:
            told = set(response.assignment.get(topic_id, ()))
            self.epoch, self.revoking = response.member_epoch, self.owned - told
            self.owned |= told

    def beat(self, rig: ConsumerOffsetsRig, **fields: Any) -> Any:
        request = ConsumerHeartbeat(group_id="g", member_id=self.name, member_epoch=self.epoch, **fields)
        return rig.responses[rig.ask("consumer_heartbeat", request)]

    def leave(self, rig: ConsumerOffsetsRig) -> None:
        self.epoch = -1
        self.beat(rig)


class MigratingGroupMachine(RuleBasedStateMachine):
    """One group, one topic, a few consumers of either kind."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = ConsumerOffsetsRig()
        self.consumers: dict[str, OldConsumer | NewConsumer] = {}
        self.names = 0

    @initialize(policy=st.sampled_from(POLICIES), kinds=st.permutations([False, False, True]))
    def start(self, policy: MigrationPolicy, kinds: list[bool]) -> None:
        self.rig = ConsumerOffsetsRig(ConsumerGroupConfig(migration_policy=policy))
        self.rig.set_topics({"foo": 3})
        for is_new in kinds:
            self.appear(is_new)
            self.work(10)

    # What consumers do

    @precondition(lambda self: len(self.consumers) < CONSUMERS_MAX)
    @rule(is_new=st.booleans())
    def appear(self, is_new: bool) -> None:
        self.names += 1
        name = f"c{self.names}"
        self.consumers[name] = NewConsumer(name) if is_new else OldConsumer(name)

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), steps=st.integers(1, 3))
    def step(self, data: st.DataObject, steps: int) -> None:
        consumer = self.consumers[data.draw(st.sampled_from(list(self.consumers)))]
        for _ in range(steps):
            consumer.step(self.rig)
            self.no_partition_has_two_owners()

    @rule(rounds=st.integers(1, 10))
    def work(self, rounds: int) -> None:
        """Everybody does the next thing, second by second."""
        for _ in range(rounds):
            self.rig.after(1_000)
            for consumer in self.consumers.values():
                consumer.step(self.rig)
                self.no_partition_has_two_owners()

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), says_so=st.booleans(), fails_over=st.booleans())
    def go(self, data: st.DataObject, says_so: bool, fails_over: bool) -> None:
        consumer = self.consumers.pop(data.draw(st.sampled_from(list(self.consumers))))
        if says_so:
            consumer.leave(self.rig)
        if fails_over:
            self.rig.crash()

    @rule(are_new=st.booleans(), fails_over=st.booleans())
    def all_of_a_kind_go(self, are_new: bool, fails_over: bool) -> None:
        for name in [name for name, each in self.consumers.items() if isinstance(each, NewConsumer) == are_new]:
            self.consumers.pop(name).leave(self.rig)
        if fails_over:
            self.rig.crash()

    # What happens to all

    @rule(ms=st.sampled_from([0, 1, 1_000, 5_000, 11_000, 21_000]))
    def wait(self, ms: int) -> None:
        self.rig.after(ms)

    @rule()
    def grow(self) -> None:
        self.rig.set_topics({"foo": self.rig.topics["foo"].partition_count + 1})

    @rule()
    def fail_over(self) -> None:
        self.rig.crash()

    # What must hold

    def members(self) -> set[str]:
        """Those whom the coordinator counts as members."""
        classic = self.rig.shard.classic.groups.get("g")
        if self.rig.group is not None:
            return set(self.rig.group.members)
        return set() if classic is None else {member.member_id for member in classic.members}

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        members = self.members()
        owners: dict[int, str] = {}
        for consumer in self.consumers.values():
            for partition in consumer.owned if consumer.member_id in members else ():
                assert consumer.name == owners.setdefault(partition, consumer.name), partition

    @rule()
    def heal(self) -> None:
        """Nothing new happens: those who are there go on, do what they are told, and share everything out."""
        self.work(60)
        owned = sorted(partition for consumer in self.consumers.values() for partition in consumer.owned)
        expected = list(range(self.rig.topics["foo"].partition_count)) if self.consumers else []
        assert expected == owned

    def teardown(self) -> None:
        if self.rig.topics:
            self.heal()


TestMigratingGroups = MigratingGroupMachine.TestCase
TestMigratingGroups.settings = effort(250, 8)
