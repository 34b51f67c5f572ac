"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the members of classic groups.

From the wire to the group's shard and back; the rules are in `ottla.coordination`. What depends on the version stands
here, and the errors of groups that cannot be reached.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, partial
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.static.primitive import i32

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.requests import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    JoinResponse,
    LeaveRequest,
    LeaveResponse,
    LeavingMember,
    MemberProtocol,
    SyncRequest,
    SyncResponse,
)
from ottla.coordination.runtime.reply import Reply
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import (
    BatchTooLargeError,
    CoordinatorLoadingError,
    InvalidRequestError,
    OttlaError,
    SegmentTooSmallError,
)
from ottla.protocol.classic_members import Heartbeat, JoinGroup, SyncGroup
from ottla.protocol.group_answers import JOIN_SINCE, SYNC_SINCE, heartbeat_body, joined_body, synced_body
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.coordination.groups.coordinator import GroupsShard

R = TypeVar("R")
"""A request."""

_MEMBER_ID_REQUIRED_SINCE: Final = 4
_SKIP_ASSIGNMENT_SINCE: Final = 9
"""Versions of JoinGroup."""
_PROTOCOL_REQUIRED_SINCE: Final = 5
"""Version of SyncGroup."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all joins and syncs that wait for others, but for a single one: they wait as long as their senders like."""


def client_host(context: RequestContext) -> str:
    """Where a client is, as Kafka shows it to people: a slash, then the address, without the port."""
    return _host_of(context.connection.address)


@lru_cache(maxsize=4096)
def _host_of(peer: str) -> str:
    """Members join again and again on their connections, and taking an address apart is slow."""
    host = peer.rpartition(":")[0].strip("[]")
    try:
        packed = IPv6Address(host).packed
    except AddressValueError:
        return f"/{host}"
    return "/" + ":".join(f"{packed[at] << 8 | packed[at + 1]:x}" for at in range(0, 16, 2))


def _hold(services: Services, size: int) -> None:
    """Counts the bytes of a request that may wait. Raises CoordinatorLoadingError, upon which clients try again, if too
    much waits already."""
    groups = services.groups
    if groups.waiting_bytes and groups.waiting_bytes + size > WAITING_BYTES_MAX:
        raise CoordinatorLoadingError(
            f"requests of {groups.waiting_bytes} bytes in total already wait for other members; try again"
        )
    groups.waiting_bytes += size


def _hand_waiting(
    services: Services,
    shard: "GroupsShard",
    event: Callable[[R, int, Hashable], Sequence[Any]],
    asked: R,
    size: int,
    answer_of: Callable[[Any], Any],
) -> Reply:
    """Hands the shard a request of this size that may wait for other members."""
    _hold(services, size)

    def answer(outcome: Any) -> Any:
        services.groups.waiting_bytes -= size
        return answer_of(outcome)

    reply = Reply(answer)
    try:
        shard.hand(event, asked, reply)
    except BaseException:
        if not reply.done():
            services.groups.waiting_bytes -= size
        raise
    return reply


def _code(error: OttlaError) -> ErrorCode:
    """The error code for a member. A group that does not fit into a batch can never be written."""
    is_hopeless = isinstance(error, BatchTooLargeError | SegmentTooSmallError)
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_hopeless else error.code


# JoinGroup


def join_group(services: Services, context: RequestContext, request: JoinGroup) -> Reply | JoinGroupResponse | bytes:
    """A place in the group's next generation, once all members have joined."""
    asked = JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.instance_id,
        client_id=context.client_id or "",
        client_host=client_host(context),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(map(MemberProtocol._make, request.protocols)),
        requires_member_id=context.version >= _MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=context.version >= _SKIP_ASSIGNMENT_SINCE,
        reason=request.reason,
    )
    answer_of = partial(_joined, context.version, asked.member_id)
    try:
        context.check(Operation.READ, ResourceType.GROUP, asked.group_id)
        shard = services.groups.shard_of(asked.group_id)
        size = request.protocols_size
        if size > shard.partition.log.config.max_message_bytes:
            raise InvalidRequestError(
                f"the protocols of the member have {size} bytes, too many for a record of the coordinator"
            )
        return _hand_waiting(services, shard, shard.machine.join, asked, size, answer_of)
    except OttlaError as error:
        return answer_of(error)


