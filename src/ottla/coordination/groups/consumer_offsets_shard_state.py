"""One partition of `__consumer_offsets`, whole: classic groups, server-side groups, and the offsets of both.

Pure. Adds the server-side groups to the classic ones and the offsets of `GroupShard`, and decides which of the two a
request belongs to: a server-side group with members answers for its id, everything else is the classic side's. Where
the two meet, a group changes its kind: an empty one when a member of the other kind joins, one with members as
`group.consumer.migration.policy` allows.
"""

from collections.abc import Collection, Hashable
from dataclasses import replace

from ottla.coordination.groups.classic.generations_state import GroupState as ClassicState
from ottla.coordination.groups.classic.generations_state import Timer as ClassicTimer
from ottla.coordination.groups.classic.generations_state import TimerKey as ClassicTimerKey
from ottla.coordination.groups.classic.generations_state import answer_join, answer_sync
from ottla.coordination.groups.classic.group_state import NOT_WRITTEN, ClassicGroup
from ottla.coordination.groups.consumer.decision import Decision
from ottla.coordination.groups.consumer.group import ConsumerGroup, GroupState, Topics
from ottla.coordination.groups.consumer.groups_state import CONSUMER_TYPE, MayDescribe
from ottla.coordination.groups.consumer.requests import (
    MODERN_COMMIT_VERSION,
    CommitVerdict,
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    DescribedConsumerGroup,
)
from ottla.coordination.groups.consumer.views import commit_verdict, describe, fetch_refusal
from ottla.coordination.groups.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ottla.coordination.groups.group_shard_state import GroupShard, Subscribes
from ottla.coordination.groups.mixed_group_state import MixedGroups
from ottla.coordination.groups.records import GroupValue
from ottla.coordination.groups.requests import (
    DeleteGroupRequest,
    DeleteGroupResponse,
    DescribedGroup,
    GroupEffect,
    GroupSettings,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    ListedGroup,
    NewOffset,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionOutcome,
    SyncRequest,
    TransactionalCommitRequest,
    WholeCommitRequest,
)
from ottla.coordination.groups.upgrade import upgrade
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, TransactionalWrite, Write
from ottla.env.ports import Random
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerId
from ottla.model.invariants import violated


class _Consumers(MixedGroups):
    """Tells its shard when a group comes, goes, or becomes a classic one."""

    shard: "ConsumerOffsetsShard"

    def on_created(self, group_id: str) -> None:
        # Offsets that were replayed before it may have made it look like a classic one.
        self.shard.give_up(group_id)

    def on_deleted(self, group_id: str) -> None:
        self.shard.on_consumer_group_deleted(group_id)

    def on_downgraded(self, group_id: str, value: GroupValue, now_ms: int) -> list[Effect]:
        return self.shard.on_downgraded(group_id, value, now_ms)


