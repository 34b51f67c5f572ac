"""All streams groups (KIP-1071) of one partition of `__consumer_offsets`.

Pure. A heartbeat is the only request of their members: it creates or changes the member, sets the topology of a new
group, bumps the group epoch if a member, a topic or a config changed, computes the target for that epoch, and brings
the member a step nearer to it. The response also names internal topics that the handler must create. Members that are
silent, or do not give up the tasks they must, are removed by deadlines.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from ottla.coordination.groups.group_kind import AnyCommit, CommitVerdict, ExpiringGroup, Subscribes, Topics
from ottla.coordination.groups.requests import ListedGroup, OffsetFetchRequest, TransactionalCommitRequest
from ottla.coordination.groups.streams.group import Member, StreamsGroup, metadata_hash
from ottla.coordination.groups.streams.group_change import GroupChange, tombstones
from ottla.coordination.groups.streams.heartbeat_checks import check_epoch, check_heartbeat, check_owned
from ottla.coordination.groups.streams.records import (
    NOT_VALIDATED,
    RECORD_TYPES,
    EpochRecord,
    MemberRecord,
    MemberState,
    MemberValue,
    TopologyRecord,
    decode,
    encode,
)
from ottla.coordination.groups.streams.requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    ConfigOf,
    DescribedStreamsGroup,
    DescriptionUpdate,
    DescriptionUpdateResponse,
    GroupState,
    Refusal,
    Status,
    StatusCode,
    StreamsGroupConfig,
    StreamsHeartbeat,
    StreamsHeartbeatResponse,
)
from ottla.coordination.groups.streams.tasks import NOTHING, TaskSet
from ottla.coordination.groups.streams.topology import Topology
from ottla.coordination.groups.streams.topology_configuration import ConfiguredTopology, configure
from ottla.coordination.groups.streams.topology_descriptions import TopologyDescriptions
from ottla.coordination.groups.streams.views import commit_verdict, describe, endpoints, fetch_refusal
from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond
from ottla.model.error_codes import ErrorCode

STREAMS_TYPE: Final = "streams"
NOT_WRITTEN: Final = StreamsHeartbeatResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)


class MemberDeadline(IntEnum):
    """What must happen in time."""

    SESSION = 0
    """A member sends a heartbeat."""
    REBALANCE = 1
    """A member gives up the tasks that it must."""
    FIRST_TARGET = 2
    """The members of a new group join; then their first target is computed."""


class MemberDeadlineKey(NamedTuple):
    """A deadline of one member, or of a group with an empty member id."""

    deadline: MemberDeadline
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    """A topology with the topics of one version, kept for the next heartbeats."""

    topology: Topology
    topics_version: int
    metadata_hash: int
    configured: ConfiguredTopology


class OtherKinds(Protocol):
    """What streams groups need to know of other groups of their shard."""

    def claim(self, group_id: str, /) -> tuple[CoordinatorRecord, ...]:
        """Records that make room for a streams group of this id. Raises `Refusal` if another kind has the group."""

    def on_created(self, group_id: str, /) -> None:
        """A record created a streams group."""

    def on_deleted(self, group_id: str, /) -> None:
        """A record deleted a streams group."""


class StreamsGroups:
    """The groups, by id. `replay` is the only way into them. Not written are deadlines, requests to shut an application
    down, the epochs of endpoints, and the descriptions of topologies."""

    type = STREAMS_TYPE
    record_types = RECORD_TYPES

    def __init__(self, config_of: ConfigOf, others: OtherKinds | None = None) -> None:
        self.config_of = config_of
        self._others = others
        self.groups: dict[str, StreamsGroup] = {}
        self.topics: Topics = {}
        self._topics_version = 0
        self._configurations: dict[str, _Configuration] = {}
        self._shutdown_by: dict[str, str] = {}
        """The member that asked for the shutdown of its application, by group id."""
        self._endpoint_epochs: dict[str, int] = {}
        self._descriptions = TopologyDescriptions()
        self.deadlines: Deadlines[MemberDeadlineKey] = Deadlines()
        self.next_deadline: Final = self.deadlines.next
        """When `on_tick` must be called next."""
        self.queued_deadlines: Final = self.deadlines.queued
        self._unrevoked_epoch: dict[MemberDeadlineKey, int] = {}
        """The epoch that a member must leave before its rebalance deadline."""

    def heartbeat(self, request: StreamsHeartbeat, now_ms: int, token: Hashable) -> list[Effect]:
        """StreamsGroupHeartbeat."""
        try:
            check_heartbeat(request)
            if request.member_epoch == LEAVE_EPOCH:
                change, response = self._leave(request)
            else:
                change, response = self._live(request, now_ms)
        except Refusal as refusal:
            return [Respond(token, StreamsHeartbeatResponse(error=refusal.code, error_message=str(refusal)))]
        return change.effects(Respond(token, response), on_failure=(Respond(token, NOT_WRITTEN),))

    # Living

    def _live(self, request: StreamsHeartbeat, now_ms: int) -> tuple[GroupChange, StreamsHeartbeatResponse]:
        is_joining = request.member_epoch == JOIN_EPOCH
        group_id, member_id = request.group_id, request.member_id
        config = self.config_of(group_id)
        change = self._decide_on(group_id, is_joining=is_joining)
        was_empty = not change.group.members
        before = self._member(change.group, request, config, is_joining=is_joining)
        statuses: list[Status] = []
        topology = self._topology(change.group, request, before, statuses)
        configured = self._update(change, request, before, topology, config)
        if was_empty and config.initial_rebalance_delay_ms > 0:
            self._delay_first_target(group_id, now_ms + config.initial_rebalance_delay_ms)
        target = self._update_target(change, configured, member_id, now_ms, config, statuses)
        after = change.group.members[member_id]
        if not after.is_reconciled_to(change.group.target_epoch):
            after = change.reconcile(member_id, target, request.owned)
        self._start_timers(group_id, after, now_ms, config, has_moved=after.current != before.current)
        if request.shutdown_application and group_id in self.groups:
            self._shutdown_by.setdefault(group_id, member_id)
        if configured.problem is not None:
            statuses.append(configured.problem)
        shutdown_by = self._shutdown_by.get(group_id, member_id if request.shutdown_application else None)
        if shutdown_by is not None:
            detail = (
                f"Streams group member {shutdown_by} encountered a fatal error and requested a shutdown for the entire "
                "application."
            )
            statuses.append(Status(StatusCode.SHUTDOWN_APPLICATION, detail))
        has_news = is_joining or after.assigned != before.assigned
        epoch = self._endpoint_epoch(group_id, after, has_news=has_news)
        # Beyond Kafka: a member that reports other tasks than it has may have missed the response that told it.
        is_behind = request.owned is not None and request.owned != after.assigned.task_set()
        return change, StreamsHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            statuses=tuple(statuses),
            tasks=after.assigned.task_set() if has_news or is_behind else None,
            # The epoch of a group that is not written yet is not kept: its members are told again.
            endpoint_epoch=self._endpoint_epochs.get(group_id, 0),
            endpoints=endpoints(change.group, configured, self.topics) if epoch != request.endpoint_epoch else None,
            missing_topics=configured.missing_topics,
            wants_description=self._wants_description(request, topology, statuses, now_ms),
        )

    def _wants_description(
        self, request: StreamsHeartbeat, topology: Topology, statuses: list[Status], now_ms: int
    ) -> bool:
        """Whether this member must send the description of its topology; not before the group is written."""
        is_stale = any(each.code is StatusCode.STALE_TOPOLOGY for each in statuses)
        has_room = self.config_of(request.group_id).shard_descriptions_size_max > 0
        if not request.can_describe or not has_room or is_stale or request.group_id not in self.groups:
            return False
        return self._descriptions.ask(request.group_id, topology.epoch, now_ms)

    def update_description(self, request: DescriptionUpdate, token: Hashable) -> list[Effect]:
        """StreamsGroupTopologyDescriptionUpdate."""
        try:
            self._put_description(request)
        except Refusal as refusal:
            return [Respond(token, DescriptionUpdateResponse(error=refusal.code, error_message=str(refusal)))]
        return [Respond(token, DescriptionUpdateResponse())]

    def _put_description(self, request: DescriptionUpdate) -> None:
        group = self.groups.get(request.group_id)
        if group is None:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {request.group_id} not found.")
        if request.member_id not in group.members:
            raise _unknown_member(request)
        epoch = NOT_VALIDATED if group.topology is None else group.topology.epoch
        if request.topology_epoch != epoch:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"Topology epoch {request.topology_epoch} is not the topology epoch {epoch} of the group.",
            )
        room = self.config_of(request.group_id).shard_descriptions_size_max
        self._descriptions.put(request.group_id, epoch, request.description, request.size, room)

    def _decide_on(self, group_id: str, *, is_joining: bool) -> GroupChange:
        group = self.groups.get(group_id)
        if group is not None:
            return GroupChange(group)
        if not is_joining:
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        records = () if self._others is None else self._others.claim(group_id)
        return GroupChange(StreamsGroup(group_id), records)

    def _member(
        self, group: StreamsGroup, request: StreamsHeartbeat, config: StreamsGroupConfig, *, is_joining: bool
    ) -> Member:
        """The member that sends the heartbeat, known or new."""
        member = group.members.get(request.member_id)
        if member is None and not is_joining:
            raise _unknown_member(request)
        if member is None:
            if len(group.members) >= config.max_size:
                raise Refusal(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The streams group has reached its maximum capacity of {config.max_size} members.",
                )
            return Member(member_id=request.member_id)
        check_epoch(member, request)
        return member

    def _topology(
        self, group: StreamsGroup, request: StreamsHeartbeat, member: Member, statuses: list[Status]
    ) -> Topology:
        """The group's topology; that of the first member if it has none yet."""
        wanted, known = request.topology, group.topology
        if known is None:
            if wanted is None:
                raise Refusal(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    f"Group {group.group_id} has lost its topology; member {member.member_id} must join again.",
                )
            return wanted
        epoch = member.said.topology_epoch if wanted is None else wanted.epoch
        if epoch < known.epoch:
            detail = f"The member's topology epoch {epoch} is behind the group's topology epoch {known.epoch}."
            statuses.append(Status(StatusCode.STALE_TOPOLOGY, detail))
        elif wanted is not None and not wanted.is_same(known):
            raise Refusal(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
        return known

    def _update(
        self,
        change: GroupChange,
        request: StreamsHeartbeat,
        before: Member,
        topology: Topology,
        config: StreamsGroupConfig,
    ) -> ConfiguredTopology:
        """Records what the member says of itself and the topology, and bumps the group epoch if anything changed that
        the assignment depends on."""
        group_id = request.group_id
        said = _merged(before.said, request)
        has_changed = said != before.said or before.member_id not in change.group.members
        if has_changed:
            change.write(MemberRecord(group_id, before.member_id, said))
        if change.group.topology is None:
            change.write(TopologyRecord(group_id, topology))
        found = self._configuration(group_id, topology)
        configured = found.configured
        validated = topology.epoch if configured.is_ready else NOT_VALIDATED
        if configured.is_ready:
            check_owned(request.owned, configured.subtopologies)
        group, configs = change.group, config.assignment_configs()
        decided_on = (group.metadata_hash, group.validated_topology_epoch, group.assignment_configs)
        if has_changed or decided_on != (found.metadata_hash, validated, configs):
            change.bump_epoch(found.metadata_hash, validated, configs)
        return configured

    def _configuration(self, group_id: str, topology: Topology) -> _Configuration:
        """The topology with the topics as they are now. Raises `Refusal` if no topics can make it valid."""
        known = self._configurations.get(group_id)
        is_same = known is not None and known.topology is topology
        if known is not None and is_same and known.topics_version == self._topics_version:
            return known
        digest = metadata_hash(topology.required_topics(), self.topics)
        is_valid = known is not None and is_same and known.metadata_hash == digest
        found = _Configuration(
            topology=topology,
            topics_version=self._topics_version,
            metadata_hash=digest,
            configured=known.configured if known is not None and is_valid else configure(topology, self.topics),
        )
        if group_id in self.groups:
            self._configurations[group_id] = found
        return found

    def _delay_first_target(self, group_id: str, deadline_ms: int) -> None:
        key = MemberDeadlineKey(MemberDeadline.FIRST_TARGET, group_id, "")
        if key not in self.deadlines:
            self.deadlines.set(key, deadline_ms)

    def _update_target(
        self,
        change: GroupChange,
        configured: ConfiguredTopology,
        member_id: str,
        now_ms: int,
        config: StreamsGroupConfig,
        statuses: list[Status],
    ) -> TaskSet:
        """Computes the target for the group epoch, unless it exists or must wait; returns that of the member."""
        group = change.group
        if MemberDeadlineKey(MemberDeadline.FIRST_TARGET, group.group_id, "") in self.deadlines:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))
            return NOTHING
        if group.target_epoch < group.epoch:
            age_ms = now_ms - group.target_ms
            # A clock that was set back must not stop the group for as long.
            if group.target_ms != 0 and 0 <= age_ms < config.assignment_interval_ms:
                detail = "Assignment delayed due to the configured assignment interval."
                statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, detail))
            else:
                change.update_target(configured, now_ms)
        return change.group.targets.get(member_id, NOTHING)

    def _endpoint_epoch(self, group_id: str, member: Member, *, has_news: bool) -> int:
        """The epoch of the group's endpoints, bumped if a member with an endpoint has new tasks."""
        epoch = self._endpoint_epochs.get(group_id, 0)
        if has_news and member.said.user_endpoint is not None:
            epoch += 1
            if group_id in self.groups:
                self._endpoint_epochs[group_id] = epoch
        return epoch

    # Leaving

    def _leave(self, request: StreamsHeartbeat) -> tuple[GroupChange, StreamsHeartbeatResponse]:
        change = self._decide_on(request.group_id, is_joining=False)
        if request.member_id not in change.group.members:
            raise _unknown_member(request)
        if request.shutdown_application:
            self._shutdown_by.setdefault(request.group_id, request.member_id)
        change.remove_members([request.member_id])
        return change, StreamsHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    # Time

    def _start_timers(
        self, group_id: str, member: Member, now_ms: int, config: StreamsGroupConfig, *, has_moved: bool
    ) -> None:
        self._start_session(group_id, member.member_id, now_ms, config)
        key = MemberDeadlineKey(MemberDeadline.REBALANCE, group_id, member.member_id)
        if member.state is not MemberState.UNREVOKED:
            self.deadlines.clear(key)
            self._unrevoked_epoch.pop(key, None)
        elif has_moved or key not in self.deadlines:
            self.deadlines.set(key, now_ms + max(member.said.rebalance_timeout_ms, 0))
            self._unrevoked_epoch[key] = member.member_epoch

    def _start_session(self, group_id: str, member_id: str, now_ms: int, config: StreamsGroupConfig) -> None:
        key = MemberDeadlineKey(MemberDeadline.SESSION, group_id, member_id)
        self.deadlines.set(key, now_ms + config.session_timeout_ms)

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much; all deadlines move with it."""
        self.deadlines.shift(by_ms)
        self._descriptions.shift(by_ms)

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Removes the members whose deadline has passed, and computes the first targets of new groups."""
        late: dict[str, dict[str, None]] = {}
        while (key := self.deadlines.pop(now_ms)) is not None:
            group = self.groups.get(key.group_id)
            if group is not None and key.deadline is MemberDeadline.FIRST_TARGET:
                late.setdefault(key.group_id, {})
                continue
            unrevoked_epoch = self._unrevoked_epoch.pop(key, None)
            member = None if group is None else group.members.get(key.member_id)
            if member is None or (key.deadline is MemberDeadline.REBALANCE and member.member_epoch != unrevoked_epoch):
                continue
            late.setdefault(key.group_id, {})[key.member_id] = None
            # If the write fails the member stays, and needs a deadline again.
            self._start_session(key.group_id, key.member_id, now_ms, self.config_of(key.group_id))
        effects: list[Effect] = []
        for group_id, member_ids in late.items():
            change = GroupChange(self.groups[group_id])
            if member_ids:
                change.remove_members(list(member_ids))
            else:
                self._first_target(change, now_ms)
            if change.records:
                effects += change.effects()
        return effects

    def _first_target(self, change: GroupChange, now_ms: int) -> None:
        """Computes the target of a new group whose members had time to join; else the next heartbeat does."""
        group = change.group
        if not group.members or group.topology is None or group.target_epoch >= group.epoch:
            return
        try:
            configured = self._configuration(group.group_id, group.topology).configured
        except Refusal:
            # The next heartbeat is told.
            return
        change.update_target(configured, now_ms)

    # Life cycle

    def replay(self, record: CoordinatorRecord) -> bool:
        """Applies a record; false if it belongs to another kind."""
        decoded = decode(record)
        match decoded:
            case None:
                return False
            case EpochRecord(group_id, None):
                is_known = self.groups.pop(group_id, None) is not None
                self._forget(group_id)
                self._configurations.pop(group_id, None)
                self._endpoint_epochs.pop(group_id, None)
                self._descriptions.forget(group_id)
                if is_known and self._others is not None:
                    self._others.on_deleted(group_id)
                return True
            case MemberRecord(group_id, member_id, None):
                for deadline in (MemberDeadline.SESSION, MemberDeadline.REBALANCE):
                    key = MemberDeadlineKey(deadline, group_id, member_id)
                    self.deadlines.clear(key)
                    self._unrevoked_epoch.pop(key, None)
        group = self.groups.get(decoded.group_id)
        if group is None and decoded.value is not None:
            group = self.groups[decoded.group_id] = StreamsGroup(decoded.group_id)
            if self._others is not None:
                self._others.on_created(decoded.group_id)
        if group is not None:
            group.apply(decoded)
            if not group.members:
                self._shutdown_by.pop(group.group_id, None)
        return True

    def _forget(self, group_id: str) -> None:
        """The group has no members: nothing waits for them."""
        self._shutdown_by.pop(group_id, None)
        self.deadlines.clear(MemberDeadlineKey(MemberDeadline.FIRST_TARGET, group_id, ""))

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: all sessions start."""
        for group_id, group in self.groups.items():
            config = self.config_of(group_id)
            for member in group.members.values():
                self._start_timers(group_id, member, now_ms, config, has_moved=True)
        return []

    def on_unloaded(self) -> list[Effect]:
        """No request waits in these groups."""
        return []

    def on_metadata(self, topics: Topics) -> None:
        """The cluster's topics have changed; the same mapping is the same topics. Groups notice with the next
        heartbeat of a member."""
        if topics is not self.topics:
            self._topics_version += 1
        self.topics = topics

    # Offsets

    def commit_verdict(self, request: AnyCommit, *, is_transactional: bool) -> CommitVerdict:
        """Whether a member may commit; one that is behind may commit some partitions only."""
        return commit_verdict(
            self.groups[request.group_id],
            self.topics,
            member_id=request.member_id,
            instance_id=request.instance_id,
            member_epoch=request.generation,
            is_transactional=is_transactional,
            is_modern=isinstance(request, TransactionalCommitRequest) or request.knows_group_not_found,
        )

    def on_commit(self, group_id: str, member_id: str, now_ms: int) -> None:
        """Only a heartbeat restarts a session."""

    def fetch_refusal(self, request: OffsetFetchRequest) -> ErrorCode:
        """Why a member may not fetch offsets; NONE if it may."""
        group = self.groups[request.group_id]
        return fetch_refusal(group, member_id=request.member_id, member_epoch=request.member_epoch)

    def offset_delete_refusal(self, group_id: str) -> ErrorCode:
        """Offsets of topics that the topology does not consume can always be deleted."""
        return ErrorCode.NONE

    def subscription_of(self, group_id: str) -> Subscribes:
        """Which topics a group consumes: none without members."""
        group = self.groups[group_id]
        if not group.members or group.topology is None:
            return frozenset[str]().__contains__
        return frozenset(group.topology.subtopology_of_topics()).__contains__

    def expiring_groups(self) -> Iterator[ExpiringGroup]:
        """The groups whose offsets may expire: all."""
        for group_id, group in self.groups.items():
            yield ExpiringGroup(group_id, self.subscription_of(group_id), None, group.state is GroupState.EMPTY)

    # Groups

    def delete_refusal(self, group_id: str) -> ErrorCode:
        """Only a group without members can be deleted."""
        return ErrorCode.NON_EMPTY_GROUP if self.groups[group_id].members else ErrorCode.NONE

    def listed(self) -> list[ListedGroup]:
        """All groups, for ListGroups."""
        return [
            ListedGroup(group_id, STREAMS_TYPE, group.state.value, STREAMS_TYPE)
            for group_id, group in self.groups.items()
        ]

    def deletion_records(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The tombstones that delete a group, without those of its offsets."""
        group = self.groups.get(group_id)
        return () if group is None else tuple(encode(record) for record in tombstones(group))

    def describe(self, group_id: str) -> DescribedStreamsGroup:
        """StreamsGroupDescribe, for one group."""
        group = self.groups.get(group_id)
        configured = None
        if group is not None and group.topology is not None and group.topology.epoch == group.validated_topology_epoch:
            try:
                configured = self._configuration(group_id, group.topology).configured
            except Refusal:
                configured = None
        found = describe(group_id, group, configured)
        if found.topology_epoch is None:
            return found
        return replace(found, description=self._descriptions.get(group_id, found.topology_epoch))

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        for group in self.groups.values():
            group.check()


def _unknown_member(request: StreamsHeartbeat | DescriptionUpdate) -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {request.group_id}."
    )


def _merged(said: MemberValue, request: StreamsHeartbeat) -> MemberValue:
    """What the member has said so far, updated by what it says now."""
    is_silent = request.rebalance_timeout_ms == -1
    return MemberValue(
        instance_id=said.instance_id,
        rack_id=said.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=said.rebalance_timeout_ms if is_silent else request.rebalance_timeout_ms,
        topology_epoch=said.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=said.process_id if request.process_id is None else request.process_id,
        user_endpoint=said.user_endpoint if request.user_endpoint is None else request.user_endpoint,
        client_tags=said.client_tags
        if request.client_tags is None
        else tuple(sorted(dict(request.client_tags).items())),
    )
