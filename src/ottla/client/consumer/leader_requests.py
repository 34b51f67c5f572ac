"""What a consumer asks a leader about partitions besides records: offsets by time, and where a leader epoch ends.

One question to one broker; every partition has its own answer or error code. Trying again is the caller's.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds
from ottla.transport.client_connection import Connection


class OffsetAnswer(NamedTuple):
    """An offset, or an error code; (-1, -1) if there is no record of that time."""

    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int


class EpochAnswer(NamedTuple):
    """The last epoch up to the one that was asked for, and where it ends; (-1, -1) if there is none."""

    error_code: int
    epoch: int
    end_offset: int


async def ask_offsets(
    connection: Connection, wanted: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> dict[TopicPartition, OffsetAnswer]:
    """For each partition the first offset at or after a time, or what `START` and `END` stand for."""
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    topics: dict[str, list[ListOffsetsPartition]] = {}
    for partition, timestamp in wanted.items():
        topics.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=i32(partition.partition), timestamp=i64(timestamp))
        )
    message = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation_level),
        topics=tuple(ListOffsetsTopic(name=TopicName(topic), partitions=tuple(some)) for topic, some in topics.items()),
        timeout=milliseconds(timeout_ms),
    )
    answer = await connection.request(ApiKey.LIST_OFFSETS, message, timeout_ms=timeout_ms)
    return {
        TopicPartition(topic.name, int(each.partition_index)): OffsetAnswer(
            int(each.error_code), int(each.offset), int(each.timestamp), int(each.leader_epoch)
        )
        for topic in answer.topics
        for each in topic.partitions
    }


async def ask_epoch_ends(
    connection: Connection, wanted: Mapping[TopicPartition, tuple[int, int]], timeout_ms: int
) -> dict[TopicPartition, EpochAnswer]:
    """For each partition, by (the leader epoch that is known, the epoch that is asked about)."""
    from kio.schema.offset_for_leader_epoch.v4.request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
    )
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i32

    topics: dict[str, list[OffsetForLeaderPartition]] = {}
    for partition, (leader_epoch, epoch) in wanted.items():
        topics.setdefault(partition.topic, []).append(
            OffsetForLeaderPartition(
                partition=i32(partition.partition), current_leader_epoch=i32(leader_epoch), leader_epoch=i32(epoch)
            )
        )
    message = OffsetForLeaderEpochRequest(
        replica_id=BrokerId(-1),
        topics=tuple(
            OffsetForLeaderTopic(topic=TopicName(topic), partitions=tuple(some)) for topic, some in topics.items()
        ),
    )
    answer = await connection.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, message, timeout_ms=timeout_ms)
    return {
        TopicPartition(topic.topic, int(each.partition)): EpochAnswer(
            int(each.error_code), int(each.leader_epoch), int(each.end_offset)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
