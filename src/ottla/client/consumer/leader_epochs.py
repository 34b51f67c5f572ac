"""OffsetForLeaderEpoch: where a leader epoch ends in the log, by which a consumer finds out that records were lost."""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.transport.client_connection import Connection


class EpochAnswer(NamedTuple):
    """The largest leader epoch up to the requested one, and its end offset; (-1, -1) if there is none."""

    error_code: int
    epoch: int
    end_offset: int


async def ask_epoch_ends(
    connection: Connection, wanted: Mapping[TopicPartition, tuple[int, int]], timeout_ms: int
) -> dict[TopicPartition, EpochAnswer]:
    """Asks one broker, for each partition by (current leader epoch, requested epoch). Retries are up to the caller."""
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
