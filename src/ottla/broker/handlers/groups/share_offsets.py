"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets: where share groups are.

All three go to the coordinator of the group, which asks the share coordinators of the share-partitions.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final
from uuid import UUID

from kio.schema.alter_share_group_offsets.v0 import response as altered
from kio.schema.alter_share_group_offsets.v0.request import AlterShareGroupOffsetsRequest
from kio.schema.alter_share_group_offsets.v0.response import AlterShareGroupOffsetsResponse
from kio.schema.delete_share_group_offsets.v0 import response as deleted
from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
from kio.schema.delete_share_group_offsets.v0.response import DeleteShareGroupOffsetsResponse
from kio.schema.describe_share_group_offsets.v1 import response as described
from kio.schema.describe_share_group_offsets.v1.request import DescribeShareGroupOffsetsRequest
from kio.schema.describe_share_group_offsets.v1.response import DescribeShareGroupOffsetsResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.share.requests import AlteredShareState
from ottla.coordination.share_state.client import end_offset_at
from ottla.coordination.share_state.records import NOT_SET, ShareKey
from ottla.metadata.image import NO_LEADER, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, LeaderNotAvailableError, OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType

_NO_ID: Final = UUID(int=0)
_AT_ONCE: Final = 100
"""Share-partitions that are looked up at the same time."""

_Part = described.DescribeShareGroupOffsetsResponsePartition
_Topic = described.DescribeShareGroupOffsetsResponseTopic
_Group = described.DescribeShareGroupOffsetsResponseGroup


# DescribeShareGroupOffsets


async def describe_share_group_offsets(
    services: Services, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """The start offset and the lag of each share-partition; all of a group that have state if no topic is named."""
    groups = [await _describe(services, context, group.group_id, group.topics) for group in request.groups]
    return DescribeShareGroupOffsetsResponse(throttle_time=milliseconds(0), groups=tuple(groups))


async def _describe(services: Services, context: RequestContext, group_id: str, topics: Sequence[Any] | None) -> _Group:
    try:
        context.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            raise InvalidRequestError("a group id cannot be empty")
        shard = services.groups.shard_of(group_id)
        shard.check_active()
        known = shard.machine.shares.initialized_partitions(group_id)
        if topics is None:
            wanted = {
                name: indexes
                for name, indexes in known.items()
                if context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)
            }
        else:
            wanted = {topic.topic_name: tuple(map(int, topic.partitions)) for topic in topics}
        found = [
            await _describe_topic(services, context, group_id, name, indexes, known.get(name, ()))
            for name, indexes in wanted.items()
        ]
    except OttlaError as error:
        return _Group(
            group_id=GroupId(group_id), topics=(), error_code=wire_error(error.code), error_message=str(error)
        )
    return _Group(
        group_id=GroupId(group_id), topics=tuple(found), error_code=wire_error(ErrorCode.NONE), error_message=None
    )


async def _describe_topic(
    services: Services,
    context: RequestContext,
    group_id: str,
    name: str,
    indexes: Sequence[int],
    known: Collection[int],
) -> _Topic:
    """The partitions of one topic; only those that are `known` to have state are looked up."""
    try:
        context.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
    except OttlaError as error:
        parts = [_described(index, error=error.code, message=str(error)) for index in indexes]
        return _Topic(topic_name=TopicName(name), topic_id=_NO_ID, partitions=tuple(parts))
    topic = services.image.topics.get(name)
    if topic is None:
        # As in OffsetFetch, what does not exist has no offset, which is not an error.
        parts = [_described(index) for index in indexes]
        return _Topic(topic_name=TopicName(name), topic_id=_NO_ID, partitions=tuple(parts))
    parts = []
    for at in range(0, len(indexes), _AT_ONCE):
        asked = [
            _describe_partition(services, group_id, topic, index, has_state=index in known)
            for index in indexes[at : at + _AT_ONCE]
        ]
        parts += await asyncio.gather(*asked)
    return _Topic(topic_name=TopicName(name), topic_id=topic.id, partitions=tuple(parts))


async def _describe_partition(
    services: Services, group_id: str, topic: TopicImage, index: int, *, has_state: bool
) -> _Part:
    if not has_state or not 0 <= index < len(topic.partitions):
        return _described(index)
    summary = await services.share_state.summarize(ShareKey(group_id, topic.id, index))
    if summary.error is not ErrorCode.NONE:
        return _described(index)
    if summary.start_offset == NOT_SET or summary.delivery_complete_count == NOT_SET:
        return _described(index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch)
    try:
        end_offset = await _end_offset(services, topic, index)
    except OttlaError as error:
        return _described(index, error=error.code, message=str(error))
    return _described(
        index,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=max(end_offset - summary.start_offset - summary.delivery_complete_count, 0),
    )


async def _end_offset(services: Services, topic: TopicImage, index: int) -> int:
    here = services.partitions.get(topic.name, index)
    if here is not None:
        return here.high_watermark
    leader = topic.partitions[index].leader
    if leader == NO_LEADER:
        raise LeaderNotAvailableError(f"{topic.name}-{index} has no leader")
    return await end_offset_at(services.share_state.ask_peer, leader, topic.name, index)


