"""Groups whose members speak both protocols, and change between them: whatever comes, no partition has two owners, no
request is left without an answer, and the log tells the same story as memory.

What clients send here need not make sense: any generation, any epoch, any partitions. The shard checks itself after
each step; that a sensible client gets its partitions is `test_consumer_groups.py`'s and the unit tests' to show.
"""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.groups.classic.generations_state import GroupState as ClassicState
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig, ConsumerHeartbeat
from ottla.coordination.groups.requests import (
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeavingMember,
    MemberProtocol,
    SyncRequest,
)
from tests.effort import effort
from tests.unit.coordination.consumer_group_driver import BAR, FOO
from tests.unit.coordination.consumer_offsets_driver import ShardDriver, assignment, subscription

pytestmark = pytest.mark.slow

OWNED: list[dict[Any, tuple[int, ...]] | None] = [None, {}, {FOO: (0, 1)}, {FOO: (0, 1, 2, 3), BAR: (0, 1)}]
CLASSIC_OWNED: list[dict[str, tuple[int, ...]]] = [{}, {"foo": (0, 1)}, {"foo": (0, 1, 2, 3), "bar": (0, 1)}]
TOPICS = [("foo",), ("bar",), ("foo", "bar"), ()]
INSTANCES = st.sampled_from([None, None, None, "i1", "i2"])


