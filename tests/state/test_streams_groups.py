"""Streams groups against clients that lose responses, go silent, crash and come back, and a coordinator that does.

A client here does what a real one must: it keeps a task until it has really given it up, reports what it owns, and
drops everything when it is fenced. All along, no two clients that the group counts as members run the same active task,
no process has a task twice, epochs never go back, and what is rebuilt from the log, compacted or not, equals what is in
memory. Left alone at last, every task is active exactly once, and has as many standby tasks as there are processes for.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from ottla.coordination.groups.streams.group import StreamsGroup
from ottla.coordination.groups.streams.groups_state import StreamsGroups
from ottla.coordination.groups.streams.requests import GroupState, StatusCode, StreamsGroupConfig
from ottla.coordination.groups.streams.tasks import NOTHING, TaskId, as_tasks, task_ids
from ottla.model.error_codes import ErrorCode
from tests.effort import effort
from tests.state.group_clients import FENCED, GroupClientsMachine
from tests.unit.coordination.streams_group_driver import CHANGELOG, COUNTING, REPARTITION, Driver


@dataclass(slots=True)
class Client:
    """A thread of an application. `active` and `standby` are what it really works on; what is in `told` is to stay."""

    member_id: str
    process_id: str
    epoch: int = 0
    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)
    told_active: set[TaskId] = field(default_factory=set)
    told_standby: set[TaskId] = field(default_factory=set)
    says_all: bool = True

    def reset(self) -> None:
        self.epoch = 0
        for tasks in (self.active, self.standby, self.told_active, self.told_standby):
            tasks.clear()
        self.says_all = True

    @property
    def is_late(self) -> bool:
        return not (self.active <= self.told_active and self.standby <= self.told_standby)

    def give_up(self) -> None:
        self.active &= self.told_active
        self.standby &= self.told_standby
        self.says_all = True


class StreamsGroupsMachine(GroupClientsMachine):
    """One group, up to six clients in up to three processes."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: dict[str, Client] = {}

    @initialize(
        interval_ms=st.sampled_from([0, 1_000]),
        delay_ms=st.sampled_from([0, 3_000]),
        replicas=st.integers(0, 2),
        processes=st.lists(st.sampled_from("abc"), min_size=1, max_size=4),
    )
    def start(self, interval_ms: int, delay_ms: int, replicas: int, processes: list[str]) -> None:
        config = StreamsGroupConfig(
            assignment_interval_ms=interval_ms, initial_rebalance_delay_ms=delay_ms, standby_replicas=replicas
        )
        self.driver = Driver(config, topics={"words": 3})
        for process_id in processes:
            self.appear(process_id)
            self.all_beat([])

    # What clients do

    @precondition(lambda self: len(self.clients) < 6)
    @rule(process_id=st.sampled_from("abc"))
    def appear(self, process_id: str) -> None:
        self.names += 1
        self.clients[f"m{self.names}"] = Client(f"m{self.names}", process_id)

    def heartbeat(self, client: Client, *, is_lost: bool = False) -> None:
        fields: dict[str, Any] = {}
        if client.epoch == 0:
            fields = {"rebalance_timeout_ms": 30_000, "topology": COUNTING, "process_id": client.process_id}
        if client.says_all or client.epoch == 0:
            fields["active_tasks"] = as_tasks(client.active)
            fields["standby_tasks"] = as_tasks(client.standby)
            fields["warmup_tasks"] = {}
        response = self.driver.beat(client.member_id, client.epoch, **fields)
        if is_lost:
            client.says_all = True
            return
        if response.error in FENCED:
            client.reset()
            return
        if response.error is ErrorCode.INVALID_REQUEST:
            # A source topic was deleted and made again with fewer partitions: the client's tasks do not exist any more.
            assert "Number of tasks" in str(response.error_message), response
            client.reset()
            return
        assert ErrorCode.NONE is response.error, response
        assert response.member_epoch >= client.epoch
        client.epoch = response.member_epoch
        client.says_all = False
        if response.tasks is not None:
            client.told_active = set(task_ids(response.tasks.active))
            client.told_standby = set(task_ids(response.tasks.standby))
            client.active |= client.told_active
            client.standby |= client.told_standby
        codes = {status.code for status in response.statuses}
        assert (StatusCode.MISSING_INTERNAL_TOPICS in codes) == bool(response.missing_topics)
        counts = {topic.name: topic.partitions for topic in response.missing_topics}
        if counts:
            self.driver.add_topics(counts)

    @precondition(lambda self: any(client.is_late for client in self.clients.values()))
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        late = [client.member_id for client in self.clients.values() if client.is_late]
        self.clients[data.draw(st.sampled_from(late))].give_up()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = self.pick(data)
        if client.epoch > 0:
            self.driver.beat(client.member_id, -1)
        del self.clients[client.member_id]

    # What happens to all

    @rule(ms=st.sampled_from([1, 999, 1_000, 3_000, 5_000, 15_000, 31_000]))
    def wait(self, ms: int) -> None:
        self.driver.pass_ms(ms)

    @rule(replicas=st.integers(0, 2))
    def change_config(self, replicas: int) -> None:
        config = self.driver.config
        self.driver.config = StreamsGroupConfig(
            assignment_interval_ms=config.assignment_interval_ms,
            initial_rebalance_delay_ms=config.initial_rebalance_delay_ms,
            standby_replicas=replicas,
        )

    @rule(name=st.sampled_from(["words", REPARTITION, CHANGELOG]))
    def delete_topic(self, name: str) -> None:
        self.driver.set_topics({key: topic for key, topic in self.driver.topics.items() if key != name})

    @rule(count=st.integers(1, 4))
    def create_source(self, count: int) -> None:
        if "words" not in self.driver.topics:
            # Internal topics of another size would be wrong, so that operators delete them too.
            self.driver.set_topics({})
            self.driver.add_topics({"words": count})

    # What must hold

    def replayed(self) -> dict[str, StreamsGroup]:
        twin = StreamsGroups(lambda group_id: self.driver.config)
        for record in self.driver.log:
            twin.replay(record)
        return twin.groups

    @invariant()
    def no_task_has_two_owners(self) -> None:
        if not hasattr(self, "driver"):
            return
        group = self.driver.shard.groups.get("g")
        owners: dict[TaskId, str] = {}
        in_processes: dict[tuple[str, TaskId], str] = {}
        for client in self.clients.values():
            if group is None or client.member_id not in group.members:
                continue
            for task in client.active:
                assert client.member_id == owners.setdefault(task, client.member_id), task
            assert client.active.isdisjoint(client.standby)
            for task in client.active | client.standby:
                key = (client.process_id, task)
                assert client.member_id == in_processes.setdefault(key, client.member_id), key

    def teardown(self) -> None:
        """Everything heals: those who are there beat every five seconds, and do what they are told."""
        if not hasattr(self, "driver"):
            return
        self.create_source(3)
        for _ in range(25):
            self.driver.pass_ms(5_000)
            for client in self.clients.values():
                self.heartbeat(client)
                self.no_task_has_two_owners()
                if client.is_late:
                    client.give_up()
        group = self.driver.shard.groups.get("g")
        if group is None:
            return
        assert (GroupState.STABLE if self.clients else GroupState.EMPTY) is group.state
        assert sorted(self.clients) == sorted(group.members)
        if not self.clients:
            return
        for client in self.clients.values():
            target = group.targets.get(client.member_id, NOTHING)
            assert (target.active, target.standby) == (as_tasks(client.active), as_tasks(client.standby))
        count = self.driver.topics["words"].partition_count
        everything = sorted(TaskId(subtopology_id, at) for subtopology_id in "01" for at in range(count))
        assert everything == sorted(task for client in self.clients.values() for task in client.active)
        processes = {client.process_id for client in self.clients.values()}
        copies = min(self.driver.config.standby_replicas, len(processes) - 1)
        stateful = sorted([TaskId("1", at) for at in range(count)] * copies)
        assert stateful == sorted(task for client in self.clients.values() for task in client.standby)
        loads = [len(client.active) for client in self.clients.values()]
        assert copies or max(loads) - min(loads) <= max(2, len(self.clients) - len(processes) + 1), loads


TestStreamsGroups = StreamsGroupsMachine.TestCase
TestStreamsGroups.settings = effort(25, 40)
