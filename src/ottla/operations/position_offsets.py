"""Positions, as `positions.py` reads them, as offsets of the partitions of a topic."""

from collections.abc import Mapping, Sequence

from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.network.list_offsets import list_offsets, offset_bounds
from ottla.model.ids import TopicPartition
from ottla.operations.positions import AtOffset, AtTime, Beginning, End, FromEnd, Position

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""The offsets of each partition: start, and end (exclusive)."""


async def bounds_of(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: Position, end: Position, *, isolation_level: int
) -> dict[TopicPartition, tuple[int, int]]:
    """The present offsets of two positions in each partition."""
    whole = await offset_bounds(cluster, partitions, isolation_level=isolation_level)
    starts = await resolve(cluster, start, whole)
    ends = await resolve(cluster, end, whole)
    return {each: (starts[each], max(ends[each], starts[each])) for each in partitions}


async def chosen_partitions(cluster: Cluster, name: str, partitions: Sequence[int] | None) -> list[TopicPartition]:
    """All partitions of a topic, or these. Raises `UnknownPartitionInTopicError`."""
    count = len((await cluster.topic(name)).partitions)
    for index in partitions or ():
        if not 0 <= index < count:
            counted = "1 partition" if count == 1 else f"{count} partitions"
            raise UnknownPartitionInTopicError(f"topic {name} has no partition {index}; it has {counted}, from 0")
    chosen = sorted(set(partitions)) if partitions else range(count)
    return [TopicPartition(name, index) for index in chosen]


async def resolve(cluster: Cluster, position: Position, bounds: Bounds) -> dict[TopicPartition, int]:
    """The offset of a position in each partition, between its bounds."""
    match position:
        case Beginning():
            return {each: start for each, (start, _) in bounds.items()}
        case End():
            return {each: end for each, (_, end) in bounds.items()}
        case AtOffset(offset):
            return {each: min(max(offset, start), end) for each, (start, end) in bounds.items()}
        case FromEnd(count):
            return {each: max(end - count, start) for each, (start, end) in bounds.items()}
        case AtTime(timestamp):
            # Negative timestamps are not times: -1 would be the end.
            found = await list_offsets(cluster, dict.fromkeys(bounds, max(0, timestamp)))
            return {
                each: min(found[each].offset if found[each].offset >= 0 else end, end)
                for each, (_, end) in bounds.items()
            }
