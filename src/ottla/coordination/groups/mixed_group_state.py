"""Server-side groups some of whose members speak the classic protocol: how a group changes protocol while it lives.

Pure. A classic group whose first new-style member joins becomes such a group with all its members; each old-style one
goes on to join, sync and send heartbeats, with its member epoch as the generation, and is told to join again whenever
it has something to give up or to get. When the last new-style member goes, the others become a classic group again.
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Final
from uuid import UUID

from ottla.coordination.groups.consumer.decision import NOTHING, Decision, Refusal, tombstones
from ottla.coordination.groups.consumer.group import ConsumerGroup, Member, Topics, as_assignment
from ottla.coordination.groups.consumer.groups_state import ConsumerGroups, Timer, TimerKey
from ottla.coordination.groups.consumer.heartbeat_checks import check_static
from ottla.coordination.groups.consumer.records import (
    Assignment,
    ClassicMetadata,
    MemberRecord,
    MemberState,
    MemberValue,
    RegexRecord,
)
from ottla.coordination.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    NamedAssignment,
    Subscription,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.coordination.groups.records import GroupValue, group_record
from ottla.coordination.groups.records import MemberValue as ClassicMemberValue
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
from ottla.model.errors import CorruptError

_NOT_WRITTEN: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class MixedGroups(ConsumerGroups):
    """Server-side groups that also answer classic requests. Those are for a group that exists and has members."""

    # The classic requests

    def join(self, request: JoinRequest, new_id: str, now_ms: int, token: Hashable) -> list[Effect]:
        """JoinGroup; `new_id` is for one that has no id yet. Nobody waits for others: the target is there already."""
        member_id = request.member_id or new_id
        try:
            decision, member = self._join(request, member_id, now_ms)
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
        return decision.effects(Respond(token, response), on_failure=(Respond(token, failure),))

    def _join(self, request: JoinRequest, member_id: str, now_ms: int) -> tuple[Decision, Member]:
        group_id = request.group_id
        decision = Decision(self.groups[group_id])
        members = decision.group.members
        if len(members) >= self.config.max_size and request.member_id not in members:
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"Group {group_id} is full.")
        subscription = _subscription(decision.group, request)
        if request.member_id == NO_MEMBER_ID and request.instance_id is None and request.requires_member_id:
            raise Refusal(ErrorCode.MEMBER_ID_REQUIRED, "The member must join again with this id.")
        before = self._joining(decision, request, member_id)
        said = _said(before.said, request, subscription)
        if said != before.said or member_id not in decision.group.members:
            decision.write(MemberRecord(group_id, member_id, said))
        regex = before.said.topic_regex
        if regex and regex in decision.group.regexes and not decision.group.subscribers_of_regex(regex):
            decision.write(RegexRecord(group_id, regex, None))
        changed = bool(regex) or said.topic_names != before.said.topic_names
        if changed or decision.has_new_metadata(self.topics):
            decision.bump_epoch(self.topics)
        decision.update_target(self.topics, now_ms, self.config.assignment_interval_ms)
        owned = _with_ids(subscription.owned, self.topics)
        member = decision.reconcile(member_id, self.topics, owned, subscription_changed=changed)
        self._start_timers(group_id, member, now_ms, has_moved=False)
        self._deadlines.clear(TimerKey(Timer.JOIN, group_id, member_id))
        self._deadlines.set(TimerKey(Timer.SYNC, group_id, member_id), now_ms + _patience_ms(member))
        return decision, member

    def _joining(self, decision: Decision, request: JoinRequest, member_id: str) -> Member:
        """The member that joins: new, known, or the former self of a static one that comes back without its id."""
        if request.instance_id is None:
            return decision.group.members.get(member_id) or Member(member_id=member_id)
        known = decision.group.static_member(request.instance_id)
        if request.member_id != NO_MEMBER_ID:
            return check_static(known, member_id, request.instance_id)
        return Member(member_id=member_id) if known is None else decision.replace_static(known, member_id)

    def sync(self, request: SyncRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """SyncGroup: the member's part of the target, as far as it is free."""
        group = self.groups[request.group_id]
        try:
            member, classic = _classic_member(group, request.member_id, request.instance_id, request.generation)
            _check_protocol(classic, request)
            if member.member_epoch < group.target_epoch and member.state is not MemberState.UNREVOKED:
                self._ask_to_join(group, member, now_ms)
                raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS, "There is a newer target; the member must join again.")
        except Refusal as refusal:
            return [Respond(token, SyncResponse(error=refusal.code))]
        self._deadlines.clear(TimerKey(Timer.SYNC, group.group_id, member.member_id))
        self.start_session(group.group_id, member, now_ms)
        assignment = _named(as_assignment(member.assigned), self.topics)
        response = SyncResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(assignment, version_of(classic.protocols[0][1])),
        )
        failure = SyncResponse(error=_NOT_WRITTEN)
        return Decision(group).effects(Respond(token, response), on_failure=(Respond(token, failure),))

    def classic_heartbeat(self, request: HeartbeatRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """Heartbeat: the member lives, and hears whether it must join again."""
        group = self.groups[request.group_id]
        try:
            member, _ = _classic_member(group, request.member_id, request.instance_id, request.generation)
        except Refusal as refusal:
            return [Respond(token, HeartbeatResponse(error=refusal.code))]
        self.start_session(group.group_id, member, now_ms)
        is_behind = member.member_epoch < group.target_epoch or member.state is MemberState.UNREVOKED
        can_get_more = member.state is MemberState.UNRELEASED and not _waits_for_others(group, member)
        if not is_behind and not can_get_more and not self._lacks_target(group):
            return [Respond(token, HeartbeatResponse())]
        self._ask_to_join(group, member, now_ms)
        return [Respond(token, HeartbeatResponse(error=ErrorCode.REBALANCE_IN_PROGRESS))]

    def _lacks_target(self, group: ConsumerGroup) -> bool:
        """Whether a new target is due, and nobody of the new kind is left whose heartbeat would compute it."""
        if group.epoch == group.target_epoch:
            if self._seen_version.get(group.group_id) == self._topics_version:
                return False
            if not Decision(group).has_new_metadata(self.topics):
                self._seen_version[group.group_id] = self._topics_version
                return False
        return all(each.classic is not None for each in group.members.values())

    def _ask_to_join(self, group: ConsumerGroup, member: Member, now_ms: int) -> None:
        key = TimerKey(Timer.JOIN, group.group_id, member.member_id)
        if key not in self._deadlines:
            self._deadlines.set(key, now_ms + _patience_ms(member))

    def leave(self, request: LeaveRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """LeaveGroup, of members of either kind, each with its own outcome."""
        decision = Decision(self.groups[request.group_id])
        outcomes: list[LeftMember] = []
        gone: dict[str, None] = {}
        for leaving in request.members:
            error = ErrorCode.NONE
            try:
                gone[_leaver(decision.group, leaving).member_id] = None
            except Refusal as refusal:
                error = refusal.code
            outcomes.append(LeftMember(member_id=leaving.member_id, instance_id=leaving.instance_id, error=error))
        if gone:
            self.remove_members(decision, list(gone), now_ms)
        failure = LeaveResponse(error=_NOT_WRITTEN)
        return decision.effects(
            Respond(token, LeaveResponse(members=tuple(outcomes))), on_failure=(Respond(token, failure),)
        )

    # Becoming a classic group again

    def remove_members(self, decision: Decision, member_ids: list[str], now_ms: int) -> None:
        """They go; if only members of the classic kind stay, the group becomes theirs."""
        gone = frozenset(member_ids)
        staying = [member for member in decision.group.members.values() if member.member_id not in gone]
        if not self._is_to_be_classic(staying):
            super().remove_members(decision, member_ids, now_ms)
            return
        value = _as_classic(decision.group, staying, self.topics, now_ms)
        for record in tombstones(decision.group):
            decision.write(record)
        decision.write_foreign([group_record(decision.group.group_id, value)])
        decision.on_taken.append(lambda: self.on_downgraded(decision.group.group_id, value, now_ms))

    def on_downgraded(self, group_id: str, value: GroupValue, now_ms: int) -> list[Effect]:
        """The group is about to be replayed as a classic one; its shard makes that one rebalance."""
        return []

    def _is_to_be_classic(self, staying: list[Member]) -> bool:
        return (
            bool(staying)
            and all(member.classic is not None for member in staying)
            and self.config.migration_policy.allows_downgrade
            and len(staying) <= self.config.classic_max_size
            and bool(_shared_protocols(staying))
        )


def _subscription(group: ConsumerGroup, request: JoinRequest) -> Subscription:
    names = [protocol.name for protocol in request.protocols]
    shared = _shared_protocols(
        member
        for member in group.members.values()
        if member.classic is not None and member.member_id != request.member_id
    )
    speaks = shared is None or any(name in shared for name in names)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names or not speaks:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The member's protocols are not supported.")
    try:
        return read_subscription(request.protocols[0].metadata)
    except CorruptError as damage:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(damage)) from None


def _shared_protocols(members: Iterable[Member]) -> list[str] | None:
    """The protocols that all of these speak, in the first one's order; None if there is nobody."""
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


def _patience_ms(member: Member) -> int:
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
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member that speaks the classic protocol.")
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


def _as_classic(group: ConsumerGroup, staying: list[Member], topics: Topics, now_ms: int) -> GroupValue:
    """The classic group of those who stay, each with what it has. Nobody leads: that tells a coordinator which finds
    this in the log that they have yet to agree on their assignments."""
    protocol = (_shared_protocols(staying) or [""])[0]
    members = []
    for member in staying:
        classic = member.classic or ClassicMetadata(session_timeout_ms=0, protocols=())
        metadata = dict(classic.protocols)[protocol]
        held = _named(as_assignment(member.assigned), topics)
        members.append(
            ClassicMemberValue(
                member_id=member.member_id,
                instance_id=member.said.instance_id,
                client_id=member.said.client_id,
                client_host=member.said.client_host,
                rebalance_timeout_ms=_patience_ms(member),
                session_timeout_ms=classic.session_timeout_ms,
                subscription=metadata,
                assignment=write_assignment(held, version_of(metadata)),
            )
        )
    return GroupValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol=protocol,
        leader=None,
        state_ms=now_ms,
        members=tuple(members),
    )


def _named(assignment: Assignment, topics: Topics) -> dict[str, tuple[int, ...]]:
    names = {topic.topic_id: name for name, topic in topics.items()}
    return {names[topic_id]: partitions for topic_id, partitions in assignment.items() if topic_id in names}


def _with_ids(named: NamedAssignment, topics: Topics) -> dict[UUID, tuple[int, ...]]:
    return {topics[name].topic_id: partitions for name, partitions in named.items() if name in topics}
