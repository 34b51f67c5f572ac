"""Where a partition begins, ends, or was at some time: ListOffsets, asked of each leader for all its partitions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.ids import NO_OFFSET, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import READ_UNCOMMITTED

END: Final = -1
"""The offset after the last record that a consumer may see."""
START: Final = -2
"""The first offset that is still there."""
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp."""


class FoundOffset(NamedTuple):
    """An offset and its record's timestamp; (-1, -1) if no record is that young."""

    offset: int
    timestamp: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the first offset at or after a time in ms, or what `END`, `START`, `MAX_TIMESTAMP` stand for.

    Tried again while leaders move; raises the first refusal that is final.
    """

    async def ask_all() -> dict[TopicPartition, FoundOffset]:
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in wanted:
            by_leader[await cluster.leader_of(partition)].append(partition)
        found: dict[TopicPartition, FoundOffset] = {}
        for leader, partitions in by_leader.items():
            message = _request({each: wanted[each] for each in partitions}, isolation_level)
            response = await cluster.to_broker(leader, ApiKey.LIST_OFFSETS, message)
            found.update(_answers(response))
        return found

    return await cluster.retry(ask_all, timeout_ms=timeout_ms)


async def offset_bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, tuple[int, int]]:
    """(start, end) of each partition; the end is exclusive, and for read_committed the last stable offset."""
    asked = list(partitions)
    starts = await list_offsets(cluster, dict.fromkeys(asked, START))
    ends = await list_offsets(cluster, dict.fromkeys(asked, END), isolation_level=isolation_level)
    return {each: (starts[each].offset, max(ends[each].offset, starts[each].offset)) for each in asked}


def _request(wanted: Mapping[TopicPartition, int], isolation_level: int) -> Any:
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    from ottla.protocol.messages import milliseconds

    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for partition, timestamp in wanted.items():
        topics[partition.topic].append(
            ListOffsetsPartition(partition_index=i32(partition.partition), timestamp=i64(timestamp))
        )
    return ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation_level),
        topics=tuple(ListOffsetsTopic(name=TopicName(topic), partitions=tuple(some)) for topic, some in topics.items()),
        timeout=milliseconds(30_000),
    )


def _answers(response: Any) -> Iterable[tuple[TopicPartition, FoundOffset]]:
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, int(each.partition_index))
            if each.error_code:
                raise answer_error(int(each.error_code), f"offsets of {partition}")
            found = FoundOffset(int(each.offset), int(each.timestamp))
            yield partition, found if found.offset >= 0 else FoundOffset(NO_OFFSET, -1)
