"""Share groups against members that lose responses, go silent and come back, topics that grow and are deleted, and a
share coordinator that does not always answer.

All along the group's records rebuild what is in memory, epochs never go back, and no member is assigned a partition
without state. Left alone at last, every partition of a subscribed topic has a member, and every member has its target.
"""

from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.groups.share.groups_state import ShareGroups
from ottla.coordination.groups.share.requests import (
    InitializeShareState,
    ShareGroupConfig,
    ShareHeartbeat,
    ShareHeartbeatResponse,
)
from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, Write
from ottla.model.error_codes import ErrorCode
from tests.effort import effort

MEMBERS = ("a", "b", "c", "d")
TOPICS = ("t1", "t2", "t3")
SUBSCRIPTIONS = (("t1",), ("t1", "t2"), ("t2", "t3"), ("t3",))
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
CONFIG = ShareGroupConfig(assignment_interval_ms=0, initialize_retry_interval_ms=3_000, session_timeout_ms=10_000)


class ShareGroupMachine(RuleBasedStateMachine):
    """One group, its log, and its members as they see themselves."""

    @initialize()
    def begin(self) -> None:
        self.now_ms = 1_000
        self.log: list[CoordinatorRecord] = []
        self.ids = 0
        self.topics: dict[str, Topic] = {}
        self.epochs: dict[str, int] = {}
        self.subscriptions: dict[str, tuple[str, ...]] = {}
        self.asked: list[InitializeShareState] = []
        self.group_epoch = 0
        self.groups = ShareGroups(lambda group_id: CONFIG)
        self.change_topic("t1", 2)

    def load(self) -> None:
        self.groups = ShareGroups(lambda group_id: CONFIG)
        for record in self.log:
            assert self.groups.replay(record)
        self.groups.on_metadata(dict(self.topics))
        self.groups.on_loaded(self.now_ms)

    def run(self, effects: list[Any]) -> Any:
        answer = None
        for effect in effects:
            match effect:
                case Write(records, responses, _):
                    self.log += records
                    for record in records:
                        assert self.groups.replay(record)
                    answer = responses[0].response if responses else answer
                case Respond(_, response):
                    answer = response
                case InitializeShareState():
                    self.asked.append(effect)
        return answer

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 4))
    def change_topic(self, name: str, count: int) -> None:
        known = self.topics.get(name)
        if known is None:
            self.ids += 1
            self.topics[name] = Topic(UUID(int=self.ids), count)
        else:
            self.topics[name] = known._replace(partition_count=max(known.partition_count, count))
        self.tell_topics()

    @rule(name=st.sampled_from(TOPICS))
    def delete_topic(self, name: str) -> None:
        self.topics.pop(name, None)
        self.tell_topics()

    def tell_topics(self) -> None:
        self.groups.on_metadata(dict(self.topics))
        self.run(list(self.groups.forget_deleted_topics()))

    @rule(
        member=st.sampled_from(MEMBERS),
        names=st.sampled_from([None, *SUBSCRIPTIONS]),
        is_lost=st.integers(0, 4).map(lambda each: each == 0),
    )
    def beat(self, member: str, names: tuple[str, ...] | None, is_lost: bool) -> None:
        epoch = self.epochs.get(member, 0)
        if names is None and epoch == 0:
            names = self.subscriptions.get(member, ("t1",))
        request = ShareHeartbeat(group_id="g", member_id=member, member_epoch=epoch, topic_names=names)
        answer = self.run(list(self.groups.heartbeat(request, self.now_ms, "t")))
        assert isinstance(answer, ShareHeartbeatResponse)
        if answer.error in FENCED:
            self.epochs.pop(member, None)
            return
        assert ErrorCode.NONE is answer.error, answer.error_message
        assert answer.member_epoch >= epoch
        if names is not None:
            self.subscriptions[member] = names
        if not is_lost:
            self.epochs[member] = answer.member_epoch

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        request = ShareHeartbeat(group_id="g", member_id=member, member_epoch=-1)
        answer = self.run(list(self.groups.heartbeat(request, self.now_ms, "t")))
        assert answer.error in (ErrorCode.NONE, *FENCED)
        self.epochs.pop(member, None)

    @rule(outcome=st.sampled_from(["done", "failed", "lost"]))
    def initialized(self, outcome: str) -> None:
        if not self.asked:
            return
        effect = self.asked.pop(0)
        error = ErrorCode.NONE if outcome == "done" else ErrorCode.COORDINATOR_NOT_AVAILABLE
        if outcome != "lost":
            outcomes = {topic_id: dict.fromkeys(indexes, error) for topic_id, indexes in effect.topics.items()}
            self.run(list(self.groups.on_state_initialized(effect.group_id, outcomes)))

    @rule(span_ms=st.integers(1, 4_000))
    def wait(self, span_ms: int) -> None:
        self.now_ms += span_ms
        self.run(list(self.groups.on_tick(self.now_ms)))

    @rule()
    def crash(self) -> None:
        before = self.snapshot()
        self.asked.clear()
        self.load()
        assert before == self.snapshot()

    def snapshot(self) -> object:
        return {
            group_id: (group.epoch, group.target_epoch, group.members, group.targets, group.states)
            for group_id, group in self.groups.groups.items()
        }

    @invariant()
    def holds(self) -> None:
        self.groups.check()
        group = self.groups.groups.get("g")
        if group is not None:
            assert group.epoch >= self.group_epoch
            self.group_epoch = group.epoch

    def teardown(self) -> None:
        """With members that send heartbeats and a share coordinator that answers, everything is assigned."""
        if not hasattr(self, "groups"):
            return
        for _ in range(12):
            self.now_ms += 3_500
            for member_id in MEMBERS:
                self.beat(member=member_id, names=None, is_lost=False)
            while self.asked:
                self.initialized(outcome="done")
            self.holds()
        group = self.groups.groups["g"]
        assert set(MEMBERS) == set(group.members)
        wanted = {
            (topic.topic_id, index)
            for name in group.subscribed_topics()
            if (topic := self.topics.get(name)) is not None
            for index in range(topic.partition_count)
        }
        assigned = [
            (topic_id, index)
            for member in group.members.values()
            for topic_id, indexes in member.assigned.items()
            for index in indexes
        ]
        assert wanted == set(assigned)
        for member in group.members.values():
            assert member.assigned == group.targets.get(member.member_id, {})
            assert group.target_epoch == member.member_epoch
            has_topic = any(name in self.topics for name in member.said.topic_names)
            assert bool(member.assigned) or not has_topic or len(wanted) < len(MEMBERS)


TestShareGroups = ShareGroupMachine.TestCase
TestShareGroups.settings = effort(50, 30)
