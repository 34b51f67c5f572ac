"""Carries out what a group shard answers, as the runtime does: writes are logged and replayed, then responses given.

The clock stands still unless told; `after` ticks at each deadline on the way. `crash` forgets everything but the log.
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from msgspec import structs

from ottla.coordination.groups.consumer.requests import ConsumerGroupConfig
from ottla.coordination.groups.group_shard_state import GroupShard
from ottla.coordination.groups.requests import (
    FetchedOffset,
    GroupEffect,
    GroupSettings,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeavingMember,
    MemberProtocol,
    NewOffset,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncRequest,
    TransactionalCommitRequest,
    WantedPartition,
)
from ottla.coordination.runtime.effects import CoordinatorRecord, Respond, TransactionalWrite, Write
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerEpoch, ProducerId
from ottla.sim.random import SimRandom


def subscription(*topics: str) -> bytes:
    """A consumer's metadata: version, topics, and what newer versions add."""
    names = b"".join(len(topic.encode()).to_bytes(2) + topic.encode() for topic in topics)
    return (1).to_bytes(2) + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff" + bytes(4)


class Marker(NamedTuple):
    """The end of a transaction, in the log."""

    producer_id: ProducerId
    commit: bool


class Logged(NamedTuple):
    """A record in the log, and the producer whose transaction it belongs to, if any."""

    record: CoordinatorRecord
    producer_id: ProducerId


