"""All classic groups of one partition of `__consumer_offsets`.

Pure. Finds the group of an event, checks what needs no group, and runs the groups' deadlines. One group's life is in
`group_state.py`. A group also exists if it only has offsets: its consumers assign their partitions themselves.
"""

from collections.abc import Hashable, Iterator
from typing import Final
from uuid import UUID

from ottla.coordination.groups.classic.generations_state import ClassicDeadlineKey, GroupState
from ottla.coordination.groups.classic.group_state import CLASSIC_TYPE, ClassicGroup
from ottla.coordination.groups.group_kind import (
    ALLOWED,
    AnyCommit,
    CommitVerdict,
    ExpiringGroup,
    Subscribes,
    Topics,
)
from ottla.coordination.groups.records import RECORD_TYPES, GroupKey, group_of, group_tombstone, read_key
from ottla.coordination.groups.requests import (
    NO_MEMBER_ID,
    DescribedGroup,
    GroupSettings,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    LeftMember,
    ListedGroup,
    OffsetFetchRequest,
    SyncRequest,
    SyncResponse,
)
from ottla.coordination.runtime.deadlines import Deadlines
from ottla.coordination.runtime.effects import CoordinatorRecord, Effect, Respond, Write
from ottla.env.ports import Random
from ottla.model.error_codes import ErrorCode
from ottla.model.invariants import violated

TEXT_LENGTH_MAX: Final = 8_000
"""Longer names are refused; up to this length any encoding fits into a record."""
_NAME_IN_ID_MAX: Final = 200


