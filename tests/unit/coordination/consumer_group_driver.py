"""Drives the machine of server-side groups as its runtime does: applies writes, keeps the log, hands out responses."""

from collections.abc import Callable, Hashable
from typing import Any, Final
from uuid import UUID

from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.groups_state import ConsumerGroups
from ottla.coordination.groups.consumer.records import GroupRecord, decode
from ottla.coordination.groups.consumer.requests import (
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
)
from ottla.coordination.groups.group_kind import Topic
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, Write
from ottla.sim.random import SimRandom

FOO: Final = UUID(int=0xF00)
BAR: Final = UUID(int=0xBA4)
BAZ: Final = UUID(int=0xBA5)
TOPICS: Final = {"foo": Topic(FOO, 4), "bar": Topic(BAR, 2)}
START_MS: Final = 1_000_000


class Driver:
    """A shard with its log. Time stands still unless `pass_ms` is called; a target may be computed at any time."""

    def __init__(self, config: ConsumerGroupConfig | None = None, topics: dict[str, Topic] | None = None) -> None:
        self.config = config or ConsumerGroupConfig(assignment_interval_ms=0)
        self.now_ms = START_MS
        # One for all lives of the machine: ids are never given twice.
        self._random = SimRandom(1)
        self.log: list[CoordinatorRecord] = []
        self._seen = 0
        self.topics = dict(TOPICS if topics is None else topics)
        self.shard = self._machine()

    def _machine(self) -> ConsumerGroups:
        shard = ConsumerGroups(self.config, self._random)
        shard.on_metadata(self.topics)
        return shard

    def group(self, group_id: str = "g") -> ConsumerGroup:
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
                        # What the machine remembers of a record is what its bytes say.
                        assert decode(CoordinatorRecord(*record)) == decode(record)
                        assert self.shard.replay(record)
                    responses |= {answer.token: answer.response for answer in answers}
        self.shard.check()
        return responses

    def beat(
        self, member_id: str, epoch: int, may_describe: Callable[[str], bool] = lambda name: True, **fields: Any
    ) -> ConsumerHeartbeatResponse:
        """A heartbeat as it is, with nothing filled in."""
        request = ConsumerHeartbeat(
            **{"group_id": "g", "client_id": "c", "client_host": "/h", **fields, "member_id": member_id},
            member_epoch=epoch,
        )
        response = self.run(self.shard.heartbeat(request, self.now_ms, "t", may_describe))["t"]
        assert isinstance(response, ConsumerHeartbeatResponse)
        return response

    def join(self, member_id: str, *topics: str, **fields: Any) -> ConsumerHeartbeatResponse:
        """A member's first heartbeat."""
        full = {"topic_names": topics or ("foo",), "rebalance_timeout_ms": 60_000, "owned_partitions": {}}
        return self.beat(member_id, 0, **{**full, **fields})

    def pass_ms(self, ms: int) -> None:
        """Time passes, and what is due is done."""
        self.now_ms += ms
        self.run(self.shard.on_tick(self.now_ms))

    def set_topics(self, topics: dict[str, Topic]) -> None:
        self.topics = dict(topics)
        self.shard.on_metadata(self.topics)

    def reload(self) -> None:
        """The machine's memory is lost; another is made from the log."""
        self.shard = self._machine()
        for record in self.log:
            assert self.shard.replay(CoordinatorRecord(*record))
        self.run(self.shard.on_loaded(self.now_ms))

    def written(self) -> list[GroupRecord]:
        """The records since the last look, taken apart."""
        decoded = [decode(CoordinatorRecord(*record)) for record in self.log[self._seen :]]
        self._seen = len(self.log)
        return [record for record in decoded if record is not None]