class GroupRig:
    """A shard, its log, its clock, and every response that was given."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.log: list[Logged | Marker] = []
        self.now_ms = 1_000_000
        self.responses: dict[Hashable, Any] = {}
        self.waiting: dict[Hashable, Any] = {}
        self.writes_fail = False
        self.lives = 0
        self._token = 0
        self.shard = self._loaded()

    # The runtime

    def _loaded(self) -> GroupShard:
        self.lives += 1
        shard = GroupShard(self.settings, ConsumerGroupConfig(), SimRandom(self.lives))
        for entry in self.log:
            match entry:
                case Logged():
                    shard.replay(CoordinatorRecord(*entry.record), entry.producer_id)
                case Marker():
                    shard.on_marker(entry.producer_id, commit=entry.commit)
        self.shard = shard
        self.run(shard.on_loaded(self.now_ms))
        return shard

    def crash(self) -> None:
        """Another broker takes over; who waited never hears."""
        self.waiting.clear()
        self._loaded()

    def run(self, effects: Iterable[GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case Respond():
                    self._respond(effect)
                case Write() | TransactionalWrite():
                    producer_id = NO_PRODUCER_ID if isinstance(effect, Write) else effect.producer_id
                    fails = self.writes_fail and effect.records
                    for record in () if fails else effect.records:
                        self.log.append(Logged(record, producer_id))
                        self.shard.replay(record, producer_id)
                    for response in effect.on_failure if fails else effect.responses:
                        self._respond(response)
        self.shard.check()

    def _respond(self, effect: Respond) -> None:
        assert effect.token in self.waiting, f"answered twice: {effect}"
        del self.waiting[effect.token]
        self.responses[effect.token] = effect.response

    def ask(self, method: str, request: Any) -> Hashable:
        """Hands a request in; its token."""
        self._token += 1
        self.waiting[self._token] = request
        self.run(getattr(self.shard, method)(request, self.now_ms, self._token))
        return self._token

    def answer(self, method: str, request: Any) -> Any:
        """The response to a request that does not wait."""
        return self.responses[self.ask(method, request)]

    def after(self, ms: int) -> None:
        """Time passes, with a tick at each deadline."""
        end_ms = self.now_ms + ms
        while (deadline_ms := self.shard.next_deadline()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(self.shard.on_tick(self.now_ms))
        self.now_ms = end_ms

    def marker(self, producer_id: int, *, commit: bool) -> None:
        """A transaction ends."""
        self.log.append(Marker(ProducerId(producer_id), commit))
        self.shard.on_marker(ProducerId(producer_id), commit=commit)
        self.shard.check()

    # Shorter ways to ask

    def request(self, member_id: str = "", instance_id: str | None = None, **changes: Any) -> JoinRequest:
        request = JoinRequest(
            group_id="g",
            member_id=member_id,
            instance_id=instance_id,
            client_id="c",
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(MemberProtocol("range", subscription("t")),),
            requires_member_id=False,
        )
        return structs.replace(request, **changes)

    def join(self, member_id: str = "", instance_id: str | None = None, **changes: Any) -> Hashable:
        return self.ask("join", self.request(member_id, instance_id, **changes))

    def joined(self, token: Hashable) -> JoinResponse:
        response = self.responses[token]
        assert isinstance(response, JoinResponse)
        return response

    def sync(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, /, **changes: Any
    ) -> Hashable:
        request = SyncRequest(
            group_id="g",
            generation=generation,
            member_id=member_id,
            assignments=tuple((assignments or {}).items()),
        )
        return self.ask("sync", structs.replace(request, **changes))

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation=generation, member_id=member_id, instance_id=instance_id)
        error = self.answer("heartbeat", request).error
        assert isinstance(error, ErrorCode)
        return error

    def leave(self, *member_ids: str) -> Any:
        members = tuple(LeavingMember(member_id=member_id) for member_id in member_ids)
        return self.answer("leave", LeaveRequest(group_id="g", members=members))

    def commit(self, offset: int, generation: int = -1, member_id: str = "", **changes: Any) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id="g",
            generation=generation,
            member_id=member_id,
            offsets=(NewOffset(topic="t", partition=0, offset=offset),),
        )
        error = self.answer("commit_offsets", replace(request, **changes)).partitions[0].error
        assert isinstance(error, ErrorCode)
        return error

    def commit_in_transaction(self, offset: int, producer_id: int = 1, **changes: Any) -> ErrorCode:
        request = TransactionalCommitRequest(
            group_id="g",
            transactional_id="x",
            producer_id=ProducerId(producer_id),
            producer_epoch=ProducerEpoch(0),
            offsets=(NewOffset(topic="t", partition=0, offset=offset),),
        )
        error = self.answer("commit_in_transaction", replace(request, **changes)).partitions[0].error
        assert isinstance(error, ErrorCode)
        return error

    def offset(self, topic: str = "t", partition: int = 0, *, require_stable: bool = False) -> int | ErrorCode:
        """The committed offset, or why there is none to tell."""
        request = OffsetFetchRequest(
            group_id="g", partitions=(WantedPartition(topic, partition),), require_stable=require_stable
        )
        fetched: FetchedOffset = self.answer("fetch_offsets", request).offsets[0]
        return fetched.offset if fetched.error is ErrorCode.NONE else fetched.error

    def state(self, group_id: str = "g") -> str:
        return self.shard.describe_group(group_id).state

    def stable(self, count: int = 1) -> list[str]:
        """A stable group of that many members, the leader first; each is assigned its number."""
        tokens = [self.join() for _ in range(count)]
        self.after(self.settings.initial_rebalance_delay_ms * (1 if count == 1 else 2))
        members = [self.joined(token).member_id for token in tokens]
        assignments = {member_id: bytes([index]) for index, member_id in enumerate(members)}
        generation = self.joined(tokens[0]).generation
        for member_id in members[1:]:
            self.sync(member_id, generation)
        self.sync(members[0], generation, assignments)
        assert self.state() == "Stable"
        return members

    def completing(self, count: int = 2) -> list[str]:
        """A group whose members know their generation, and wait for the leader; it comes first."""
        tokens = [self.join() for _ in range(count)]
        self.after(2 * self.settings.initial_rebalance_delay_ms)
        assert self.state() == "CompletingRebalance"
        return [self.joined(token).member_id for token in tokens]

    def sync_all(self, generation: int, leader: str, others: Iterable[str] = ()) -> None:
        """Everyone syncs, the leader last; each is assigned its own id."""
        members = [*others, leader]
        for member_id in members:
            assignments = {each: each.encode() for each in members} if member_id == leader else None
            self.sync(member_id, generation, assignments)
