"""Server-side groups against clients that lose responses, go silent, crash and come back, and a coordinator that does.

A client here does what a real one must: it keeps a partition until it has really given it up, reports what it owns, and
drops everything when it is fenced. All along, no two clients that the group counts as members own the same partition,
epochs never go back, and what is rebuilt from the log, compacted or not, equals what is in memory. Left alone at last,
everyone owns exactly its target.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from ottla.coordination.groups.consumer.group import ConsumerGroup, GroupState
from ottla.coordination.groups.consumer.groups_state import ConsumerGroups, PlainJoin
from ottla.coordination.groups.consumer.requests import (
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
)
from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.error_codes import ErrorCode
from ottla.sim.random import SimRandom
from tests.effort import effort
from tests.state.group_clients import FENCED, GroupClientsMachine
from tests.unit.coordination.consumer_group_driver import Driver

pytestmark = pytest.mark.slow

Partition = tuple[UUID, int]
SUBSCRIPTIONS: list[dict[str, Any]] = [
    {"topic_names": ("t1",)},
    {"topic_names": ("t1", "t2")},
    {"topic_names": ("t2", "t3")},
    {"topic_names": ()},
    {"topic_names": (), "topic_regex": "t.*"},
    {"topic_names": ("t1",), "topic_regex": "t[23]"},
]


@dataclass(slots=True)
class Client:
    """A consumer. `owned` is what it really works on; `revoking`, a part of that, is what it was told to give up."""

    member_id: str
    instance_id: str | None
    subscription: dict[str, Any]
    epoch: int = 0
    owned: set[Partition] = field(default_factory=set)
    revoking: set[Partition] = field(default_factory=set)
    says_all: bool = True

    def reset(self) -> None:
        self.epoch = 0
        self.owned.clear()
        self.revoking.clear()
        self.says_all = True

    def reported(self) -> dict[UUID, tuple[int, ...]]:
        return as_assignment(self.owned)


def as_assignment(partitions: set[Partition]) -> dict[UUID, tuple[int, ...]]:
    assignment: dict[UUID, tuple[int, ...]] = {}
    for topic_id, partition in sorted(partitions):
        assignment[topic_id] = (*assignment.get(topic_id, ()), partition)
    return assignment


class ConsumerGroupsMachine(GroupClientsMachine):
    """One group, up to six clients."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[str, Client] = {}
        self.topic_ids = 0

    @initialize(
        interval_ms=st.sampled_from([0, 1_000]),
        assignor=st.sampled_from(["uniform", "range", None]),
        subscriptions=st.lists(st.sampled_from(SUBSCRIPTIONS[:3]), min_size=1, max_size=4),
    )
    def start(self, interval_ms: int, assignor: str | None, subscriptions: list[dict[str, Any]]) -> None:
        self.assignor = assignor
        self.driver = Driver(ConsumerGroupConfig(assignment_interval_ms=interval_ms), topics={})
        self.driver.set_topics({"t1": self.new_topic(4), "t2": self.new_topic(3)})
        for index, subscription in enumerate(subscriptions):
            self.appear(subscription, is_static=index % 2 == 0)
            self.all_beat([])

    def new_topic(self, partitions: int) -> Topic:
        self.topic_ids += 1
        return Topic(UUID(int=self.topic_ids), partitions)

    # What clients do

    @precondition(lambda self: len(self.clients) < 6)
    @rule(subscription=st.sampled_from(SUBSCRIPTIONS), is_static=st.booleans())
    def appear(self, subscription: dict[str, Any], is_static: bool) -> None:
        self.names += 1
        instance_id = f"i{self.names}" if is_static else None
        self.clients[f"m{self.names}"] = Client(f"m{self.names}", instance_id, subscription)

    def heartbeat(self, client: Client, *, is_lost: bool = False) -> None:
        self.hear(client, self.driver.beat(client.member_id, client.epoch, **self.said(client)), is_lost=is_lost)

    def said(self, client: Client) -> dict[str, Any]:
        """What a client says in a heartbeat."""
        fields: dict[str, Any] = {"instance_id": client.instance_id}
        if client.says_all or client.epoch == 0:
            fields |= {"rebalance_timeout_ms": 30_000, "topic_regex": "", "server_assignor": self.assignor}
            fields |= client.subscription
            fields["owned_partitions"] = client.reported()
        return fields

    @staticmethod
    def hear(client: Client, response: ConsumerHeartbeatResponse, *, is_lost: bool) -> None:
        if is_lost:
            client.says_all = True
            return
        if response.error in FENCED:
            client.reset()
            return
        if response.error is ErrorCode.UNRELEASED_INSTANCE_ID:
            return
        assert ErrorCode.NONE is response.error, response
        assert response.member_epoch >= client.epoch
        client.epoch = response.member_epoch
        client.says_all = False
        if response.assignment is not None:
            told = {(topic_id, p) for topic_id, partitions in response.assignment.items() for p in partitions}
            client.revoking = client.owned - told
            client.owned |= told

    @precondition(lambda self: any(client.instance_id is None for client in self.clients.values()))
    @rule(data=st.data(), lost=st.lists(st.integers(0, 5), max_size=2), is_repeated=st.booleans())
    def join_together(self, data: st.DataObject, lost: list[int], is_repeated: bool) -> None:
        """Those that start again and join, some of them twice, perhaps with another subscription. Only the last answer
        counts for a client."""
        dynamic = [client.member_id for client in self.clients.values() if client.instance_id is None]
        names = data.draw(st.lists(st.sampled_from(dynamic), min_size=1, max_size=6))
        requests: list[ConsumerHeartbeat] = []
        for name in names:
            client = self.clients[name]
            client.reset()
            client.subscription = data.draw(st.sampled_from(SUBSCRIPTIONS[:4]))
            requests.append(ConsumerHeartbeat(group_id="g", member_id=name, member_epoch=0, **self.said(client)))
        if is_repeated:
            requests, names = requests * 2, names * 2
        assert all(request.is_plain_join for request in requests)
        joins = [PlainJoin(request, token) for token, request in enumerate(requests)]
        responses = self.driver.run(self.driver.shard.join_all(joins, self.driver.now_ms))
        members = self.driver.group().members
        assert len(joins) == len(responses)
        for token, name in enumerate(names):
            # All of them are told the same: what was decided.
            assert responses[token].member_epoch == members[name].member_epoch
            assert responses[token].assignment == {
                topic_id: tuple(epochs) for topic_id, epochs in members[name].assigned.items()
            }
        for name, token in {name: token for token, name in enumerate(names)}.items():
            self.hear(self.clients[name], responses[token], is_lost=token in lost)

    @precondition(lambda self: any(client.revoking for client in self.clients.values()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        busy = [client.member_id for client in self.clients.values() if client.revoking]
        client = self.clients[data.draw(st.sampled_from(busy))]
        client.owned -= client.revoking
        client.revoking.clear()
        client.says_all = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=st.sampled_from(SUBSCRIPTIONS))
    def change_mind(self, data: st.DataObject, subscription: dict[str, Any]) -> None:
        client = self.pick(data)
        client.subscription = subscription
        client.says_all = True

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client.epoch > 0:
            self.driver.beat(client.member_id, -1, instance_id=client.instance_id)
        del self.clients[client.member_id]

    @precondition(lambda self: any(client.instance_id for client in self.clients.values()))
    @rule(data=st.data())
    def restart_static(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client.instance_id is None or client.epoch == 0:
            return
        self.driver.beat(client.member_id, -2, instance_id=client.instance_id)
        del self.clients[client.member_id]
        self.names += 1
        again = Client(f"m{self.names}", client.instance_id, client.subscription)
        self.clients[again.member_id] = again

    # What happens to all

    @rule(ms=st.sampled_from([1, 999, 1_000, 5_000, 5_000, 15_000, 31_000]))
    def wait(self, ms: int) -> None:
        self.driver.pass_ms(ms)

    @rule(name=st.sampled_from(["t1", "t2", "t3", "other"]), is_gone=st.booleans())
    def change_topics(self, name: str, is_gone: bool) -> None:
        topics = dict(self.driver.topics)
        known = topics.pop(name, None)
        if known is None:
            topics[name] = self.new_topic(2)
        elif not is_gone:
            topics[name] = known._replace(partition_count=known.partition_count + 1)
        self.driver.set_topics(topics)

    # What must hold

    def replayed(self) -> dict[str, ConsumerGroup]:
        twin = ConsumerGroups(self.driver.config, SimRandom(1))
        for record in self.driver.log:
            # From the bytes alone, as another broker would.
            twin.replay(CoordinatorRecord(*record))
        return twin.groups

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if not hasattr(self, "driver"):
            return
        group = self.driver.shard.groups.get("g")
        owners: dict[Partition, str] = {}
        for client in self.clients.values():
            if group is None or client.member_id not in group.members:
                continue
            for partition in client.owned:
                other = owners.setdefault(partition, client.member_id)
                assert other == client.member_id, partition

    def teardown(self) -> None:
        """Everything heals: those who are there beat every five seconds, and do what they are told."""
        if not hasattr(self, "driver"):
            return
        for _ in range(25):
            self.driver.pass_ms(5_000)
            for client in self.clients.values():
                self.heartbeat(client)
                self.no_partition_has_two_owners()
                client.owned -= client.revoking
                client.says_all = client.says_all or bool(client.revoking)
                client.revoking.clear()
        group = self.driver.shard.groups.get("g")
        if group is None:
            return
        assert (GroupState.STABLE if self.clients else GroupState.EMPTY) is group.state
        assert sorted(self.clients) == sorted(group.members)
        for client in self.clients.values():
            assert group.targets.get(client.member_id, {}) == as_assignment(client.owned)
        wanted = {name for member in group.members.values() for name in group.topics_of(member.said)}
        topics = [self.driver.topics[name] for name in wanted if name in self.driver.topics]
        expected = {(topic.topic_id, p) for topic in topics for p in range(topic.partition_count)}
        assert expected == {partition for client in self.clients.values() for partition in client.owned}


TestConsumerGroups = ConsumerGroupsMachine.TestCase
TestConsumerGroups.settings = effort(80, 50)
