"""Drives a whole shard of `__consumer_offsets`, of classic and server-side groups, as its runtime does."""

from collections.abc import Hashable, Sequence
from typing import Any, Final

from ottla.coordination.groups.consumer.group import ConsumerGroup
from ottla.coordination.groups.consumer.requests import (
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
)
from ottla.coordination.groups.group_shard_state import GroupShard
from ottla.coordination.groups.requests import (
    GroupSettings,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    MemberAssignment,
    MemberProtocol,
    SyncRequest,
    SyncResponse,
)
from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, TransactionalWrite
from ottla.coordination.runtime.record_fields import FieldWriter
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerId
from ottla.protocol.consumer_protocol import PartitionsByTopic, read_assignment
from ottla.sim.random import SimRandom
from tests.unit.coordination.consumer_group_driver import START_MS, TOPICS

NO_DELAY: Final = GroupSettings(initial_rebalance_delay_ms=0)


def subscription(*topics: str, owned: PartitionsByTopic | None = None, version: int = 1) -> bytes:
    """What a classic consumer says when it joins."""
    fields = FieldWriter(version)
    fields.count(len(topics))
    for topic in topics:
        fields.text(topic)
    fields.int32(-1)
    if version >= 1:
        _write_partitions(fields, owned or {})
    return fields.finish()


def assignment(partitions: PartitionsByTopic, user_data: bytes | None = None) -> bytes:
    """What a classic leader assigns."""
    fields = FieldWriter(1)
    _write_partitions(fields, partitions)
    if user_data is None:
        fields.int32(-1)
    else:
        fields.blob(user_data)
    return fields.finish()


def _write_partitions(fields: FieldWriter, partitions: PartitionsByTopic) -> None:
    fields.count(len(partitions))
    for topic, numbers in partitions.items():
        fields.text(topic)
        fields.count(len(numbers))
        for number in numbers:
            fields.int32(number)


class ShardDriver:
    """A shard with its log; responses wait in `answers` by token until they are looked at."""

    def __init__(self, config: ConsumerGroupConfig | None = None) -> None:
        self.config = config or ConsumerGroupConfig(assignment_interval_ms=0)
        self.now_ms = START_MS
        # One for all lives of the machine: ids are never given twice.
        self._random = SimRandom(1)
        self.log: list[tuple[CoordinatorRecord, ProducerId]] = []
        self.answers: dict[Hashable, Any] = {}
        self.shard = self._machine()

    def _machine(self) -> GroupShard:
        shard = GroupShard(NO_DELAY, self.config, self._random)
        shard.on_metadata(TOPICS, self.now_ms)
        return shard

    @property
    def consumers(self) -> dict[str, ConsumerGroup]:
        return self.shard.consumers.groups

    def run(self, effects: Sequence[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Respond):
                self.answers[effect.token] = effect.response
                continue
            producer_id = effect.producer_id if isinstance(effect, TransactionalWrite) else NO_PRODUCER_ID
            for record in effect.records:
                self.log.append((record, producer_id))
                assert self.shard.replay(record, producer_id)
            self.answers |= {answer.token: answer.response for answer in effect.responses}
        self.shard.check()

    def ask(self, effects: Sequence[Any], token: Hashable = "t") -> Any:
        self.run(effects)
        return self.answers.pop(token)

    def reload(self) -> None:
        self.shard = self._machine()
        for record, producer_id in self.log:
            assert self.shard.replay(CoordinatorRecord(*record), producer_id)
        self.run(self.shard.on_loaded(self.now_ms))

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        for _ in range(10):
            deadline = self.shard.next_deadline()
            if deadline is None or deadline > self.now_ms:
                return
            self.run(self.shard.on_tick(self.now_ms))

    # New-style members

    def beat(self, member_id: str, epoch: int, **fields: Any) -> ConsumerHeartbeatResponse:
        request = ConsumerHeartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        response = self.ask(self.shard.consumer_heartbeat(request, self.now_ms, "t"))
        assert isinstance(response, ConsumerHeartbeatResponse)
        return response

    def consume(self, member_id: str, *topics: str, **fields: Any) -> ConsumerHeartbeatResponse:
        full = {"topic_names": topics or ("foo",), "rebalance_timeout_ms": 60_000, "owned_partitions": {}}
        return self.beat(member_id, 0, **{**full, **fields})

    # Old-style members

    def join(self, member_id: str, metadata: bytes, token: Hashable = "t", **fields: Any) -> JoinResponse | None:
        """The response, or None if the join waits."""
        protocols = (MemberProtocol("range", metadata),)
        request = JoinRequest(
            **{
                "group_id": "g",
                "member_id": member_id,
                "session_timeout_ms": 30_000,
                "rebalance_timeout_ms": 60_000,
                "protocol_type": "consumer",
                "protocols": protocols,
                **fields,
            }
        )
        self.run(self.shard.join(request, self.now_ms, token))
        response = self.answers.pop(token, None)
        assert response is None or isinstance(response, JoinResponse)
        return response

    def sync(
        self, member_id: str, generation: int, assignments: tuple[MemberAssignment, ...] = (), **fields: Any
    ) -> SyncResponse:
        request = SyncRequest(
            group_id="g", member_id=member_id, generation=generation, assignments=assignments, **fields
        )
        response = self.ask(self.shard.sync(request, self.now_ms, "t"))
        assert isinstance(response, SyncResponse)
        return response

    def synced(self, member_id: str, generation: int) -> PartitionsByTopic:
        response = self.sync(member_id, generation)
        assert ErrorCode.NONE is response.error
        return read_assignment(response.assignment).partitions

    def classic_beat(self, member_id: str, generation: int, **fields: Any) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", member_id=member_id, generation=generation, **fields)
        error = self.ask(self.shard.heartbeat(request, self.now_ms, "t")).error
        assert isinstance(error, ErrorCode)
        return error

    def stable_classic(self, *, partitions: PartitionsByTopic | None = None, user_data: bytes | None = None) -> str:
        """A stable classic group of one, which has all of foo; answers its member's id."""
        known = self.join("", subscription("foo"))
        assert known is not None
        assert ErrorCode.MEMBER_ID_REQUIRED is known.error
        joined = self.join(known.member_id, subscription("foo"))
        if joined is None:
            self.pass_ms(0)
            joined = self.answers.pop("t")
        everything = assignment({"foo": (0, 1, 2, 3)} if partitions is None else partitions, user_data)
        self.sync(joined.member_id, joined.generation, ((joined.member_id, everything),))
        assert isinstance(joined.member_id, str)
        return joined.member_id
