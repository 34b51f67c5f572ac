"""Members of consumer groups that use the classic protocol.

Pure. While a group moves from the classic to the consumer protocol or back, it has members of both. Those of the
classic protocol join, sync and send heartbeats as before, with their member epoch as the generation, and are told to
join again whenever they have partitions to give up or to get. When such a group changes its kind is in
`migration_state.py`.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from ottla.coordination.groups.consumer.group import ConsumerGroup, Member, as_assignment
from ottla.coordination.groups.consumer.group_change import NOTHING, GroupChange, Refusal
from ottla.coordination.groups.consumer.groups_state import ConsumerGroups, MemberDeadline, MemberDeadlineKey
from ottla.coordination.groups.consumer.heartbeat_checks import check_static
from ottla.coordination.groups.consumer.records import (
    ClassicMetadata,
    MemberRecord,
    MemberState,
    MemberValue,
    RegexRecord,
)
from ottla.coordination.groups.group_kind import Topics
from ottla.coordination.groups.record_values import Assignment
from ottla.coordination.groups.requests import (
    NO_MEMBER_ID,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    LeavingMember,
    LeftMember,
    SyncRequest,
    SyncResponse,
)
from ottla.coordination.runtime.effects import Effect, Respond
from ottla.model.error_codes import ErrorCode
from ottla.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolError,
    PartitionsByTopic,
    Subscription,
    read_subscription,
    version_of,
    write_assignment,
)

_NOT_WRITTEN: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class ClassicMembersOfConsumerGroups:
    """Answers classic requests for consumer groups that have members.

    `new_member_id` makes an id for a member that joins without one.
    """

    def __init__(self, consumers: ConsumerGroups, new_member_id: Callable[[JoinRequest], str]) -> None:
        self._consumers = consumers
        self._new_member_id = new_member_id

    def join(self, request: JoinRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """JoinGroup. Does not wait for other members: the target assignment is there already."""
        new_id = self._new_member_id(request)
        member_id = request.member_id or new_id
        try:
            change, member = self._join(request, member_id, now_ms)
        except Refusal as refusal:
            named = member_id if refusal.code is ErrorCode.MEMBER_ID_REQUIRED else request.member_id
            return [Respond(token, JoinResponse(error=refusal.code, member_id=named))]
        response = JoinResponse(
            member_id=member_id,
            generation=member.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
        )
        failure = JoinResponse(error=_NOT_WRITTEN, member_id=request.member_id)
        return change.effects(Respond(token, response), on_failure=(Respond(token, failure),))

    def _join(self, request: JoinRequest, member_id: str, now_ms: int) -> tuple[GroupChange, Member]:
        group_id = request.group_id
        change = GroupChange(self._consumers.groups[group_id])
        members = change.group.members
        if len(members) >= self._consumers.config.max_size and request.member_id not in members:
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group_id} is full.")
        subscription = _subscription(change.group, request)
        if request.member_id == NO_MEMBER_ID and request.instance_id is None and request.requires_member_id:
            raise Refusal(ErrorCode.MEMBER_ID_REQUIRED, "The member must join again with this id.")
        before = self._joining(change, request, member_id)
        said = _said(before.said, request, subscription)
        if said != before.said or member_id not in change.group.members:
            change.write(MemberRecord(group_id, member_id, said))
        regex = before.said.topic_regex
        if regex and regex in change.group.regexes and not change.group.subscribers_of_regex(regex):
            change.write(RegexRecord(group_id, regex, None))
        changed = bool(regex) or said.topic_names != before.said.topic_names
        if changed or change.has_new_metadata(self._consumers.topics):
            change.bump_epoch(self._consumers.topics)
        change.update_target(self._consumers.topics, now_ms, self._consumers.config.assignment_interval_ms)
        owned = _with_ids(subscription.owned, self._consumers.topics)
        member = change.reconcile(member_id, self._consumers.topics, owned, subscription_changed=changed)
        self._consumers.start_timers(group_id, member, now_ms, has_moved=False)
        self._consumers.deadlines.clear(MemberDeadlineKey(MemberDeadline.JOIN, group_id, member_id))
        self._consumers.deadlines.set(
            MemberDeadlineKey(MemberDeadline.SYNC, group_id, member_id), now_ms + rebalance_timeout_ms(member)
        )
        return change, member

    def _joining(self, change: GroupChange, request: JoinRequest, member_id: str) -> Member:
        """The member that joins: new, known, or a static member that comes back without its member id."""
        if request.instance_id is None:
            return change.group.members.get(member_id) or Member(member_id=member_id)
        known = change.group.static_member(request.instance_id)
        if request.member_id != NO_MEMBER_ID:
            return check_static(known, member_id, request.instance_id)
        return Member(member_id=member_id) if known is None else change.replace_static(known, member_id)

    def sync(self, request: SyncRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """SyncGroup: the partitions of the member's target that no other member owns any more."""
        group = self._consumers.groups[request.group_id]
        try:
            member, classic = _classic_member(group, request.member_id, request.instance_id, request.generation)
            _check_protocol(classic, request)
            if member.member_epoch < group.target_epoch and member.state is not MemberState.UNREVOKED:
                self._ask_to_join(group, member, now_ms)
                raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS, "There is a newer target; the member must join again.")
        except Refusal as refusal:
            return [Respond(token, SyncResponse(error=refusal.code))]
        self._consumers.deadlines.clear(MemberDeadlineKey(MemberDeadline.SYNC, group.group_id, member.member_id))
        self._consumers.start_session(group.group_id, member, now_ms)
        assignment = named(as_assignment(member.assigned), self._consumers.topics)
        response = SyncResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(assignment, version_of(classic.protocols[0][1])),
        )
        failure = SyncResponse(error=_NOT_WRITTEN)
        return GroupChange(group).effects(Respond(token, response), on_failure=(Respond(token, failure),))

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """Heartbeat: restarts the session, and tells the member whether it must join again."""
        group = self._consumers.groups[request.group_id]
        try:
            member, _ = _classic_member(group, request.member_id, request.instance_id, request.generation)
        except Refusal as refusal:
            return [Respond(token, HeartbeatResponse(error=refusal.code))]
        self._consumers.start_session(group.group_id, member, now_ms)
        is_behind = member.member_epoch < group.target_epoch or member.state is MemberState.UNREVOKED
        can_get_more = member.state is MemberState.UNRELEASED and not _waits_for_others(group, member)
        if not is_behind and not can_get_more and not self._lacks_target(group):
            return [Respond(token, HeartbeatResponse())]
        self._ask_to_join(group, member, now_ms)
        return [Respond(token, HeartbeatResponse(error=ErrorCode.REBALANCE_IN_PROGRESS))]

    def _lacks_target(self, group: ConsumerGroup) -> bool:
        """Whether a new target is due, and no member of the consumer protocol is left whose heartbeat computes it."""
        if group.epoch == group.target_epoch and not self._consumers.has_new_metadata(group):
            return False
        return all(each.classic is not None for each in group.members.values())

    def _ask_to_join(self, group: ConsumerGroup, member: Member, now_ms: int) -> None:
        key = MemberDeadlineKey(MemberDeadline.JOIN, group.group_id, member.member_id)
        if key not in self._consumers.deadlines:
            self._consumers.deadlines.set(key, now_ms + rebalance_timeout_ms(member))

    def leave(self, request: LeaveRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """LeaveGroup, of members of either protocol, each with its own outcome."""
        change = GroupChange(self._consumers.groups[request.group_id])
        outcomes: list[LeftMember] = []
        gone: dict[str, None] = {}
        for leaving in request.members:
            error = ErrorCode.NONE
            try:
                gone[_leaver(change.group, leaving).member_id] = None
            except Refusal as refusal:
                error = refusal.code
            outcomes.append(LeftMember(member_id=leaving.member_id, instance_id=leaving.instance_id, error=error))
        if gone:
            self._consumers.remove_members(change, list(gone), now_ms)
        failure = LeaveResponse(error=_NOT_WRITTEN)
        return change.effects(
            Respond(token, LeaveResponse(members=tuple(outcomes))), on_failure=(Respond(token, failure),)
        )


def _subscription(group: ConsumerGroup, request: JoinRequest) -> Subscription:
    names = [protocol.name for protocol in request.protocols]
    shared = shared_protocols(
        member
        for member in group.members.values()
        if member.classic is not None and member.member_id != request.member_id
    )
    speaks = shared is None or any(name in shared for name in names)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names or not speaks:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The member's protocols are not supported.")
    try:
        return read_subscription(request.protocols[0].metadata)
    except ConsumerProtocolError as damage:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(damage)) from None


