"""Drives the machine of streams groups as its runtime does: applies writes, keeps the log, hands out responses."""

from collections.abc import Hashable
from typing import Any, Final
from uuid import UUID

from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.groups.streams.group import StreamsGroup
from ottla.coordination.groups.streams.groups_state import StreamsGroups
from ottla.coordination.groups.streams.requests import StreamsGroupConfig, StreamsHeartbeat, StreamsHeartbeatResponse
from ottla.coordination.groups.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, Write

START_MS: Final = 1_000_000
REPARTITION, CHANGELOG = "app-by-key-repartition", "app-counts-changelog"
COUNTING: Final = Topology(
    epoch=0,
    subtopologies=(
        Subtopology(subtopology_id="0", source_topics=("words",), repartition_sink_topics=(REPARTITION,)),
        Subtopology(
            subtopology_id="1",
            repartition_source_topics=(InternalTopic(name=REPARTITION, configs=(("retention.ms", "-1"),)),),
            changelog_topics=(InternalTopic(name=CHANGELOG, configs=(("cleanup.policy", "compact"),)),),
            copartition_groups=(CopartitionGroup(repartition_source_topics=(0,)),),
        ),
    ),
)
"""Reads `words`, repartitions it, and keeps state."""
PROMPT: Final = StreamsGroupConfig(initial_rebalance_delay_ms=0, assignment_interval_ms=0)


class Driver:
    """A shard with its log. Time stands still unless `pass_ms` is called."""

    def __init__(self, config: StreamsGroupConfig = PROMPT, topics: dict[str, int] | None = None) -> None:
        self.config = config
        self.now_ms = START_MS
        self.log: list[CoordinatorRecord] = []
        self._ids = 0
        self.topics: dict[str, Topic] = {}
        self.shard = self._machine()
        self.add_topics({"words": 2, REPARTITION: 2, CHANGELOG: 2} if topics is None else topics)

    def _machine(self) -> StreamsGroups:
        shard = StreamsGroups(lambda group_id: self.config)
        shard.on_metadata(self.topics)
        return shard

    def group(self, group_id: str = "g") -> StreamsGroup:
        return self.shard.groups[group_id]

    def run(self, effects: list[Effect]) -> dict[Hashable, Any]:
        """Carries the effects out; answers the responses by token."""
        responses = {}
        for effect in effects:
            match effect:
                case Respond(token, response):
                    responses[token] = response
                case Write(records, answers):
                    self.log += records
                    for record in records:
                        assert self.shard.replay(record)
                    responses |= {answer.token: answer.response for answer in answers}
        self.shard.check()
        return responses

    def beat(self, member_id: str, epoch: int, **fields: Any) -> StreamsHeartbeatResponse:
        """A heartbeat as it is, with nothing filled in."""
        values = {"group_id": "g", "client_id": "c", "client_host": "/h", **fields}
        request = StreamsHeartbeat(**values, member_id=member_id, member_epoch=epoch)
        response = self.run(self.shard.heartbeat(request, self.now_ms, "t"))["t"]
        assert isinstance(response, StreamsHeartbeatResponse)
        return response

    def join(self, member_id: str, **fields: Any) -> StreamsHeartbeatResponse:
        """A member's first heartbeat."""
        full = {
            "rebalance_timeout_ms": 60_000,
            "topology": COUNTING,
            "process_id": f"process of {member_id}",
            "active_tasks": {},
            "standby_tasks": {},
            "warmup_tasks": {},
        }
        return self.beat(member_id, 0, **{**full, **fields})

    def pass_ms(self, ms: int) -> None:
        """Time passes, and what is due is done."""
        self.now_ms += ms
        self.run(self.shard.on_tick(self.now_ms))

    def add_topics(self, counts: dict[str, int]) -> None:
        """Topics are created."""
        self._ids += 1
        made = {name: Topic(UUID(int=self._ids * 100 + at), count) for at, (name, count) in enumerate(counts.items())}
        self.set_topics({**self.topics, **made})

    def set_topics(self, topics: dict[str, Topic]) -> None:
        self.topics = dict(topics)
        self.shard.on_metadata(self.topics)

    def reload(self) -> None:
        """The machine's memory is lost; another is made from the log."""
        self.shard = self._machine()
        for record in self.log:
            assert self.shard.replay(record)
        self.run(self.shard.on_loaded(self.now_ms))
