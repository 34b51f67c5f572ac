"""ShareGroupHeartbeat and ShareGroupDescribe: the members of share groups.

From the wire to the group's shard and back; the rules are in `ottla.coordination.groups.share.groups_state`.
"""

from collections.abc import Sequence

from kio.schema.share_group_describe.v1 import response as described
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import Assignment, ShareGroupHeartbeatResponse, TopicPartitions
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from ottla.broker.handlers.groups.group_members import client_host
from ottla.broker.handlers.long_requests import with_pauses
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.share.requests import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareHeartbeat,
    ShareHeartbeatResponse,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType


async def share_group_heartbeat(
    services: Services, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """A member joins, stays, changes its subscription or leaves; the response has its assignment."""
    asked = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        rack_id=request.rack_id,
        topic_names=request.subscribed_topic_names,
        client_id=context.client_id or "",
        client_host=client_host(context),
    )
    try:
        context.check(Operation.READ, ResourceType.GROUP, asked.group_id)
        for topic in asked.topic_names or ():
            context.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        shard = services.groups.shard_of(asked.group_id)
        answer: ShareHeartbeatResponse = await shard.ask(
            lambda now_ms, token: shard.machine.share_heartbeat(asked, now_ms, token)
        )
    except OttlaError as error:
        answer = ShareHeartbeatResponse(error=error.code, error_message=str(error))
    assignment = answer.assignment
    return ShareGroupHeartbeatResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(answer.error),
        error_message=answer.error_message,
        member_id=answer.member_id,
        member_epoch=i32(answer.member_epoch),
        heartbeat_interval=milliseconds(answer.heartbeat_interval_ms),
        assignment=None
        if assignment is None
        else Assignment(
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, partitions=_wire_indexes(partitions))
                for topic_id, partitions in assignment.items()
            )
        ),
    )


async def share_group_describe(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Each group with its members and what they have."""
    asks = request.include_authorized_operations
    groups = [
        _described(context, _describe(services, context, group_id), asks_operations=asks)
        async for group_id in with_pauses(request.group_ids)
    ]
    return ShareGroupDescribeResponse(throttle_time=milliseconds(0), groups=tuple(groups))


def _describe(services: Services, context: RequestContext, group_id: str) -> DescribedShareGroup:
    try:
        context.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            return _refused(group_id, ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
        shard = services.groups.shard_of(group_id)
        shard.check_active()
    except OttlaError as error:
        return _refused(group_id, error.code, str(error))
    group = shard.machine.describe_share_group(group_id)
    topics = {
        name
        for member in group.members
        for name in (*member.topic_names, *(each.topic_name for each in member.assignment))
    }
    if not all(context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in sorted(topics)):
        why = "The group has described topic(s) that the client is not authorized to describe."
        return _refused(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
    return group


def _refused(group_id: str, error: ErrorCode, why: str) -> DescribedShareGroup:
    return DescribedShareGroup(group_id=group_id, error=error, error_message=why)


def _described(
    context: RequestContext, group: DescribedShareGroup, *, asks_operations: bool
) -> described.DescribedGroup:
    has_operations = asks_operations and group.error is ErrorCode.NONE
    return described.DescribedGroup(
        error_code=wire_error(group.error),
        error_message=group.error_message,
        group_id=GroupId(group.group_id),
        group_state=group.group_state if group.error is ErrorCode.NONE else "",
        group_epoch=i32(group.group_epoch),
        assignment_epoch=i32(group.assignment_epoch),
        assignor_name=group.assignor,
        members=tuple(map(_member, group.members)),
        authorized_operations=i32(context.operations(ResourceType.GROUP, group.group_id, requested=has_operations)),
    )


def _member(member: DescribedShareMember) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topic_names)),
        assignment=described.Assignment(
            topic_partitions=tuple(
                described.TopicPartitions(
                    topic_id=topic.topic_id,
                    topic_name=TopicName(topic.topic_name),
                    partitions=_wire_indexes(topic.partitions),
                )
                for topic in member.assignment
            )
        ),
    )


def _wire_indexes(partitions: Sequence[int]) -> tuple[i32, ...]:
    return tuple(map(i32, partitions))
