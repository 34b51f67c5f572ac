"""Carries out what a whole shard of `__consumer_offsets` answers, of groups of both kinds, as the runtime does.

Like `GroupRig`, with the topics of a cluster, and true to what a failed write means: what follows it is left out.
"""

from collections.abc import Iterable
from uuid import UUID

from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
from ottla.coordination.groups.group_kind import Topic, Topics
from ottla.coordination.groups.group_shard_state import GroupShard
from ottla.coordination.groups.requests import GroupEffect
from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, TransactionalWrite
from ottla.model.ids import NO_PRODUCER_ID
from ottla.sim.random import SimRandom
from tests.unit.coordination.group_rig import GroupRig, Logged


class ConsumerOffsetsRig(GroupRig):
    """A shard of both kinds of groups, its log, its clock, the topics, and every response that was given."""

    shard: GroupShard

    def __init__(self, config: ConsumerGroupConfig | None = None) -> None:
        self.config = config or ConsumerGroupConfig()
        self.topics: Topics = {}
        self._topic_ids = 0
        super().__init__()

    def _loaded(self) -> GroupShard:
        self.lives += 1
        self.shard = GroupShard(self.settings, self.config, SimRandom(self.lives))
        self.shard.on_metadata(self.topics, self.now_ms)
        for entry in self.log:
            if isinstance(entry, Logged):
                self.shard.replay(CoordinatorRecord(*entry.record), entry.producer_id)
            else:
                self.shard.on_marker(entry.producer_id, commit=entry.commit)
        self.run(self.shard.on_loaded(self.now_ms))
        return self.shard

    def run(self, effects: Iterable[GroupEffect]) -> None:
        """Carries effects out in order."""
        for effect in effects:
            if isinstance(effect, Respond):
                self._respond(effect)
                continue
            if self.writes_fail and effect.records:
                for response in effect.on_failure:
                    self._respond(response)
                break
            producer_id = effect.producer_id if isinstance(effect, TransactionalWrite) else NO_PRODUCER_ID
            for record in effect.records:
                self.log.append(Logged(record, producer_id))
                assert self.shard.replay(record, producer_id)
            for response in effect.responses:
                self._respond(response)
        self.shard.check()

    def set_topics(self, counts: dict[str, int]) -> None:
        """The cluster has these topics now, with so many partitions; one that is gone and comes back is another."""
        topics = {}
        for name, count in counts.items():
            known = self.topics.get(name)
            if known is None:
                self._topic_ids += 1
            topics[name] = Topic(UUID(int=self._topic_ids) if known is None else known.topic_id, count)
        gone = [name for name in self.topics if name not in topics]
        self.topics = topics
        self.run(self.shard.on_metadata(topics, self.now_ms))
        self.run(self.shard.on_topics_deleted(gone, self.now_ms))

    @property
    def group(self) -> ConsumerGroup | None:
        """The group, while it is one of the server's."""
        return self.shard.consumers.groups.get("g")

    def state(self, group_id: str = "g") -> str:
        """Its state, and of which kind it is."""
        if self.group is not None:
            return f"{self.group.state.value}, server-side"
        state = super().state(group_id)
        return state if state == "Dead" else f"{state}, classic"