def _described(
    index: int,
    *,
    start_offset: int = NOT_SET,
    leader_epoch: int = 0,
    lag: int = NOT_SET,
    error: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
) -> _Part:
    return _Part(
        partition_index=i32(index),
        start_offset=i64(start_offset),
        leader_epoch=i32(leader_epoch),
        lag=i64(lag),
        error_code=wire_error(error),
        error_message=message,
    )


# AlterShareGroupOffsets


async def alter_share_group_offsets(
    services: Services, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Sets the start offsets of share-partitions of a group without members."""
    errors: dict[tuple[str, int], tuple[ErrorCode, str | None]] = {}
    offsets: dict[UUID, dict[int, int]] = {}
    ids: dict[str, UUID] = {}
    try:
        context.check(Operation.READ, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            return _alter_failed(ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
        for topic in request.topics:
            known = services.image.topics.get(topic.topic_name)
            is_allowed = context.allows(Operation.READ, ResourceType.TOPIC, topic.topic_name)
            if is_allowed and known is not None:
                ids[topic.topic_name] = known.id
            for part in topic.partitions:
                place = (topic.topic_name, int(part.partition_index))
                if not is_allowed:
                    errors[place] = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
                elif known is None or not 0 <= part.partition_index < len(known.partitions):
                    errors[place] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
                elif part.start_offset < 0:
                    errors[place] = (ErrorCode.INVALID_REQUEST, "A start offset cannot be negative.")
                else:
                    errors[place] = (ErrorCode.NONE, None)
                    offsets.setdefault(known.id, {})[place[1]] = part.start_offset
        shard = services.groups.shard_of(request.group_id)
        answer: AlteredShareState = await shard.ask(
            lambda now_ms, token: shard.machine.alter_share_offsets(request.group_id, offsets, now_ms, token)
        )
    except OttlaError as error:
        return _alter_failed(error.code, str(error))
    if answer.error is not ErrorCode.NONE:
        return _alter_failed(answer.error, answer.error_message or answer.error.name)
    names = {topic_id: name for name, topic_id in ids.items()}
    for topic_id, index, code in answer.partitions:
        if code is not ErrorCode.NONE:
            errors[names[topic_id], index] = (code, code.name)
    return AlterShareGroupOffsetsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        responses=tuple(
            altered.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=ids.get(topic.topic_name, _NO_ID),
                partitions=tuple(
                    altered.AlterShareGroupOffsetsResponsePartition(
                        partition_index=part.partition_index,
                        error_code=wire_error(errors[topic.topic_name, int(part.partition_index)][0]),
                        error_message=errors[topic.topic_name, int(part.partition_index)][1],
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _alter_failed(error: ErrorCode, why: str) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(
        throttle_time=milliseconds(0), error_code=wire_error(error), error_message=why, responses=()
    )


# DeleteShareGroupOffsets


async def delete_share_group_offsets(
    services: Services, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Deletes the state of topics, of a group without members."""
    errors: dict[str, tuple[ErrorCode, str | None]] = {}
    ids: dict[str, UUID] = {}
    try:
        context.check(Operation.DELETE, ResourceType.GROUP, request.group_id)
        if not request.group_id:
            return _delete_failed(ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
        for each in request.topics:
            known = services.image.topics.get(each.topic_name)
            if not context.allows(Operation.READ, ResourceType.TOPIC, each.topic_name):
                errors[each.topic_name] = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
            elif known is None:
                errors[each.topic_name] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic does not exist.")
            else:
                ids[each.topic_name] = known.id
        shard = services.groups.shard_of(request.group_id)
        answer: AlteredShareState = await shard.ask(
            lambda now_ms, token: shard.machine.delete_share_offsets(
                request.group_id, tuple(ids.values()), now_ms, token
            )
        )
    except OttlaError as error:
        return _delete_failed(error.code, str(error))
    if answer.error is not ErrorCode.NONE:
        return _delete_failed(answer.error, answer.error_message or answer.error.name)
    outcomes: dict[UUID, ErrorCode] = {}
    for topic_id, _, code in answer.partitions:
        outcomes[topic_id] = code if outcomes.get(topic_id, ErrorCode.NONE) is ErrorCode.NONE else outcomes[topic_id]
    for name, topic_id in ids.items():
        if topic_id not in outcomes:
            errors[name] = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete.")
        else:
            code = outcomes[topic_id]
            errors[name] = (code, None if code is ErrorCode.NONE else code.name)
    return DeleteShareGroupOffsetsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        responses=tuple(
            deleted.DeleteShareGroupOffsetsResponseTopic(
                topic_name=TopicName(name),
                topic_id=ids.get(name, _NO_ID),
                error_code=wire_error(code),
                error_message=message,
            )
            for name, (code, message) in errors.items()
        ),
    )


def _delete_failed(error: ErrorCode, why: str) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(
        throttle_time=milliseconds(0), error_code=wire_error(error), error_message=why, responses=()
    )
