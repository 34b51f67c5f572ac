"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups whose partitions the broker assigns itself.

From the wire to the group's shard and back; the rules are in `ottla.coordination.groups.consumer.groups_state`.
"""

from collections.abc import Coroutine, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kio.schema.consumer_group_describe.v1 import response as described
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32

from ottla.broker.handlers.groups.group_members import client_host
from ottla.broker.handlers.long_requests import matching_texts, with_pauses
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.consumer.groups_state import PlainJoin
from ottla.coordination.groups.consumer.requests import (
    ConsumerHeartbeat,
    ConsumerHeartbeatResponse,
    DescribedConsumerGroup,
    DescribedMember,
    DescribedPartitions,
)
from ottla.coordination.runtime.effects import Effect
from ottla.coordination.runtime.reply import Reply
from ottla.metadata.features import GROUP_VERSION
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, UnsupportedVersionError
from ottla.protocol.consumer_heartbeats import ConsumerHeartbeatRequest
from ottla.protocol.group_answers import consumer_heartbeat_body
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType

if TYPE_CHECKING:
    from ottla.coordination.groups.coordinator import GroupsShard

_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def _check_served(services: Services) -> None:
    """Raises UnsupportedVersionError while consumer groups are disabled by group.version 0."""
    if services.image.features.get(GROUP_VERSION, 0) < 1:
        raise UnsupportedVersionError(f"{GROUP_VERSION} is 0: consumer groups are disabled in this cluster")


# ConsumerGroupHeartbeat


def consumer_group_heartbeat(
    services: Services, context: RequestContext, request: ConsumerHeartbeatRequest
) -> Reply | bytes | Coroutine[Any, Any, bytes]:
    """A member joins, stays, changes its subscription or leaves; the response has its assignment."""
    asked = ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.topic_names,
        topic_regex=request.topic_regex,
        server_assignor=request.server_assignor,
        owned_partitions=request.owned_partitions,
        client_id=context.client_id or "",
        client_host=client_host(context),
        api_version=context.version,
    )
    try:
        _check_served(services)
        context.check(Operation.READ, ResourceType.GROUP, asked.group_id)
        for topic in asked.topic_names or ():
            context.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        shard = services.groups.shard_of(asked.group_id)
        shard.check_active()
        joins, reply = services.groups.joins, Reply(_heartbeat_answer)
        has_patterns = shard.machine.consumers.has_patterns(asked)
        if asked.is_plain_join and not has_patterns:
            joins.add(shard, PlainJoin(asked, reply))
        else:
            joins.decide_for(shard, asked.group_id, asked.member_id)
            if has_patterns:
                return _after_matching(shard, context, asked)
            shard.hand(shard.machine.consumer_heartbeat, asked, reply)
    except OttlaError as error:
        return _heartbeat_answer(error)
    return reply


async def _after_matching(shard: "GroupsShard", context: RequestContext, asked: ConsumerHeartbeat) -> bytes:
    """First matches the patterns that are due against the names of all topics, and gives way to other work."""

    def may_describe(topic: str) -> bool:
        return context.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    consumers = shard.machine.consumers
    patterns = consumers.patterns_of(asked, shard.now_ms())
    for pattern in patterns:
        names = pattern.unmatched(consumers.topics)
        pattern.remember(names, await matching_texts(pattern.pattern, names))

    def decide(now_ms: int, token: Hashable) -> Sequence[Effect]:
        shard.machine.consumers.keep(patterns)
        return shard.machine.consumer_heartbeat(asked, now_ms, token, may_describe)

    try:
        return _heartbeat_answer(await shard.ask(decide))
    except OttlaError as error:
        return _heartbeat_answer(error)


def _heartbeat_answer(outcome: ConsumerHeartbeatResponse | OttlaError) -> bytes:
    if isinstance(outcome, OttlaError):
        outcome = ConsumerHeartbeatResponse(error=outcome.code, error_message=str(outcome))
    return consumer_heartbeat_body(
        error=outcome.error,
        error_message=outcome.error_message,
        member_id=outcome.member_id,
        member_epoch=outcome.member_epoch,
        heartbeat_interval_ms=outcome.heartbeat_interval_ms,
        assignment=outcome.assignment,
    )


# ConsumerGroupDescribe


async def consumer_group_describe(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Each group with its members, what they have, and what they are to have."""
    asks = request.include_authorized_operations
    groups = [
        _described(context, _describe(services, context, group_id), asks_operations=asks)
        async for group_id in with_pauses(request.group_ids)
    ]
    return ConsumerGroupDescribeResponse(throttle_time=milliseconds(0), groups=tuple(groups))


def _describe(services: Services, context: RequestContext, group_id: str) -> DescribedConsumerGroup:
    try:
        _check_served(services)
        context.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            return _refused(group_id, ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
        shard = services.groups.shard_of(group_id)
        shard.check_active()
    except OttlaError as error:
        return _refused(group_id, error.code, str(error))
    group = shard.machine.describe_consumer_group(group_id)
    if not context.authorizer.allows_all:
        hidden = [name for name in _topics_of(group) if not context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)]
        if hidden:
            why = "the group uses topics that the client may not describe"
            return _refused(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
    return group


def _topics_of(group: DescribedConsumerGroup) -> set[str]:
    """The topics that a description would name."""
    return {
        name
        for member in group.members
        for name in (
            *member.topic_names,
            *(each.topic_name for each in member.assignment),
            *(each.topic_name for each in member.target_assignment),
        )
    }


def _refused(group_id: str, error: ErrorCode, why: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error=error, error_message=why)


def _described(
    context: RequestContext, group: DescribedConsumerGroup, *, asks_operations: bool
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


def _member(member: DescribedMember) -> described.Member:
    return described.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=i32(member.member_epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topic_names)),
        subscribed_topic_regex=member.topic_regex,
        assignment=_partitions(member.assignment),
        target_assignment=_partitions(member.target_assignment),
        member_type=i8(_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER),
    )


def _partitions(topics: Sequence[DescribedPartitions]) -> described.Assignment:
    return described.Assignment(
        topic_partitions=tuple(
            described.TopicPartitions(
                topic_id=topic.topic_id,
                topic_name=TopicName(topic.topic_name),
                partitions=_wire_indexes(topic.partitions),
            )
            for topic in topics
        )
    )


def _wire_indexes(partitions: Sequence[int]) -> tuple[i32, ...]:
    return tuple(map(i32, partitions))