class ClassicGroups:
    """The groups, by id."""

    type = CLASSIC_TYPE
    record_types = RECORD_TYPES

    def __init__(self, settings: GroupSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self.groups: dict[str, ClassicGroup] = {}
        self._deadlines: Deadlines[ClassicDeadlineKey] = Deadlines()
        self.next_deadline: Final = self._deadlines.next
        """When `on_tick` must be called next."""
        self.queued_deadlines: Final = self._deadlines.queued
        self._writing: dict[str, None] = {}
        """Groups that wrote in the tick under way; the rest of what is due waits until that is applied."""

    # Membership

    def join(self, request: JoinRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """JoinGroup. Waits for the other members, unless there is an error or nothing is new."""
        error = self.join_refusal(request)
        if error is not ErrorCode.NONE:
            return [Respond(token, JoinResponse(error=error, member_id=request.member_id))]
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id != NO_MEMBER_ID:
                unknown = JoinResponse(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=request.member_id)
                return [Respond(token, unknown)]
            group = self._group(request.group_id)
        new_id = self.new_member_id(request) if request.member_id == NO_MEMBER_ID else NO_MEMBER_ID
        effects = group.join(request, new_id, now_ms, token)
        self._forget_if_unused(group)
        return effects

    def sync(self, request: SyncRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """SyncGroup. Waits until the leader's assignments are committed."""
        group, error = self._find(request.group_id)
        if group is None:
            return [Respond(token, SyncResponse(error=error))]
        return group.sync(request, now_ms, token)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """Heartbeat."""
        group, error = self._find(request.group_id)
        if group is None:
            return [Respond(token, HeartbeatResponse(error=error))]
        return group.heartbeat(request, now_ms, token)

    def leave(self, request: LeaveRequest, now_ms: int, token: Hashable) -> list[Effect]:
        """LeaveGroup, of any number of members."""
        error = id_refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return [Respond(token, LeaveResponse(error=error))]
        group = self.groups.get(request.group_id)
        if group is None:
            unknown = tuple(
                LeftMember(member_id=each.member_id, instance_id=each.instance_id, error=ErrorCode.UNKNOWN_MEMBER_ID)
                for each in request.members
            )
            return [Respond(token, LeaveResponse(members=unknown))]
        effects = group.leave(request, now_ms, token)
        self._forget_if_unused(group)
        return effects

    def join_refusal(self, request: JoinRequest) -> ErrorCode:
        """The error for a join that is invalid in any group; NONE if it depends on the group."""
        error = id_refusal(request.group_id)
        if error is not ErrorCode.NONE:
            return error
        settings = self._settings
        if not settings.session_timeout_min_ms <= request.session_timeout_ms <= settings.session_timeout_max_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        names = [request.member_id, request.instance_id or "", request.client_id, request.client_host]
        names += [request.protocol_type, *[protocol.name for protocol in request.protocols]]
        return ErrorCode.INVALID_REQUEST if max(map(len, names)) > TEXT_LENGTH_MAX else ErrorCode.NONE

    def new_member_id(self, request: JoinRequest) -> str:
        """An id for a member that has none, as Kafka makes them."""
        name = request.client_id if request.instance_id is None else request.instance_id
        return f"{name[:_NAME_IN_ID_MAX]}-{UUID(bytes=self._random.randbytes(16), version=4)}"

    # Offsets

    def commit_verdict(self, request: AnyCommit, *, is_transactional: bool) -> CommitVerdict:
        """Whether a member, or a consumer that assigns its partitions itself, may commit."""
        error = self._commit_refusal(request, is_transactional=is_transactional)
        return ALLOWED if error is ErrorCode.NONE else CommitVerdict(error=error)

    def _commit_refusal(self, request: AnyCommit, *, is_transactional: bool) -> ErrorCode:
        group = self.groups.get(request.group_id)
        if group is not None:
            return group.commit_refusal(
                request.member_id, request.instance_id, request.generation, is_transactional=is_transactional
            )
        error = id_refusal(request.group_id, may_be_empty=True)
        if error is not ErrorCode.NONE:
            return error
        if request.generation < 0:
            return ErrorCode.NONE  # A commit without a generation creates the group.
        if not request.knows_group_not_found:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.GROUP_ID_NOT_FOUND

    def on_commit(self, group_id: str, member_id: str, now_ms: int) -> None:
        """The member is alive."""
        group = self.groups.get(group_id)
        if group is not None:
            group.touch(member_id, now_ms)

    def fetch_refusal(self, request: OffsetFetchRequest) -> ErrorCode:
        """Anyone may fetch; a group that does not exist has no offsets, which is not an error."""
        return id_refusal(request.group_id, may_be_empty=True)

    def offset_delete_refusal(self, group_id: str) -> ErrorCode:
        """Why no offset can be deleted; NONE if those of unsubscribed topics can."""
        group = self.groups.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_refusal()

    def subscription_of(self, group_id: str) -> Subscribes:
        """Which topics a group consumes."""
        return self.groups[group_id].subscribes

    def expiring_groups(self) -> Iterator[ExpiringGroup]:
        """The groups whose offsets may expire now."""
        for group in self.groups.values():
            if group.group_id not in self._writing and group.lets_offsets_expire():
                is_deletable = group.state is GroupState.EMPTY and not group.members.promised
                yield ExpiringGroup(group.group_id, group.subscribes, group.empty_since_ms, is_deletable)

    def on_offsets(self, group_id: str) -> None:
        """A record of an offset is in the log: the group exists until it is deleted there."""
        group = self.groups.get(group_id) or self._group(group_id)
        group.is_written = True

    # Groups

    def delete_refusal(self, group_id: str) -> ErrorCode:
        """Why a group cannot be deleted; NONE if it can."""
        group = self.groups.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.delete_refusal()

    def deletion_records(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The tombstone that deletes a group."""
        return (group_tombstone(group_id),)

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups, for one group."""
        group = self.groups.get(group_id)
        return not_found(group_id, "not found") if group is None else group.describe()

    def listed(self) -> list[ListedGroup]:
        """All groups, for ListGroups."""
        return [group.listed() for group in self.groups.values()]

    def give_up(self, group_id: str) -> None:
        """Another kind has the group now, by a record. No request may be waiting in it."""
        group = self.groups.pop(group_id, None)
        if group is not None and group.on_unloaded(ErrorCode.NOT_COORDINATOR):
            violated(f"group {group_id} was given up while its members wait")

    def start_session(self, group_id: str, member_id: str, deadline_ms: int) -> None:
        """The session of a member that is about to be replayed ends then."""
        self._deadlines.set(ClassicDeadlineKey.session(group_id, member_id), deadline_ms)

    # Records, time and life cycle

    def replay(self, record: CoordinatorRecord) -> bool:
        """Applies a record; false if it belongs to another kind."""
        key = read_key(record.key)
        if not isinstance(key, GroupKey):
            return False
        value = group_of(record)
        if value is not None:
            self._group(key.group_id).replay(value)
        else:
            gone = self.groups.pop(key.group_id, None)
            if gone is not None:
                gone.on_unloaded(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return True

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """The whole partition was replayed: timers start."""
        return [effect for group in self.groups.values() for effect in group.on_loaded(now_ms)]

    def on_unloaded(self) -> list[Effect]:
        """Another broker leads the partition: waiting requests are answered NOT_COORDINATOR."""
        return [effect for group in self.groups.values() for effect in group.on_unloaded(ErrorCode.NOT_COORDINATOR)]

    def on_metadata(self, topics: Topics) -> None:
        """The members look after the topics themselves."""

    def on_settings(self, settings: GroupSettings) -> None:
        """The configs have changed; they apply from the next event on."""
        self._settings = settings
        for group in self.groups.values():
            group.settings = settings

    def on_clock_set(self, by_ms: int) -> None:
        """The clock was moved by this much; all deadlines move with it."""
        self._deadlines.shift(by_ms)

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Does what is due. A group that writes does the rest of what is due when that is applied."""
        effects: list[Effect] = []
        self._writing = {}
        postponed = []
        while (key := self._deadlines.pop(now_ms)) is not None:
            group = self.groups.get(key.group_id)
            if key.group_id in self._writing:
                postponed.append(key)
            elif group is not None:
                news = group.on_deadline(key, now_ms)
                effects += news
                if any(isinstance(effect, Write) for effect in news):
                    self._writing[key.group_id] = None
                self._forget_if_unused(group)
        for key in postponed:
            self._deadlines.set(key, now_ms)
        return effects

    def check(self) -> None:
        """Raises when an invariant does not hold."""
        for group in self.groups.values():
            group.check()

    # Small parts

    def _find(self, group_id: str) -> tuple[ClassicGroup | None, ErrorCode]:
        """The group of a member's request, or the error for it."""
        error = id_refusal(group_id)
        group = self.groups.get(group_id) if error is ErrorCode.NONE else None
        return group, ErrorCode.UNKNOWN_MEMBER_ID if error is ErrorCode.NONE else error

    def _group(self, group_id: str) -> ClassicGroup:
        """The group; created without members and protocol if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings, self._deadlines)
        return group

    def _forget_if_unused(self, group: ClassicGroup) -> None:
        """A group of which nothing was ever written exists as long as a member joins it."""
        is_idle = group.state is GroupState.EMPTY and not group.members.promised
        if is_idle and not group.is_written and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]


def not_found(group_id: str, why: str) -> DescribedGroup:
    """DescribeGroups, for a group that is not here or not classic."""
    return DescribedGroup(
        group_id=group_id,
        state=GroupState.DEAD.value,
        error=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {why}.",
    )


def id_refusal(group_id: str, *, may_be_empty: bool = False) -> ErrorCode:
    """Whether a group can have this id."""
    if is_too_long(group_id) or (not group_id and not may_be_empty):
        return ErrorCode.INVALID_GROUP_ID
    return ErrorCode.NONE


def is_too_long(name: str) -> bool:
    """Whether a name may not fit into a record."""
    return len(name) > TEXT_LENGTH_MAX
