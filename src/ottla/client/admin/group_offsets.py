"""Admin requests about committed offsets of groups: read, commit, delete.

Each function retries retriable errors. Members of groups are in `group_requests.py`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ottla.client.admin.group_requests import group_error, refuse
from ottla.client.errors import AnswerError, RetriableAnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator, to_coordinator
from ottla.client.values import OffsetAndMetadata
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import LAST_BY_NAME, ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The committed offset of a group in one partition."""

    offset: int
    leader_epoch: int
    metadata: str


async def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """All committed offsets of a group, by partition; empty for a group that does not exist."""
    from kio.schema.offset_fetch.v9.request import OffsetFetchRequest, OffsetFetchRequestGroup
    from kio.schema.types import GroupId

    message = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=GroupId(group_id), topics=None),))

    async def ask() -> dict[TopicPartition, CommittedOffset]:
        response = await _by_name(cluster, group_id, ApiKey.OFFSET_FETCH, message)
        (group,) = response.groups
        if int(group.error_code) == ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        refuse(group, f"offsets of group {group_id}")
        found: dict[TopicPartition, CommittedOffset] = {}
        for topic in group.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, int(each.partition_index))
                refuse(each, f"offset of group {group_id} in {partition}")
                if each.committed_offset >= 0:
                    found[partition] = CommittedOffset(
                        offset=int(each.committed_offset),
                        leader_epoch=int(each.committed_leader_epoch),
                        metadata=each.metadata or "",
                    )
        return dict(sorted(found.items()))

    return await cluster.retry(ask)


async def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
) -> dict[TopicPartition, AnswerError]:
    """Commits offsets for a group without members, and creates the group if necessary; returns the errors."""
    from kio.schema.offset_commit.v9.request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32, i64

    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for partition, given in offsets.items():
        wish = OffsetAndMetadata(given) if isinstance(given, int) else given
        by_topic[partition.topic].append(
            OffsetCommitRequestPartition(
                partition_index=i32(partition.partition),
                committed_offset=i64(wish.offset),
                committed_leader_epoch=i32(wish.leader_epoch),
                committed_metadata=wish.metadata,
            )
        )
    message = OffsetCommitRequest(
        group_id=GroupId(group_id),
        member_id="",
        topics=tuple(
            OffsetCommitRequestTopic(name=TopicName(topic), partitions=tuple(some)) for topic, some in by_topic.items()
        ),
    )

    async def ask() -> dict[TopicPartition, AnswerError]:
        response = await _by_name(cluster, group_id, ApiKey.OFFSET_COMMIT, message)
        return _refusals(response.topics, group_id)

    return await cluster.retry(ask)


async def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, AnswerError]:
    """Deletes committed offsets of a group for these partitions; returns the errors."""
    from kio.schema.offset_delete.v0.request import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
    )
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(
            OffsetDeleteRequestPartition(partition_index=i32(partition.partition))
        )
    message = OffsetDeleteRequest(
        group_id=GroupId(group_id),
        topics=tuple(
            OffsetDeleteRequestTopic(name=TopicName(topic), partitions=tuple(some)) for topic, some in by_topic.items()
        ),
    )

    async def ask() -> dict[TopicPartition, AnswerError]:
        response = await to_coordinator(cluster, CoordinatorType.GROUP, group_id, ApiKey.OFFSET_DELETE, message)
        refuse(response, f"group {group_id}")
        return _refusals(response.topics, group_id)

    return await cluster.retry(ask)


async def _by_name(cluster: Cluster, group_id: str, api_key: ApiKey, message: Any) -> Any:
    """Uses a version with topic names, not ids: the topic may be deleted."""
    connection = await cluster.broker_connection(await find_coordinator(cluster, CoordinatorType.GROUP, group_id))
    return await connection.request(
        api_key, message, version_max=LAST_BY_NAME[api_key], timeout_ms=cluster.request_timeout_ms
    )


def _refusals(topics: Iterable[Any], group_id: str) -> dict[TopicPartition, AnswerError]:
    """The final errors; raises a retriable one, since the whole request can be repeated."""
    refused: dict[TopicPartition, AnswerError] = {}
    for topic in topics:
        for each in topic.partitions:
            if not each.error_code:
                continue
            partition = TopicPartition(topic.name, int(each.partition_index))
            error = group_error(int(each.error_code), f"offset of group {group_id} in {partition}")
            is_missing = error.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if isinstance(error, RetriableAnswerError) and not is_missing:
                raise error
            refused[partition] = error
    return refused