def shared_protocols(members: Iterable[Member]) -> list[str] | None:
    """The protocols that all of these members support, in the order of the first; None without members."""
    shared: list[str] | None = None
    for member in members:
        names = [] if member.classic is None else [name for name, _ in member.classic.protocols]
        shared = names if shared is None else [name for name in shared if name in names]
    return shared


def _said(said: MemberValue, request: JoinRequest, subscription: Subscription) -> MemberValue:
    protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
    return replace(
        said,
        instance_id=request.instance_id if said.instance_id is None else said.instance_id,
        rack_id=subscription.rack_id or said.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=tuple(sorted(set(subscription.topics))),
        topic_regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicMetadata(session_timeout_ms=request.session_timeout_ms, protocols=protocols),
    )


def rebalance_timeout_ms(member: Member) -> int:
    """How long a member may take to join again; old clients have one timeout for both."""
    session_timeout_ms = 0 if member.classic is None else member.classic.session_timeout_ms
    return member.said.rebalance_timeout_ms if member.said.rebalance_timeout_ms >= 0 else session_timeout_ms


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicMetadata]:
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = check_static(group.static_member(instance_id), member_id, instance_id)
    if member is None or member.classic is None or not member.classic.protocols:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member that uses the classic protocol.")
    if generation != member.member_epoch:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"The generation is {member.member_epoch}, not {generation}.")
    return member, member.classic


