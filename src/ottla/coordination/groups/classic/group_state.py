"""One classic group: join, sync, heartbeat, leave; checks of commits and deletions; descriptions.

Pure. `groups_state.py` finds the group of a request and checks what does not depend on it. Rebalances and the table of
states are in `generations_state.py`.
"""

from collections.abc import Hashable
from typing import Final

from ottla.coordination.groups.classic.generations_state import (
    ClassicDeadline,
    ClassicDeadlineKey,
    ClassicGenerations,
    GroupState,
    answer_join,
    answer_sync,
    refuse_join,
)
from ottla.coordination.groups.classic.members import ClassicMember
from ottla.coordination.groups.records import group_record
from ottla.coordination.groups.requests import (
    NO_MEMBER_ID,
    DescribedGroup,
    DescribedMember,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    LeavingMember,
    LeftMember,
    ListedGroup,
    SyncRequest,
    SyncResponse,
)
from ottla.coordination.runtime.effects import Effect, Respond, Write
from ottla.model.error_codes import ErrorCode

CLASSIC_TYPE: Final = "classic"
NOT_WRITTEN: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
"""The error when a change could not be written: the client looks for the coordinator again, and retries."""

_PROMISES_MAX: Final = 10_000

_GO_ON: Final = HeartbeatResponse()
_JOIN_AGAIN: Final = HeartbeatResponse(error=ErrorCode.REBALANCE_IN_PROGRESS)
_NOT_SYNCED: Final = SyncResponse(error=NOT_WRITTEN)
"""Responses that are the same for all members."""