class MixedGroupsMachine(RuleBasedStateMachine):
    """One group, new-style members n0 to n2, and old-style ones whose ids the coordinator gives."""

    def __init__(self) -> None:
        super().__init__()
        self.old_ids = ["", "stranger"]
        self.tokens = 0
        self.asked: set[str] = set()

    @initialize(interval_ms=st.sampled_from([0, 1_000]))
    def start(self, interval_ms: int) -> None:
        self.driver = ShardDriver(ConsumerGroupConfig(assignment_interval_ms=interval_ms))
        self.driver.reload()

    def token(self) -> str:
        self.tokens += 1
        self.asked.add(f"t{self.tokens}")
        return f"t{self.tokens}"

    def epoch_of(self, member_id: str) -> int:
        group = self.driver.consumers.get("g")
        if group is not None and member_id in group.members:
            return max(group.members[member_id].member_epoch, 0)
        classic = self.driver.shard.classic.groups.get("g")
        return 0 if classic is None else classic.generation

    @rule(
        index=st.integers(0, 2),
        topics=st.sampled_from(TOPICS),
        regex=st.sampled_from(["", "", "f.*"]),
        instance_id=INSTANCES,
        is_joining=st.booleans(),
        owned=st.sampled_from(OWNED),
    )
    def beat(
        self, index: int, topics: tuple[str, ...], regex: str, instance_id: str | None, is_joining: bool, owned: Any
    ) -> None:
        request = ConsumerHeartbeat(
            group_id="g",
            member_id=f"n{index}",
            member_epoch=0 if is_joining else self.epoch_of(f"n{index}"),
            instance_id=instance_id,
            rebalance_timeout_ms=20_000,
            topic_names=topics,
            topic_regex=regex,
            owned_partitions={} if is_joining else owned,
        )
        self.driver.run(self.driver.shard.consumer_heartbeat(request, self.driver.now_ms, self.token()))

    @rule(index=st.integers(0, 2), epoch=st.sampled_from([-1, -1, -2]), instance_id=INSTANCES)
    def stop(self, index: int, epoch: int, instance_id: str | None) -> None:
        request = ConsumerHeartbeat(group_id="g", member_id=f"n{index}", member_epoch=epoch, instance_id=instance_id)
        self.driver.run(self.driver.shard.consumer_heartbeat(request, self.driver.now_ms, self.token()))

    @rule(
        data=st.data(),
        topics=st.sampled_from(TOPICS),
        owned=st.sampled_from(CLASSIC_OWNED),
        instance_id=INSTANCES,
        protocol=st.sampled_from(["range", "range", "sticky"]),
    )
    def join(
        self, data: st.DataObject, topics: tuple[str, ...], owned: Any, instance_id: str | None, protocol: str
    ) -> None:
        said = subscription(*topics, owned=owned)
        request = JoinRequest(
            group_id="g",
            member_id=data.draw(st.sampled_from(self.old_ids)),
            instance_id=instance_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=(MemberProtocol(protocol, said), MemberProtocol("range", said)),
            requires_member_id=data.draw(st.booleans()),
        )
        self.driver.run(self.driver.shard.join(request, self.driver.now_ms, self.token()))

    @rule(data=st.data(), instance_id=INSTANCES)
    def sync(self, data: st.DataObject, instance_id: str | None) -> None:
        member_id = data.draw(st.sampled_from(self.old_ids))
        request = SyncRequest(
            group_id="g",
            member_id=member_id,
            instance_id=instance_id,
            generation=self.epoch_of(member_id),
            assignments=tuple(
                (each, assignment({"foo": (index, index + 1), "bar": (0,)})) for index, each in enumerate(self.old_ids)
            ),
        )
        self.driver.run(self.driver.shard.sync(request, self.driver.now_ms, self.token()))

    @rule(data=st.data(), instance_id=INSTANCES)
    def classic_beat(self, data: st.DataObject, instance_id: str | None) -> None:
        member_id = data.draw(st.sampled_from(self.old_ids))
        request = HeartbeatRequest(
            group_id="g", member_id=member_id, instance_id=instance_id, generation=self.epoch_of(member_id)
        )
        self.driver.run(self.driver.shard.heartbeat(request, self.driver.now_ms, self.token()))

    @rule(data=st.data(), instance_id=INSTANCES)
    def leave(self, data: st.DataObject, instance_id: str | None) -> None:
        member_id = data.draw(st.sampled_from([*self.old_ids, "n0", "n1"]))
        request = LeaveRequest(group_id="g", members=(LeavingMember(member_id=member_id, instance_id=instance_id),))
        self.driver.run(self.driver.shard.leave(request, self.driver.now_ms, self.token()))

    @rule(ms=st.sampled_from([0, 1, 1_000, 9_000, 25_000]))
    def wait(self, ms: int) -> None:
        self.driver.pass_ms(ms)

    @rule()
    def fail_over(self) -> None:
        consumers = {
            group_id: (group.members, group.targets, group.epoch, group.target_epoch)
            for group_id, group in self.driver.consumers.items()
        }
        self.driver.reload()
        assert consumers == {
            group_id: (group.members, group.targets, group.epoch, group.target_epoch)
            for group_id, group in self.driver.consumers.items()
        }
        # Whoever waited was connected to the one that failed.
        self.asked.clear()

    @invariant()
    def learn(self) -> None:
        """Takes note of the ids that were given, and of the answers."""
        if not hasattr(self, "driver"):
            return
        for token, response in self.driver.answers.items():
            self.asked.discard(str(token))
            if isinstance(response, JoinResponse) and response.member_id not in self.old_ids:
                self.old_ids = [*self.old_ids[:2], *self.old_ids[2:][-3:], response.member_id]
        self.driver.answers.clear()

    @invariant()
    def is_of_one_kind(self) -> None:
        if not hasattr(self, "driver"):
            return
        classic = self.driver.shard.classic.groups.get("g")
        group = self.driver.consumers.get("g")
        if group is not None and group.members:
            assert classic is None or classic.state is ClassicState.EMPTY

    def teardown(self) -> None:
        """Nobody is heard of any more: all requests are answered, and all members go."""
        if not hasattr(self, "driver"):
            return
        for _ in range(60):
            self.driver.pass_ms(10_000)
            self.learn()
        assert set() == self.asked
        assert {} == {group_id: group.members for group_id, group in self.driver.consumers.items() if group.members}


TestMixedGroups = MixedGroupsMachine.TestCase
TestMixedGroups.settings = effort(150, 40)