def _joined(version: int, member_id: str, joined: JoinResponse | OttlaError) -> JoinGroupResponse | bytes:
    if isinstance(joined, OttlaError):
        joined = JoinResponse(error=_code(joined), member_id=member_id)
    if version >= JOIN_SINCE:
        return joined_body(
            version,
            error=joined.error,
            generation=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=joined.members,
        )
    return JoinGroupResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(joined.error),
        generation_id=i32(joined.generation),
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ),
    )


# SyncGroup


def sync_group(services: Services, context: RequestContext, request: SyncGroup) -> Reply | SyncGroupResponse | bytes:
    """The member's assignment, once the leader has brought everyone's."""
    asked = SyncRequest(
        group_id=request.group_id,
        generation=request.generation,
        member_id=request.member_id,
        instance_id=request.instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments=request.assignments,
    )
    answer_of = partial(_synced, context.version)
    is_protocol_named = asked.protocol_type is not None and asked.protocol_name is not None
    if context.version >= _PROTOCOL_REQUIRED_SINCE and not is_protocol_named:
        return answer_of(SyncResponse(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    try:
        context.check(Operation.READ, ResourceType.GROUP, asked.group_id)
        shard = services.groups.shard_of(asked.group_id)
        return _hand_waiting(services, shard, shard.machine.sync, asked, request.assignments_size, answer_of)
    except OttlaError as error:
        return answer_of(error)


def _synced(version: int, synced: SyncResponse | OttlaError) -> SyncGroupResponse | bytes:
    if isinstance(synced, OttlaError):
        synced = SyncResponse(error=_code(synced))
    if version >= SYNC_SINCE:
        return synced_body(
            version,
            error=synced.error,
            protocol_type=synced.protocol_type,
            protocol_name=synced.protocol_name,
            assignment=synced.assignment,
        )
    return SyncGroupResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(synced.error),
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


# Heartbeat


def heartbeat(services: Services, context: RequestContext, request: Heartbeat) -> Reply | bytes:
    """Keeps a member in its group, or says why not. While the group is being loaded, its members stay."""
    asked = HeartbeatRequest(
        group_id=request.group_id,
        generation=request.generation,
        member_id=request.member_id,
        instance_id=request.instance_id,
    )
    reply = Reply(partial(_heartbeat_answer, context.version))
    try:
        context.check(Operation.READ, ResourceType.GROUP, asked.group_id)
        shard = services.groups.shard_of(asked.group_id)
        shard.hand(shard.machine.heartbeat, asked, reply)
    except OttlaError as error:
        return _heartbeat_answer(context.version, error)
    return reply


def _heartbeat_answer(version: int, outcome: HeartbeatResponse | OttlaError) -> bytes:
    if isinstance(outcome, HeartbeatResponse):
        return heartbeat_body(version, outcome.error)
    is_loading = isinstance(outcome, CoordinatorLoadingError)
    return heartbeat_body(version, ErrorCode.NONE if is_loading else outcome.code)


# LeaveGroup


async def leave_group(services: Services, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """These members go; each has its outcome, which in old versions, of one member, is that of the request."""
    asked = LeaveRequest(
        group_id=request.group_id,
        members=tuple(
            LeavingMember(member_id=each.member_id, instance_id=each.group_instance_id, reason=each.reason)
            for each in request.members
        ),
    )
    try:
        context.check(Operation.READ, ResourceType.GROUP, asked.group_id)
        shard = services.groups.shard_of(asked.group_id)
        left: LeaveResponse = await shard.ask(lambda now_ms, token: shard.machine.leave(asked, now_ms, token))
    except OttlaError as error:
        left = LeaveResponse(error=_code(error))
    return LeaveGroupResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(left.error),
        members=tuple(
            MemberResponse(
                member_id=each.member_id, group_instance_id=each.instance_id, error_code=wire_error(each.error)
            )
            for each in left.members
        ),
    )
