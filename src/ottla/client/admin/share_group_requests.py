"""Admin requests about share groups: describe; list, alter and delete the offsets from which they deliver records.

Each function retries retriable errors and raises `AnswerError`. A share group is deleted like any other group
(`group_requests.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.admin.group_requests import GroupDescription, GroupMember, assigned, group_error, refuse
from ottla.client.errors import AnswerError, RetriableAnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator, to_coordinator
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey

SHARE: Final = "share"
"""The type of share groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupOffset:
    """How far a share group is in one partition."""

    start_offset: int
    """The share-partition start offset: the group is done with all records before it."""
    leader_epoch: int
    lag: int | None
    """How many records are not delivered or not acknowledged; None if the broker does not know."""


async def describe_share_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """Describes a share group. Raises `AnswerError` with GROUP_ID_NOT_FOUND if it does not exist or is not one."""
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
    from kio.schema.types import GroupId

    message = ShareGroupDescribeRequest(group_ids=(GroupId(group_id),), include_authorized_operations=False)

    async def ask() -> GroupDescription:
        coordinator = await find_coordinator(cluster, CoordinatorType.GROUP, group_id)
        response = await cluster.to_broker(coordinator, ApiKey.SHARE_GROUP_DESCRIBE, message)
        (group,) = response.groups
        refuse(group, f"share group {group_id}")
        return GroupDescription(
            group_id=group_id,
            type=SHARE,
            state=group.group_state,
            protocol_type=SHARE,
            assignor=group.assignor_name,
            coordinator=coordinator,
            group_epoch=int(group.group_epoch),
            assignment_epoch=int(group.assignment_epoch),
            members=tuple(
                GroupMember(
                    member_id=each.member_id,
                    instance_id=None,
                    client_id=each.client_id,
                    host=each.client_host,
                    assignment=assigned(each.assignment),
                    member_epoch=int(each.member_epoch),
                    subscription=tuple(each.subscribed_topic_names),
                )
                for each in group.members
            ),
        )

    return await cluster.retry(ask)


async def share_group_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, ShareGroupOffset]:
    """The start offsets of a share group: of these partitions, or of all. Those without one are left out."""
    from kio.schema.describe_share_group_offsets.v1.request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsRequestTopic,
    )
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    topics = None
    if partitions is not None:
        topics = tuple(
            DescribeShareGroupOffsetsRequestTopic(topic_name=TopicName(topic), partitions=tuple(map(i32, indexes)))
            for topic, indexes in _by_topic(partitions).items()
        )
    message = DescribeShareGroupOffsetsRequest(
        groups=(DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group_id), topics=topics),)
    )

    async def ask() -> dict[TopicPartition, ShareGroupOffset]:
        response = await to_coordinator(
            cluster, CoordinatorType.GROUP, group_id, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, message
        )
        (group,) = response.groups
        refuse(group, f"offsets of share group {group_id}")
        found: dict[TopicPartition, ShareGroupOffset] = {}
        for topic in group.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.topic_name, int(each.partition_index))
                refuse(each, f"offset of share group {group_id} in {partition}")
                if each.start_offset >= 0:
                    found[partition] = ShareGroupOffset(
                        start_offset=int(each.start_offset),
                        leader_epoch=int(each.leader_epoch),
                        lag=None if each.lag < 0 else int(each.lag),
                    )
        return dict(sorted(found.items()))

    return await cluster.retry(ask)


async def alter_share_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, AnswerError]:
    """Sets the start offsets of a share group without members; returns the errors."""
    from kio.schema.alter_share_group_offsets.v0.request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestPartition,
        AlterShareGroupOffsetsRequestTopic,
    )
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32, i64

    message = AlterShareGroupOffsetsRequest(
        group_id=GroupId(group_id),
        topics=tuple(
            AlterShareGroupOffsetsRequestTopic(
                topic_name=TopicName(topic),
                partitions=tuple(
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=i32(index), start_offset=i64(offsets[TopicPartition(topic, index)])
                    )
                    for index in indexes
                ),
            )
            for topic, indexes in _by_topic(offsets).items()
        ),
    )

    async def ask() -> dict[TopicPartition, AnswerError]:
        response = await to_coordinator(
            cluster, CoordinatorType.GROUP, group_id, ApiKey.ALTER_SHARE_GROUP_OFFSETS, message
        )
        refuse(response, f"share group {group_id}")
        return _refused(
            (
                (TopicPartition(topic.topic_name, int(each.partition_index)), each)
                for topic in response.responses
                for each in topic.partitions
            ),
            group_id,
        )

    return await cluster.retry(ask)


async def delete_share_group_offsets(cluster: Cluster, group_id: str, topics: Iterable[str]) -> dict[str, AnswerError]:
    """Deletes the offsets of a share group without members in these topics; returns the errors."""
    from kio.schema.delete_share_group_offsets.v0.request import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsRequestTopic,
    )
    from kio.schema.types import GroupId, TopicName

    message = DeleteShareGroupOffsetsRequest(
        group_id=GroupId(group_id),
        topics=tuple(DeleteShareGroupOffsetsRequestTopic(topic_name=TopicName(each)) for each in topics),
    )

    async def ask() -> dict[str, AnswerError]:
        response = await to_coordinator(
            cluster, CoordinatorType.GROUP, group_id, ApiKey.DELETE_SHARE_GROUP_OFFSETS, message
        )
        refuse(response, f"share group {group_id}")
        return _refused(((each.topic_name, each) for each in response.responses), group_id)

    return await cluster.retry(ask)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def _refused(answers: Iterable[tuple[Any, Any]], group_id: str) -> dict[Any, AnswerError]:
    """The final errors; raises a retriable one, since the whole request can be repeated."""
    refused: dict[Any, AnswerError] = {}
    for key, answer in answers:
        if not answer.error_code:
            continue
        error = group_error(int(answer.error_code), f"offset of share group {group_id} in {key}", answer.error_message)
        is_missing = error.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if isinstance(error, RetriableAnswerError) and not is_missing:
            raise error
        refused[key] = error
    return refused
