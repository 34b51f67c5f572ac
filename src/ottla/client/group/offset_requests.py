"""OffsetCommit and OffsetFetch of a group member. One request each, without retries.

`ottla.client.admin.group_offsets` does the same from outside the group.
"""

from collections.abc import Collection, Mapping

from ottla.client.errors import answer_error
from ottla.client.values import OffsetAndMetadata
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import LAST_BY_NAME, ApiKey
from ottla.transport.client_connection import Connection


async def ask_commit(
    connection: Connection,
    group_id: str,
    member: tuple[str, int, str | None],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    timeout_ms: int,
) -> dict[TopicPartition, int]:
    """Commits as (member id, generation or epoch, instance id). Returns the error codes of refused partitions."""
    from kio.schema.offset_commit.v9.request import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
    )
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32, i64

    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, committed in offsets.items():
        by_topic.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=i32(partition.partition),
                committed_offset=i64(committed.offset),
                committed_leader_epoch=i32(committed.leader_epoch),
                committed_metadata=committed.metadata,
            )
        )
    member_id, generation, instance_id = member
    message = OffsetCommitRequest(
        group_id=GroupId(group_id),
        generation_id_or_member_epoch=i32(generation),
        member_id=member_id,
        group_instance_id=instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=TopicName(topic), partitions=tuple(some)) for topic, some in by_topic.items()
        ),
    )
    version_max = LAST_BY_NAME[ApiKey.OFFSET_COMMIT]
    answer = await connection.request(ApiKey.OFFSET_COMMIT, message, version_max=version_max, timeout_ms=timeout_ms)
    return {
        TopicPartition(topic.name, int(each.partition_index)): int(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code
    }


async def ask_committed(
    connection: Connection,
    group_id: str,
    member: tuple[str, int] | None,
    partitions: Collection[TopicPartition],
    timeout_ms: int,
    *,
    stable_only: bool,
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """The committed offset of each partition, None if there is none. Raises `AnswerError`.

    With `stable_only`, offsets that an open transaction may change raise a retriable error. `member` is (member id,
    epoch) in the consumer protocol.
    """
    from kio.schema.offset_fetch.v9.request import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopics,
    )
    from kio.schema.types import GroupId, TopicName
    from kio.static.primitive import i32

    by_topic: dict[str, list[i32]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(i32(partition.partition))
    asked = OffsetFetchRequestGroup(
        group_id=GroupId(group_id),
        member_id=None if member is None else member[0],
        member_epoch=i32(-1 if member is None else member[1]),
        topics=tuple(
            OffsetFetchRequestTopics(name=TopicName(topic), partition_indexes=tuple(some))
            for topic, some in by_topic.items()
        ),
    )
    message = OffsetFetchRequest(groups=(asked,), require_stable=stable_only)
    version_max = LAST_BY_NAME[ApiKey.OFFSET_FETCH]
    answer = await connection.request(ApiKey.OFFSET_FETCH, message, version_max=version_max, timeout_ms=timeout_ms)
    (group,) = answer.groups
    if group.error_code:
        raise answer_error(int(group.error_code), f"committed offsets of group {group_id}")
    found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, int(each.partition_index))
            if each.error_code:
                raise answer_error(int(each.error_code), f"committed offset of group {group_id} in {partition}")
            if each.committed_offset >= 0:
                found[partition] = OffsetAndMetadata(
                    int(each.committed_offset), each.metadata or "", int(each.committed_leader_epoch)
                )
    return found
