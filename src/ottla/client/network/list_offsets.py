"""Offsets of partitions: start, end, or by timestamp. One ListOffsets request for each leader."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import NO_OFFSET, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import READ_UNCOMMITTED
from ottla.transport.client_connection import Connection

END: Final = -1
"""The offset after the last record that consumers can read."""
START: Final = -2
"""The log start offset."""
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp."""


class FoundOffset(NamedTuple):
    """An offset and the timestamp of its record; (-1, -1) if there is no such record."""

    offset: int
    timestamp: int


class OffsetAnswer(NamedTuple):
    """A leader's answer for one partition: an offset with its timestamp, -1 if there is no such record."""

    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the first offset at or after a timestamp in ms, or that of `END`, `START`, `MAX_TIMESTAMP`.

    Retries retriable errors; raises the first final one.
    """
    found = await find_offsets(cluster, wanted, isolation_level=isolation_level, timeout_ms=timeout_ms)
    return {
        each: FoundOffset(answer.offset, answer.timestamp) if answer.offset >= 0 else FoundOffset(NO_OFFSET, -1)
        for each, answer in found.items()
    }


async def find_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    timeout_ms: int | None = None,
    give_up: Collection[ErrorCode] = (),
) -> dict[TopicPartition, OffsetAnswer]:
    """As `list_offsets`, with all that the leaders answer. Error codes in `give_up` are raised at once."""
    found: dict[TopicPartition, OffsetAnswer] = {}

    async def ask_missing() -> None:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in wanted.items():
            if partition not in found:
                by_leader.setdefault(await cluster.leader_of(partition), {})[partition] = timestamp
        for leader, some in by_leader.items():
            connection = await cluster.broker_connection(leader)
            answers = await ask_offsets(connection, some, isolation_level, cluster.request_timeout_ms)
            found.update({partition: answer for partition, answer in answers.items() if not answer.error_code})
            for partition, answer in answers.items():
                if answer.error_code:
                    raise answer_error(answer.error_code, f"offsets of {partition}")

    await cluster.retry(ask_missing, timeout_ms=timeout_ms, give_up=give_up)
    return {partition: found[partition] for partition in wanted}


async def ask_offsets(
    connection: Connection, wanted: Mapping[TopicPartition, int], isolation_level: int, timeout_ms: int
) -> dict[TopicPartition, OffsetAnswer]:
    """Asks one broker. Every partition has its own answer or error code; retries are up to the caller."""
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i8, i32, i64

    from ottla.protocol.messages import milliseconds

    # Few different ones for many topics, which begin with partition 0 and are asked for the same.
    made: dict[tuple[int, int], ListOffsetsPartition] = {}
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, index), timestamp in wanted.items():
        asked = made.get((index, timestamp))
        if asked is None:
            asked = ListOffsetsPartition(partition_index=i32(index), timestamp=i64(timestamp))
            made[index, timestamp] = asked
        topics.setdefault(topic, []).append(asked)
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


async def offset_bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, isolation_level: int = READ_UNCOMMITTED
) -> dict[TopicPartition, tuple[int, int]]:
    """(start, end) of each partition; the end is exclusive, and for read_committed the last stable offset."""
    asked = list(partitions)
    starts = await list_offsets(cluster, dict.fromkeys(asked, START))
    ends = await list_offsets(cluster, dict.fromkeys(asked, END), isolation_level=isolation_level)
    return {each: (starts[each].offset, max(ends[each].offset, starts[each].offset)) for each in asked}