class ConsumerOffsetsShard(GroupShard):
    """The coordinator of all groups that one partition is responsible for."""

    def __init__(self, settings: GroupSettings, config: ConsumerGroupConfig, random: Random) -> None:
        super().__init__(settings, random, lambda group_id: group_id in self.consumers.groups)
        self.consumers = _Consumers(config, random, self._claim)
        self.consumers.shard = self
        self._adopted: dict[str, int] = {}
        """Groups that are about to become classic, by a record, and since when."""

    # Members

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, now_ms: int, token: Hashable, may_describe: MayDescribe = lambda topic: True
    ) -> list[Effect]:
        """ConsumerGroupHeartbeat."""
        return self.consumers.heartbeat(request, now_ms, token, may_describe)

    def join(self, request: JoinRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """JoinGroup. An empty server-side group makes room for a classic one."""
        group = self.consumers.groups.get(request.group_id)
        if group is None or self._join_refusal(request) is not ErrorCode.NONE:
            return super().join(request, now_ms, token)
        if group.members:
            return self.consumers.join(request, self._new_member_id(request), now_ms, token)
        failure = JoinResponse(error=NOT_WRITTEN, member_id=request.member_id)
        room = Write(self.consumers.deletion_records(request.group_id), on_failure=(Respond(token, failure),))
        return [room, *super().join(request, now_ms, token)]

    def sync(self, request: SyncRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """SyncGroup."""
        if self._with_members(request.group_id) is None:
            return super().sync(request, now_ms, token)
        return self.consumers.sync(request, now_ms, token)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """Heartbeat."""
        if self._with_members(request.group_id) is None:
            return super().heartbeat(request, now_ms, token)
        return self.consumers.classic_heartbeat(request, now_ms, token)

    def leave(self, request: LeaveRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """LeaveGroup."""
        if self._with_members(request.group_id) is None:
            return super().leave(request, now_ms, token)
        return self.consumers.leave(request, now_ms, token)

    def _with_members(self, group_id: str) -> ConsumerGroup | None:
        group = self.consumers.groups.get(group_id)
        return group if group is not None and group.members else None

    # Changing kind

    def _claim(self, group_id: str, now_ms: int) -> Decision | None:
        classic = self._groups.get(group_id)
        if classic is None:
            return None
        decision = upgrade(classic, self.consumers.topics, self.consumers.config)
        decision.on_taken.append(lambda: self._on_upgraded(classic, now_ms))
        for member in decision.group.members.values():
            self.consumers.start_session(group_id, member, now_ms)
        return decision

    def _on_upgraded(self, classic: ClassicGroup, now_ms: int) -> list[Effect]:
        """Whoever waits for the classic group is told to join again, and finds the new one."""
        effects: list[Effect] = []
        for member in classic.members:
            effects += answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            effects += answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        return effects

    def on_downgraded(self, group_id: str, value: GroupValue, now_ms: int) -> list[Effect]:
        """A group is about to be replayed as a classic one: its members' sessions run, and it has to rebalance."""
        for member in value.members:
            key = ClassicTimerKey(ClassicTimer.SESSION, group_id, member.member_id)
            self._deadlines.set(key, now_ms + member.session_timeout_ms)
        self._adopted[group_id] = now_ms
        return []

    def on_consumer_group_deleted(self, group_id: str) -> None:
        """Offsets that it leaves behind belong to a classic group, which has never had members."""
        if self.offsets.partitions(group_id):
            self._group(group_id).is_written = True

    # Offsets

    def commit_offsets(
        self, request: OffsetCommitRequest, now_ms: int, token: Hashable, refusal: ErrorCode | None = None
    ) -> list[Effect]:
        """OffsetCommit. A member of a server-side group may commit some partitions and not others."""
        group = self.consumers.groups.get(request.group_id)
        if group is None:
            return super().commit_offsets(request, now_ms, token, refusal)
        outcomes = self._judged(self._commit_verdict(group, request), request.offsets)
        allowed = replace(request, offsets=_allowed(request.offsets, outcomes))
        effects = super().commit_offsets(allowed, now_ms, token, ErrorCode.NONE)
        return [_joined(effect, outcomes) for effect in effects]

    def commit_whole(
        self, request: WholeCommitRequest, now_ms: int, token: Hashable, refusal: ErrorCode | None = None
    ) -> list[Effect]:
        """OffsetCommit in bulk. Only a member that is behind has to be judged by each partition."""
        group = self.consumers.groups.get(request.group_id)
        if group is None:
            return super().commit_whole(request, now_ms, token, refusal)
        verdict = self._commit_verdict(group, request)
        if verdict.received_epoch is not None:
            return self.commit_offsets(request.one_by_one(), now_ms, token)
        return super().commit_whole(request, now_ms, token, verdict.error)

    def _commit_verdict(self, group: ConsumerGroup, request: OffsetCommitRequest | WholeCommitRequest) -> CommitVerdict:
        return commit_verdict(
            group,
            member_id=request.member_id,
            instance_id=request.instance_id,
            member_epoch=request.generation,
            is_transactional=False,
            api_version=MODERN_COMMIT_VERSION - (not request.knows_group_not_found),
        )

    def commit_in_transaction(
        self, request: TransactionalCommitRequest, now_ms: int, token: Hashable, refusal: ErrorCode | None = None
    ) -> list[GroupEffect]:
        """TxnOffsetCommit."""
        group = self.consumers.groups.get(request.group_id)
        if group is None:
            return super().commit_in_transaction(request, now_ms, token, refusal)
        verdict = commit_verdict(
            group,
            member_id=request.member_id,
            instance_id=request.instance_id,
            member_epoch=request.generation,
            is_transactional=True,
        )
        outcomes = self._judged(verdict, request.offsets)
        allowed = replace(request, offsets=_allowed(request.offsets, outcomes))
        effects = super().commit_in_transaction(allowed, now_ms, token, ErrorCode.NONE)
        return [_joined_group(effect, outcomes) for effect in effects]

    def _judged(self, verdict: CommitVerdict, offsets: tuple[NewOffset, ...]) -> list[PartitionOutcome]:
        outcomes = []
        for new in offsets:
            topic = self.consumers.topics.get(new.topic)
            topic_id = topic.topic_id if new.topic_id is None and topic is not None else new.topic_id
            outcomes.append(PartitionOutcome(new.topic, new.partition, verdict.error_for(topic_id, new.partition)))
        return outcomes

    def fetch_offsets(self, request: OffsetFetchRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """OffsetFetch."""
        group = self.consumers.groups.get(request.group_id)
        if group is not None:
            error = fetch_refusal(group, member_id=request.member_id, member_epoch=request.member_epoch)
            if error is not ErrorCode.NONE:
                return [Respond(token, OffsetFetchResponse(group_id=request.group_id, error=error))]
        return super().fetch_offsets(request, now_ms, token)

    def delete_offsets(
        self, request: OffsetDeleteRequest, now_ms: int, token: Hashable, subscribes: Subscribes | None = None
    ) -> list[Effect]:
        """OffsetDelete."""
        group = self.consumers.groups.get(request.group_id)
        if group is not None:
            subscribes = frozenset(group.subscribed_topics()).__contains__
        return super().delete_offsets(request, now_ms, token, subscribes)

    # Groups

    def delete_group(self, request: DeleteGroupRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """DeleteGroups, one of them."""
        group = self.consumers.groups.get(request.group_id)
        if group is None:
            return super().delete_group(request, now_ms, token)
        if group.members:
            refused = DeleteGroupResponse(group_id=request.group_id, error=ErrorCode.NON_EMPTY_GROUP)
            return [Respond(token, refused)]
        response = DeleteGroupResponse(group_id=request.group_id)
        failure = DeleteGroupResponse(group_id=request.group_id, error=NOT_WRITTEN)
        records = (*self.offsets.tombstones(request.group_id), *self.consumers.deletion_records(request.group_id))
        return [Write(records, (Respond(token, response),), (Respond(token, failure),))]

    def describe_group(self, group_id: str) -> DescribedGroup:
        """DescribeGroups, one of them; a server-side group is not found here."""
        if group_id not in self.consumers.groups:
            return super().describe_group(group_id)
        return DescribedGroup(
            group_id=group_id,
            state=ClassicState.DEAD.value,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a classic group.",
        )

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe, one of them."""
        return describe(group_id, self.consumers.groups.get(group_id), self.consumers.topics)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """ListGroups, of both kinds."""
        listed = super().list_groups(states, types)
        if types and CONSUMER_TYPE not in {each.lower() for each in types}:
            return listed
        wanted = {each.strip().lower() for each in states}
        return listed + [
            ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, group.state.value, CONSUMER_TYPE)
            for group_id, group in self.consumers.groups.items()
            if not wanted or group.state.value.lower() in wanted
        ]

    # Records, time and life cycle

    def replay(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> bool:
        """Applies a record; false if it is of a kind that nobody here keeps."""
        is_kept = super().replay(record, producer_id) or self.consumers.replay(record)
        if self._adopted:
            self._rebalance_adopted()
        return is_kept

    def _rebalance_adopted(self) -> None:
        """A group that has become classic must agree on its assignments, before anybody can ask for the old ones."""
        for group_id, since_ms in list(self._adopted.items()):
            group = self._groups.get(group_id)
            if group is not None and group.state is ClassicState.STABLE:
                del self._adopted[group_id]
                if group._rebalance(since_ms):
                    violated(f"somebody waits for group {group_id}, which has only just become classic")

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: timers start."""
        return [*super().on_loaded(now_ms), *self.consumers.on_loaded(now_ms)]

    def on_metadata(self, topics: Topics, now_ms: int) -> list[Effect]:
        """The topics are these now."""
        return self.consumers.on_metadata(topics, now_ms)

    def next_deadline(self) -> int | None:
        """When `on_tick` is next to be called."""
        mine, theirs = super().next_deadline(), self.consumers.next_deadline()
        deadline = mine if theirs is None else theirs if mine is None else min(mine, theirs)
        if not self._adopted:
            return deadline
        return min(self._adopted.values() if deadline is None else (deadline, *self._adopted.values()))

    def on_clock_set(self, by_ms: int) -> None:
        """The time that events are told has leapt by so much."""
        super().on_clock_set(by_ms)
        self.consumers.on_clock_set(by_ms)
        self._adopted = {group_id: since_ms + by_ms for group_id, since_ms in self._adopted.items()}

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Does what is due."""
        is_sweep = self._next_sweep_ms is not None and self._next_sweep_ms <= now_ms
        effects: list[Effect] = []
        # Those that are still here did not become classic: that could not be written.
        self._adopted.clear()
        effects += self.consumers.on_tick(now_ms)
        if is_sweep:
            for consumer_group in self.consumers.groups.values():
                effects += self._expired_of(consumer_group, now_ms)
        return effects + super().on_tick(now_ms)

    def _expired_of(self, group: ConsumerGroup, now_ms: int) -> list[Effect]:
        """Deletes offsets that have outlived their time, of topics that no member wants; with the last, the group."""
        records = self.expired_offsets(group.group_id, frozenset(group.subscribed_topics()).__contains__, now_ms)
        if group.state is GroupState.EMPTY and len(records) == len(self.offsets.partitions(group.group_id)):
            records += self.consumers.deletion_records(group.group_id)
        return [Write(tuple(records))] if records else []

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        super().check()
        self.consumers.check()


def _allowed(offsets: tuple[NewOffset, ...], outcomes: list[PartitionOutcome]) -> tuple[NewOffset, ...]:
    return tuple(new for new, outcome in zip(offsets, outcomes, strict=True) if outcome.error is ErrorCode.NONE)


def _merged(response: OffsetCommitResponse, outcomes: list[PartitionOutcome]) -> OffsetCommitResponse:
    """Puts the outcomes of those that were let through between those that were not, in the request's order."""
    further = iter(response.partitions)
    partitions = tuple(next(further) if each.error is ErrorCode.NONE else each for each in outcomes)
    return OffsetCommitResponse(partitions=partitions)


def _answers(answers: tuple[Respond, ...], outcomes: list[PartitionOutcome]) -> tuple[Respond, ...]:
    return tuple(Respond(each.token, _merged(each.response, outcomes)) for each in answers)


def _joined(effect: Effect, outcomes: list[PartitionOutcome]) -> Effect:
    if isinstance(effect, Respond):
        return Respond(effect.token, _merged(effect.response, outcomes))
    return Write(effect.records, _answers(effect.responses, outcomes), _answers(effect.on_failure, outcomes))


def _joined_group(effect: GroupEffect, outcomes: list[PartitionOutcome]) -> GroupEffect:
    if not isinstance(effect, TransactionalWrite):
        return _joined(effect, outcomes)
    return replace(
        effect,
        responses=_answers(effect.responses, outcomes),
        on_failure=_answers(effect.on_failure, outcomes),
    )