class ClassicGroup(ClassicGenerations):
    """A group, with the requests of its members."""

    # Join

    def join(self, request: JoinRequest, new_id: str, now_ms: int, token: Hashable) -> list[Effect]:
        """JoinGroup; `new_id` is for a member that has no id yet."""
        if self.state is GroupState.DEAD:
            return refuse_join(token, ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id)
        if not self._has_room_for(request):
            effects = refuse_join(token, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return effects + self._remove([request.member_id], now_ms)
        if not self._speaks(request):
            return refuse_join(token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if request.member_id == NO_MEMBER_ID:
            return self._join_without_id(request, new_id, now_ms, token)
        if request.member_id in self.members.promised and request.instance_id is None:
            return self._add(request, request.member_id, now_ms, token)
        error = self.members.refusal(request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return refuse_join(token, error, request.member_id)
        return self._join_again(request, self.members[request.member_id], now_ms, token)

    def _has_room_for(self, request: JoinRequest) -> bool:
        """During a rebalance only members that have joined count: an overfull group loses those that join last."""
        member = self.members.get(request.member_id)
        if request.instance_id is not None:
            member = self.members.of_instance(request.instance_id)
        match self.state:
            case GroupState.PREPARING_REBALANCE:
                has_joined = member is not None and member.join_token is not None
                has_room = len(self.members) < self.settings.group_size_max
                return has_joined or has_room or self.members.waiting_to_join() < self.settings.group_size_max
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member is not None or len(self.members) < self.settings.group_size_max
        return True

    def _speaks(self, request: JoinRequest) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        if request.protocol_type != self.protocol_type or not request.protocols:
            return False
        candidates = self.members.candidates()
        return not self.members or bool([name for name, _ in request.protocols if name in candidates])

    def _join_without_id(self, request: JoinRequest, new_id: str, now_ms: int, token: Hashable) -> list[Effect]:
        """A join without a member id: a new member, or a static one that comes back."""
        if request.instance_id is not None:
            known = self.members.of_instance(request.instance_id)
            if known is not None:
                return self._return(request, known, new_id, now_ms, token)
        elif request.requires_member_id:
            self._promise(new_id, request.session_timeout_ms, now_ms)
            return refuse_join(token, ErrorCode.MEMBER_ID_REQUIRED, new_id)
        return self._add(request, new_id, now_ms, token)

    def _promise(self, member_id: str, timeout_ms: int, now_ms: int) -> None:
        if len(self.members.promised) >= _PROMISES_MAX:
            # The oldest promised id is dropped; its client can ask for another.
            self._forget(next(iter(self.members.promised)))
        self.members.promised[member_id] = None
        self._start_session(member_id, timeout_ms, now_ms)

    def _add(self, request: JoinRequest, member_id: str, now_ms: int, token: Hashable) -> list[Effect]:
        member = _member_of(request, member_id)
        member.join_token = token
        member.is_new = True
        self._more_came = True
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        # A new member cannot send heartbeats while its join waits. If its client has disconnected, this deadline
        # removes it.
        self._start_session(member_id, self.settings.new_member_timeout_ms, now_ms)
        return self.rebalance(now_ms)

    def _join_again(self, request: JoinRequest, member: ClassicMember, now_ms: int, token: Hashable) -> list[Effect]:
        """A join with a member id. If nothing has changed, the response is sent again."""
        is_unchanged = member.protocols == request.protocols
        is_leader = self.members.leader == member.member_id
        if is_unchanged and (
            self.state is GroupState.COMPLETING_REBALANCE or (self.state is GroupState.STABLE and not is_leader)
        ):
            self.touch(member.member_id, now_ms)
            members = self.members.joined(self.protocol) if is_leader else ()
            return [Respond(token, self._joined(member, members=members))]
        # The leader of a stable group joins again when the topics have changed.
        effects = answer_join(member, ErrorCode.REBALANCE_IN_PROGRESS)
        self.members.speak(member, request.protocols)
        member.rebalance_timeout_ms = _rebalance_timeout_ms(request)
        member.session_timeout_ms = request.session_timeout_ms
        member.join_token = token
        return effects + self.rebalance(now_ms)

    def _return(
        self, request: JoinRequest, old: ClassicMember, new_id: str, now_ms: int, token: Hashable
    ) -> list[Effect]:
        """A static member comes back under a new id; requests with the old id are fenced."""
        member = _member_of(request, new_id)
        member.assignment = old.assignment
        self._start_session(new_id, member.session_timeout_ms, now_ms)
        if self.state is GroupState.STABLE and self._protocol_with(old, request) == self.protocol:
            return [self._write_return(request, old, member, now_ms, token)]
        effects = answer_join(old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        effects += answer_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.SESSION, self.group_id, old.member_id))
        self._unsynced.pop(old.member_id, None)
        self.members.replace(old, member)
        member.join_token = token
        # While the leader computes the assignment it knows only the old id, so a new generation is needed.
        return effects + self.rebalance(now_ms)

    def _protocol_with(self, member: ClassicMember, request: JoinRequest) -> str:
        """The protocol that would be chosen if the member spoke what the request says."""
        spoken = member.protocols
        self.members.speak(member, request.protocols)
        chosen = self.members.select_protocol()
        self.members.speak(member, spoken)
        return chosen

    def _write_return(
        self, request: JoinRequest, old: ClassicMember, member: ClassicMember, now_ms: int, token: Hashable
    ) -> Write:
        """Only the member id changes; it is written, to survive a failover."""
        was_leader = self.members.leader == old.member_id
        leader = member.member_id if was_leader else self.members.leader
        members = tuple(member if each is old else each for each in self.members)
        value = self._stable_value({each.member_id: each.assignment for each in members}, members, leader, now_ms)
        self._returning = member
        if was_leader and request.can_skip_assignment:
            joined = tuple(
                each
                if each.member_id != old.member_id
                else each._replace(member_id=member.member_id, metadata=member.metadata(self.protocol))
                for each in self.members.joined(self.protocol)
            )
            response = self._joined(member, members=joined, leader=leader, skip_assignment=True)
        else:
            # An older client that hears that it leads would assign again, so it gets the old id as the leader.
            response = self._joined(member, leader=leader if request.can_skip_assignment else self.members.leader)
        failure = JoinResponse(error=NOT_WRITTEN, member_id=request.member_id)
        return Write((group_record(self.group_id, value),), (Respond(token, response),), (Respond(token, failure),))

    # Sync

    def sync(self, request: SyncRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """SyncGroup: the leader brings all assignments, every member gets its own."""
        error = self._sync_refusal(request)
        if error is not ErrorCode.NONE:
            return [Respond(token, SyncResponse(error=error))]
        member = self.members[request.member_id]
        self._unsynced.pop(member.member_id, None)
        if not self._unsynced:
            self._deadlines.clear(ClassicDeadlineKey(ClassicDeadline.SYNC, self.group_id))
        if self.state is GroupState.STABLE:
            self._start_session(member.member_id, member.session_timeout_ms, now_ms)
            # The assignment may be written but not yet committed; the response waits for that.
            return [Write((), (Respond(token, self._synced(member.assignment)),), (_sync_failure(token),))]
        effects = answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync_token = token
        if member.member_id != self.members.leader:
            return effects
        return [*effects, self._write_assignments(request, now_ms)]

    def _sync_refusal(self, request: SyncRequest) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.members.refusal(request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if request.protocol_type is not None and request.protocol_type != self.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol_name is not None and request.protocol_name != self.protocol:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _write_assignments(self, request: SyncRequest, now_ms: int) -> Write:
        """Writes the leader's assignments; waiting members get theirs when that is committed."""
        said = dict(request.assignments)
        assignments = {member.member_id: said.get(member.member_id, b"") for member in self.members}
        value = self._stable_value(assignments, tuple(self.members), self.members.leader, now_ms)
        responses = []
        failures = []
        for member in self.members:
            if member.sync_token is not None:
                responses.append(Respond(member.sync_token, self._synced(assignments[member.member_id])))
                failures.append(_sync_failure(member.sync_token))
                member.sync_token = None
                self._start_session(member.member_id, member.session_timeout_ms, now_ms)
        return Write((group_record(self.group_id, value),), tuple(responses), tuple(failures))

    # Heartbeat, leave, sessions

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """Heartbeat: restarts the session, and tells the member whether it must join again."""
        if self.state is GroupState.DEAD:
            return [Respond(token, HeartbeatResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        error = self.members.refusal(request.member_id, request.instance_id)
        if error is ErrorCode.NONE and request.generation != self.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        if error is not ErrorCode.NONE:
            return [Respond(token, HeartbeatResponse(error=error))]
        self.touch(request.member_id, now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            return [Respond(token, _JOIN_AGAIN)]
        return [Respond(token, _GO_ON)]

    def touch(self, member_id: str, now_ms: int) -> None:
        """Restarts the session of a member, unless it is new."""
        member = self.members.get(member_id)
        if member is not None and not member.is_new:
            self._start_session(member_id, member.session_timeout_ms, now_ms)

    def leave(self, request: LeaveRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """LeaveGroup: each member has its own outcome; the others rebalance once."""
        if self.state is GroupState.DEAD:
            return [Respond(token, LeaveResponse(error=ErrorCode.COORDINATOR_NOT_AVAILABLE))]
        outcomes: list[LeftMember] = []
        gone: dict[str, None] = {}
        for leaving in request.members:
            member_id, error = self._leaver(leaving)
            if member_id in gone:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif error is ErrorCode.NONE:
                gone[member_id] = None
            outcomes.append(LeftMember(member_id=leaving.member_id, instance_id=leaving.instance_id, error=error))
        response = LeaveResponse(members=tuple(outcomes))
        effects = self._remove(list(gone), now_ms)
        match effects:
            case [*before, Write(records)]:
                failure = LeaveResponse(error=NOT_WRITTEN)
                return [*before, Write(records, (Respond(token, response),), (Respond(token, failure),))]
        return [*effects, Respond(token, response)]

    def _leaver(self, leaving: LeavingMember) -> tuple[str, ErrorCode]:
        if leaving.member_id == NO_MEMBER_ID:
            member = None if leaving.instance_id is None else self.members.of_instance(leaving.instance_id)
            return ("", ErrorCode.UNKNOWN_MEMBER_ID) if member is None else (member.member_id, ErrorCode.NONE)
        if leaving.member_id in self.members.promised:
            return leaving.member_id, ErrorCode.NONE
        return leaving.member_id, self.members.refusal(leaving.member_id, leaving.instance_id)

    # Offsets, and looking at the group

    def commit_refusal(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool
    ) -> ErrorCode:
        """The error for a commit; NONE if it is allowed.

        Old versions of TxnOffsetCommit have neither member nor generation, and are allowed.
        """
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation >= 0 or member_id != NO_MEMBER_ID or instance_id is not None:
            error = self.members.refusal(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not is_transactional:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if self.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def delete_refusal(self) -> ErrorCode:
        """Why the group cannot be deleted; NONE if it can."""
        if self.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if self.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_delete_refusal(self) -> ErrorCode:
        """Why no offset can be deleted; NONE if those of unsubscribed topics can."""
        error = self.delete_refusal()
        return ErrorCode.NONE if error is ErrorCode.NON_EMPTY_GROUP and self.is_consumer_group else error

    def subscribes(self, topic: str) -> bool:
        """Whether its members consume the topic; true if that is unknown."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def lets_offsets_expire(self) -> bool:
        """Whether offsets of unsubscribed topics may expire now."""
        if self.protocol_type is None or self.state is GroupState.EMPTY:
            return True
        return self.state is GroupState.STABLE and self.is_consumer_group and self.subscribed_topics is not None

    @property
    def empty_since_ms(self) -> int | None:
        """When its last member left; None while it has members, or if it never had one."""
        has_been_used = self.protocol_type is not None and self.state is GroupState.EMPTY
        return self.state_ms if has_been_used else None

    def describe(self) -> DescribedGroup:
        """The group, for DescribeGroups."""
        protocol = self.protocol if self.state is GroupState.STABLE else None
        return DescribedGroup(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self.protocol_type or "",
            protocol=protocol or "",
            members=tuple(
                DescribedMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(protocol),
                    assignment=member.assignment,
                )
                for member in self.members
            ),
        )

    def listed(self) -> ListedGroup:
        """The group, for ListGroups."""
        return ListedGroup(self.group_id, self.protocol_type or "", self.state.value, CLASSIC_TYPE)

    def _synced(self, assignment: bytes) -> SyncResponse:
        return SyncResponse(protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=assignment)


def _member_of(request: JoinRequest, member_id: str) -> ClassicMember:
    return ClassicMember(
        member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
    )


def _rebalance_timeout_ms(request: JoinRequest) -> int:
    """Version 0 has one timeout for both."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _sync_failure(token: Hashable) -> Respond:
    return Respond(token, _NOT_SYNCED)
