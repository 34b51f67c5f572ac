"""One partition of `__consumer_offsets`: all its groups, of every kind, and their committed offsets.

Pure. Has a table of kinds (`group_kind.py`). A request about a group goes to the kind that has it; an id that no kind
has belongs to the classic kind. Decides about offsets, which all kinds share and which are kept in `offsets_state.py`:
a kind only says which requests may commit, fetch and delete. How a group changes its kind is in `migration_state.py`.
Requests and responses are in `requests.py`.

An answer about something that was written waits for its commit: a read is a `Write` too, without records, whose
response leaves when everything written before it is committed.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any, Final
from uuid import UUID

from ottla.coordination.groups.classic.group_state import NOT_WRITTEN
from ottla.coordination.groups.classic.groups_state import ClassicGroups, is_too_long, not_found
from ottla.coordination.groups.consumer.classic_members_state import ClassicMembersOfConsumerGroups
from ottla.coordination.groups.consumer.groups_state import ConsumerGroups, MayDescribe, PlainJoin
from ottla.coordination.groups.consumer.requests import (
    ConsumerGroupConfig,
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    DescribedConsumerGroup,
    OwnConfigOf,
)
from ottla.coordination.groups.consumer.views import describe
from ottla.coordination.groups.group_kind import CommitVerdict, ExpiringGroup, GroupKind, Topics
from ottla.coordination.groups.migration_state import GroupMigration
from ottla.coordination.groups.offset_records import OffsetRecords, offset_records, read_offset_records
from ottla.coordination.groups.offsets_state import OffsetsState
from ottla.coordination.groups.records import (
    OffsetKey,
    OffsetValue,
    offset_record,
    offset_tombstone,
    read_key,
    read_offset,
    record_type,
)
from ottla.coordination.groups.requests import (
    NO_MEMBER_ID,
    NO_RETENTION,
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
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    PartitionOutcome,
    SyncRequest,
    TransactionalCommitRequest,
    WholeCommitRequest,
    WholeCommitResponse,
)
from ottla.coordination.groups.share.groups_state import ShareGroups
from ottla.coordination.groups.share.requests import (
    AlteredShareState,
    DescribedShareGroup,
    ShareGroupConfig,
    ShareHeartbeat,
    ShareHeartbeatResponse,
)
from ottla.coordination.groups.share.requests import ConfigOf as ShareConfigOf
from ottla.coordination.groups.streams.groups_state import StreamsGroups
from ottla.coordination.groups.streams.requests import ConfigOf as StreamsConfigOf
from ottla.coordination.groups.streams.requests import (
    DescribedStreamsGroup,
    DescriptionUpdate,
    StreamsGroupConfig,
    StreamsHeartbeat,
)
from ottla.coordination.groups.streams_claims import StreamsClaims
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, TransactionalWrite, Write
from ottla.env.ports import Random
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from ottla.model.invariants import violated

_RECORDS_PER_WRITE: Final = 1_000
_RETENTION_MAX_MS: Final = 2**62
_COMMITTED: Final = WholeCommitResponse()
_NOT_COMMITTED: Final = WholeCommitResponse(NOT_WRITTEN)


class GroupShard:
    """The coordinator of the groups that one partition is responsible for.

    Invariant: no group id is in two kinds.
    """

    def __init__(
        self,
        settings: GroupSettings,
        config: ConsumerGroupConfig,
        random: Random,
        share_config_of: ShareConfigOf = lambda group_id: ShareGroupConfig(),
        streams_config_of: StreamsConfigOf = lambda group_id: StreamsGroupConfig(),
        consumer_config_of: OwnConfigOf = lambda group_id: None,
    ) -> None:
        self._settings = settings
        self.offsets = OffsetsState()
        self.classic = ClassicGroups(settings, random)
        self.migration = GroupMigration(self.classic, self.offsets)
        self.consumers = ConsumerGroups(config, random, self.migration, consumer_config_of)
        self._classic_members = ClassicMembersOfConsumerGroups(self.consumers, self.classic.new_member_id)
        self.shares = ShareGroups(share_config_of)
        claims = StreamsClaims(
            self.classic,
            self.migration,
            lambda group_id: self._is_of_other_kind(group_id, self.classic, self.streams),
        )
        self.streams = StreamsGroups(streams_config_of, claims)
        self.kinds: list[GroupKind] = [self.classic, self.consumers, self.shares, self.streams]
        """In the order in which groups are listed; deadlines run in the reverse order."""
        self._kinds_by_record_type: dict[int, GroupKind] = {
            record_type: kind for kind in self.kinds for record_type in kind.record_types
        }
        self._next_deadlines = [(kind.queued_deadlines, kind.next_deadline) for kind in self.kinds]
        self._topics: Topics = {}
        self._next_sweep_ms: int | None = None

    def _kind_of(self, group_id: str) -> GroupKind:
        for kind in self.kinds:
            if group_id in kind.groups:
                return kind
        return self.classic

    def _is_of_other_kind(self, group_id: str, *kinds: GroupKind) -> bool:
        """Whether a group exists and is of none of these kinds."""
        return bool([kind for kind in self.kinds if group_id in kind.groups and kind not in kinds])

    # Members

    def join(self, request: JoinRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """JoinGroup. An empty consumer or streams group is replaced by a classic one."""
        if self._is_of_other_kind(request.group_id, self.classic, self.consumers, self.streams):
            error = JoinResponse(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id=request.member_id)
            return [Respond(token, error)]
        streams = self.streams.groups.get(request.group_id)
        if streams is not None and self.classic.join_refusal(request) is ErrorCode.NONE:
            return self._join_instead_of_streams(request, now_ms, token, is_empty=not streams.members)
        group = self.consumers.groups.get(request.group_id)
        if group is None or self.classic.join_refusal(request) is not ErrorCode.NONE:
            return self.classic.join(request, now_ms, token)
        if group.members:
            return self._classic_members.join(request, now_ms, token)
        failure = JoinResponse(error=NOT_WRITTEN, member_id=request.member_id)
        room = Write(self.consumers.deletion_records(request.group_id), on_failure=(Respond(token, failure),))
        return [room, *self.classic.join(request, now_ms, token)]

    def _join_instead_of_streams(
        self, request: JoinRequest, now_ms: int, token: Hashable, *, is_empty: bool
    ) -> list[Effect]:
        if not is_empty:
            return [Respond(token, JoinResponse(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))]
        failure = JoinResponse(error=NOT_WRITTEN, member_id=request.member_id)
        room = Write(self.streams.deletion_records(request.group_id), on_failure=(Respond(token, failure),))
        return [room, *self.classic.join(request, now_ms, token)]

    def sync(self, request: SyncRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """SyncGroup."""
        return self._for_classic_members(request.group_id).sync(request, now_ms, token)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """Heartbeat."""
        return self._for_classic_members(request.group_id).heartbeat(request, now_ms, token)

    def leave(self, request: LeaveRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """LeaveGroup."""
        return self._for_classic_members(request.group_id).leave(request, now_ms, token)

    def _for_classic_members(self, group_id: str) -> ClassicGroups | ClassicMembersOfConsumerGroups:
        group = self.consumers.groups.get(group_id)
        return self._classic_members if group is not None and group.members else self.classic

    def consumer_heartbeat(
        self, request: ConsumerHeartbeat, now_ms: int, token: Hashable, may_describe: MayDescribe = lambda topic: True
    ) -> list[Effect]:
        """ConsumerGroupHeartbeat."""
        if self._is_of_other_kind(request.group_id, self.classic, self.consumers):
            return [Respond(token, _not_a_consumer_group(request.group_id))]
        return self.consumers.heartbeat(request, now_ms, token, may_describe)

    def join_consumers(self, joins: Sequence[PlainJoin], now_ms: int) -> list[Effect]:
        """ConsumerGroupHeartbeat, of members that join one group together."""
        group_id = joins[0].request.group_id
        if self._is_of_other_kind(group_id, self.classic, self.consumers):
            return [Respond(join.token, _not_a_consumer_group(group_id)) for join in joins]
        return self.consumers.join_all(joins, now_ms)

    def share_heartbeat(self, request: ShareHeartbeat, now_ms: int, token: Hashable) -> list[Any]:
        """ShareGroupHeartbeat."""
        if self._is_of_other_kind(request.group_id, self.shares):
            why = f"Group {request.group_id} is not a share group."
            return [Respond(token, ShareHeartbeatResponse(error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=why))]
        return self.shares.heartbeat(request, now_ms, token)

    def streams_heartbeat(self, request: StreamsHeartbeat, now_ms: int, token: Hashable) -> list[Effect]:
        """StreamsGroupHeartbeat."""
        return self.streams.heartbeat(request, now_ms, token)

    def update_topology_description(self, request: DescriptionUpdate, token: Hashable) -> list[Effect]:
        """StreamsGroupTopologyDescriptionUpdate."""
        return self.streams.update_description(request, token)

    # Offsets

    def commit_offsets(self, request: OffsetCommitRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """OffsetCommit, by a member or by a consumer that assigns its partitions itself."""
        kind = self._kind_of(request.group_id)
        verdict = kind.commit_verdict(request, is_transactional=False)
        if verdict.error is not ErrorCode.NONE:
            return [Respond(token, _all_failed(request.offsets, verdict.error))]
        kind.on_commit(request.group_id, request.member_id, now_ms)
        expire_ms = None
        if request.retention_ms != NO_RETENTION:
            expire_ms = now_ms + min(max(request.retention_ms, 0), _RETENTION_MAX_MS)
        refused = self._refused_by(verdict, request.offsets)
        records, response = self._offset_records(request.group_id, request.offsets, refused, now_ms, expire_ms)
        if not records:
            return [Respond(token, response)]
        failure = _all_failed(request.offsets, NOT_WRITTEN, refused)
        return [Write(records, (Respond(token, response),), (Respond(token, failure),))]

    def commit_whole(self, request: WholeCommitRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """`commit_offsets` in bulk. The response is a `WholeCommitResponse`, or an `OffsetCommitResponse` if each
        offset had to be looked at."""
        is_plain = request.metadata_bytes_max <= self._settings.offset_metadata_size_max
        if not is_plain or request.retention_ms != NO_RETENTION:
            return self.commit_offsets(request.one_by_one(), now_ms, token)
        kind: GroupKind = self.classic
        if request.group_id not in kind.groups:
            kind = self._kind_of(request.group_id)
        verdict = kind.commit_verdict(request, is_transactional=False)
        if verdict.error is not ErrorCode.NONE:
            return [Respond(token, WholeCommitResponse(verdict.error))]
        if verdict.received_epoch is not None:
            return self.commit_offsets(request.one_by_one(), now_ms, token)
        if request.member_id != NO_MEMBER_ID:
            kind.on_commit(request.group_id, request.member_id, now_ms)
        records = offset_records(request.group_id, request.topics, now_ms)
        return [Write(records, (Respond(token, _COMMITTED),), (Respond(token, _NOT_COMMITTED),))]

    def commit_in_transaction(
        self, request: TransactionalCommitRequest, now_ms: int, token: Hashable
    ) -> list[GroupEffect]:
        """TxnOffsetCommit: the offsets are written now, and take effect with the transaction's marker."""
        verdict = self._kind_of(request.group_id).commit_verdict(request, is_transactional=True)
        if verdict.error is not ErrorCode.NONE:
            return [Respond(token, _all_failed(request.offsets, verdict.error))]
        refused = self._refused_by(verdict, request.offsets)
        records, response = self._offset_records(request.group_id, request.offsets, refused, now_ms, None)
        if not records:
            return [Respond(token, response)]
        return [
            TransactionalWrite(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                records=records,
                responses=(Respond(token, response),),
                on_failure=(Respond(token, _all_failed(request.offsets, NOT_WRITTEN, refused)),),
            )
        ]

    def _refused_by(self, verdict: CommitVerdict, offsets: tuple[NewOffset, ...]) -> dict[int, ErrorCode]:
        """The errors of a member that may commit some partitions only, by the place of the offset."""
        if verdict.received_epoch is None:
            return {}
        refused: dict[int, ErrorCode] = {}
        for at, new in enumerate(offsets):
            topic = self._topics.get(new.topic)
            topic_id = topic.topic_id if new.topic_id is None and topic is not None else new.topic_id
            error = verdict.error_for(topic_id, new.partition)
            if error is not ErrorCode.NONE:
                refused[at] = error
        return refused

    def _offset_records(
        self,
        group_id: str,
        offsets: tuple[NewOffset, ...],
        refused: dict[int, ErrorCode],
        now_ms: int,
        expire_ms: int | None,
    ) -> tuple[tuple[CoordinatorRecord, ...], OffsetCommitResponse]:
        records = []
        outcomes = []
        for at, new in enumerate(offsets):
            metadata = new.metadata or ""
            error = refused.get(at, ErrorCode.NONE)
            if error is not ErrorCode.NONE:
                pass
            elif len(metadata) > self._settings.offset_metadata_size_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif is_too_long(new.topic):
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            else:
                value = OffsetValue(
                    offset=new.offset,
                    leader_epoch=new.leader_epoch,
                    metadata=metadata,
                    commit_ms=now_ms,
                    expire_ms=expire_ms,
                    topic_id=new.topic_id,
                )
                records.append(offset_record(group_id, new.topic, new.partition, value))
            outcomes.append(PartitionOutcome(new.topic, new.partition, error))
        return tuple(records), OffsetCommitResponse(partitions=tuple(outcomes))

    def fetch_offsets(self, request: OffsetFetchRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """OffsetFetch, for one group."""
        error = self._kind_of(request.group_id).fetch_refusal(request)
        if error is not ErrorCode.NONE:
            return [Respond(token, OffsetFetchResponse(group_id=request.group_id, error=error))]
        response = OffsetFetchResponse(group_id=request.group_id, offsets=self.offsets.fetch(request))
        failure = OffsetFetchResponse(group_id=request.group_id, error=NOT_WRITTEN)
        return [Write((), (Respond(token, response),), (Respond(token, failure),))]

    def delete_offsets(self, request: OffsetDeleteRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """OffsetDelete, of topics that the group does not subscribe to."""
        group_id = request.group_id
        kind = self._kind_of(group_id)
        error = kind.offset_delete_refusal(group_id)
        if error is not ErrorCode.NONE:
            return [Respond(token, OffsetDeleteResponse(error=error))]
        subscribes = kind.subscription_of(group_id)
        outcomes = []
        records: dict[CoordinatorRecord, None] = {}
        for wanted in request.partitions:
            if subscribes(wanted.topic):
                outcomes.append(PartitionOutcome(*wanted, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            outcomes.append(PartitionOutcome(*wanted))
            partition = TopicPartition(*wanted)
            if self.offsets.get(group_id, partition) or self.offsets.is_pending(group_id, partition):
                records[offset_tombstone(group_id, *partition)] = None
        response = Respond(token, OffsetDeleteResponse(partitions=tuple(outcomes)))
        failure = Respond(token, OffsetDeleteResponse(error=NOT_WRITTEN))
        return [Write(tuple(records), (response,), (failure,))]

    def alter_share_offsets(
        self, group_id: str, offsets: dict[UUID, dict[int, int]], now_ms: int, token: Hashable
    ) -> list[Any]:
        """AlterShareGroupOffsets."""
        if self._is_of_other_kind(group_id, self.shares):
            return [Respond(token, _not_a_share_group(group_id))]
        return self.shares.alter_offsets(group_id, offsets, now_ms, token)

    def delete_share_offsets(self, group_id: str, topic_ids: Iterable[UUID], now_ms: int, token: Hashable) -> list[Any]:
        """DeleteShareGroupOffsets."""
        return self.shares.delete_offsets(group_id, topic_ids, now_ms, token)

    def on_topics_deleted(self, topics: Iterable[str], now_ms: int) -> list[Effect]:
        """Topics were deleted; so are every group's offsets of them."""
        records = [record for topic in topics for record in self.offsets.tombstones_of_topic(topic)]
        return [
            Write(tuple(records[at : at + _RECORDS_PER_WRITE])) for at in range(0, len(records), _RECORDS_PER_WRITE)
        ]

    # Groups

    def delete_group(self, request: DeleteGroupRequest, now_ms: int, token: Hashable) -> list[Any]:
        """DeleteGroups, for one group: deletes the group and all its offsets, if it has no members."""
        kind = self._kind_of(request.group_id)
        error = kind.delete_refusal(request.group_id)
        response = DeleteGroupResponse(group_id=request.group_id, error=error)
        if error is not ErrorCode.NONE:
            return [Respond(token, response)]
        if kind is self.shares:
            return self.shares.delete(request.group_id, now_ms, token)
        records = (*self.offsets.tombstones(request.group_id), *kind.deletion_records(request.group_id))
        failure = DeleteGroupResponse(group_id=request.group_id, error=NOT_WRITTEN)
        return [Write(records, (Respond(token, response),), (Respond(token, failure),))]

    def describe_group(self, group_id: str) -> DescribedGroup:
        """DescribeGroups, for one group; only classic groups are found."""
        if self._kind_of(group_id) is not self.classic:
            return not_found(group_id, "is not a classic group")
        return self.classic.describe(group_id)

    def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe, for one group."""
        return describe(group_id, self.consumers.groups.get(group_id), self.consumers.topics)

    def describe_share_group(self, group_id: str) -> DescribedShareGroup:
        """ShareGroupDescribe, for one group."""
        return self.shares.describe(group_id)

    def describe_streams_group(self, group_id: str) -> DescribedStreamsGroup:
        """StreamsGroupDescribe, for one group."""
        return self.streams.describe(group_id)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """ListGroups: those in one of the states and of one of the types; an empty filter stands for all."""
        wanted_types = {each.lower() for each in types}
        wanted_states = {each.strip().lower() for each in states}
        return [
            group
            for kind in self.kinds
            if not types or kind.type in wanted_types
            for group in kind.listed()
            if not wanted_states or group.state.lower() in wanted_states
        ]

    # Records, time and life cycle

    def replay(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> bool:
        """Applies a record; false if no kind knows it."""
        kind = self._kinds_by_record_type.get(record_type(record.key))
        if kind is not None:
            is_known = kind.replay(record)
            self.migration.on_replayed()
            return is_known
        key = read_key(record.key)
        if not isinstance(key, OffsetKey):
            return False
        value = None if record.value is None else read_offset(record.value)
        if value is not None:
            self._on_offsets(key.group_id)
        self.offsets.replay(key, value, producer_id)
        return True

    def replay_all(self, records: Iterable[CoordinatorRecord], producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """`replay` for each record; the offsets of one group, which are most of what is written, at once."""
        if type(records) is OffsetRecords and producer_id == NO_PRODUCER_ID:
            self._on_offsets(records.group_id)
            self.offsets.put_all(records)
            return
        found = read_offset_records(records, self.offsets.turn) if producer_id == NO_PRODUCER_ID else None
        if found is None:
            for record in records:
                self.replay(record, producer_id)
            return
        group_id, offsets = found
        self._on_offsets(group_id)
        self.offsets.put(group_id, offsets)

    def _on_offsets(self, group_id: str) -> None:
        """A group that only has offsets is a classic one."""
        classic = self.classic
        if group_id in classic.groups or self._kind_of(group_id) is classic:
            classic.on_offsets(group_id)

    def on_marker(self, producer_id: ProducerId, *, commit: bool) -> None:
        """A transaction's marker was appended to the partition, or is replayed."""
        self.offsets.on_marker(producer_id, commit=commit)

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: timers start."""
        for group_id in self.offsets.group_ids():
            # The group's own record may have been compacted away before its offsets.
            self._on_offsets(group_id)
        self._next_sweep_ms = now_ms + self._settings.offsets_check_interval_ms
        return [effect for kind in self.kinds for effect in kind.on_loaded(now_ms)]

    def on_unloaded(self) -> list[Effect]:
        """Another broker leads the partition: waiting requests are answered NOT_COORDINATOR. The shard is used no
        more."""
        self._next_sweep_ms = None
        return [effect for kind in self.kinds for effect in kind.on_unloaded()]

    def on_settings(self, settings: GroupSettings, config: ConsumerGroupConfig) -> None:
        """The configs have changed; they apply from the next event on."""
        self._settings = settings
        self.classic.on_settings(settings)
        self.consumers.config = config

    def on_metadata(self, topics: Topics, now_ms: int) -> list[Effect]:
        """The cluster's topics have changed; the same mapping is the same topics."""
        self._topics = topics
        for kind in self.kinds:
            kind.on_metadata(topics)
        return self.shares.forget_deleted_topics()

    def next_deadline(self) -> int | None:
        """When `on_tick` must be called next."""
        earliest = self._next_sweep_ms
        # Asked after every event, when most kinds have no deadline.
        for queued, next_deadline in self._next_deadlines:
            if queued:
                deadline = next_deadline()
                if deadline is not None and (earliest is None or deadline < earliest):
                    earliest = deadline
        if self.migration.downgraded:
            deadline = self.migration.next_deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much; all deadlines move with it.

        The age of an offset counts from the time in its record, which is the wall clock's.
        """
        if self._next_sweep_ms is not None:
            self._next_sweep_ms += by_ms
        for kind in self.kinds:
            kind.on_clock_set(by_ms)
        self.migration.on_clock_set(by_ms)

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Runs the deadlines of all groups, and from time to time deletes expired offsets."""
        is_sweep = self._next_sweep_ms is not None and self._next_sweep_ms <= now_ms
        if is_sweep:
            self._next_sweep_ms = now_ms + self._settings.offsets_check_interval_ms
        self.migration.on_tick()
        effects: list[Effect] = []
        for kind in reversed(self.kinds):
            effects += kind.on_tick(now_ms)
            if is_sweep:
                for group in kind.expiring_groups():
                    effects += self._expired(kind, group, now_ms)
        return effects

    def _expired(self, kind: GroupKind, group: ExpiringGroup, now_ms: int) -> list[Effect]:
        """Deletes a group's expired offsets, and with the last of them the group."""
        old = self.offsets.expired(
            group.group_id,
            empty_since_ms=group.empty_since_ms,
            retention_ms=self._settings.offsets_retention_ms,
            now_ms=now_ms,
        )
        records = [
            offset_tombstone(group.group_id, *partition) for partition in old if not group.subscribes(partition.topic)
        ]
        if group.is_deletable and len(records) == len(self.offsets.partitions(group.group_id)):
            records += kind.deletion_records(group.group_id)
        return [Write(tuple(records))] if records else []

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        self.offsets.check()
        for kind in self.kinds:
            kind.check()
        self.migration.check(self.consumers)
        for group_id in self.streams.groups:
            if self._is_of_other_kind(group_id, self.streams):
                violated(f"group {group_id} is both a streams group and a group of another kind")


def _not_a_consumer_group(group_id: str) -> ConsumerHeartbeatResponse:
    why = f"Group {group_id} is not a consumer group."
    return ConsumerHeartbeatResponse(error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=why)


def _not_a_share_group(group_id: str) -> AlteredShareState:
    why = f"Group {group_id} is not a share group."
    return AlteredShareState(error=ErrorCode.GROUP_ID_NOT_FOUND, error_message=why)


def _all_failed(
    offsets: tuple[NewOffset, ...], error: ErrorCode, refused: dict[int, ErrorCode] | None = None
) -> OffsetCommitResponse:
    """The response if nothing was written; offsets that were `refused` before keep their error."""
    errors = refused or {}
    return OffsetCommitResponse(
        partitions=tuple(
            PartitionOutcome(each.topic, each.partition, errors.get(at, error)) for at, each in enumerate(offsets)
        )
    )