def _check_protocol(classic: ClassicMetadata, request: SyncRequest) -> None:
    said = ((request.protocol_type, CONSUMER_PROTOCOL_TYPE), (request.protocol_name, classic.protocols[0][0]))
    if any(theirs is not None and theirs != ours for theirs, ours in said):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The protocol is not the one that the member joined with.")


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    target = group.targets.get(member.member_id, NOTHING)
    return any(
        group.owners.get((topic_id, partition), member.member_id) != member.member_id
        for topic_id, partitions in target.items()
        for partition in partitions
    )


def _leaver(group: ConsumerGroup, leaving: LeavingMember) -> Member:
    if leaving.instance_id is None:
        member = group.members.get(leaving.member_id)
        if member is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{leaving.member_id} is not a member.")
        return member
    member = group.static_member(leaving.instance_id)
    if member is not None and leaving.member_id == NO_MEMBER_ID:
        return member
    return check_static(member, leaving.member_id, leaving.instance_id)


def named(assignment: Assignment, topics: Topics) -> dict[str, tuple[int, ...]]:
    """The assignment by topic name; deleted topics are left out."""
    names = {topic.topic_id: name for name, topic in topics.items()}
    return {names[topic_id]: partitions for topic_id, partitions in assignment.items() if topic_id in names}


def _with_ids(named: PartitionsByTopic, topics: Topics) -> dict[UUID, tuple[int, ...]]:
    return {topics[name].topic_id: partitions for name, partitions in named.items() if name in topics}
