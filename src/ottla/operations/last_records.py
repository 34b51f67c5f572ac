"""The last records of partitions that a reader sees, found by reading backwards in growing steps.

Offsets cannot be counted instead: transaction markers, aborted records and records that compaction removed have offsets
and are not seen.
"""

from collections import deque
from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.model.ids import TopicPartition
from ottla.records.record import Record

STEP_OFFSETS_MIN: Final = 100
STEP_GROWTH: Final = 4


async def last_of_each(
    cluster: Cluster, bounds: Mapping[TopicPartition, tuple[int, int]], count: int, *, isolation_level: int
) -> dict[TopicPartition, list[Record]]:
    """The last `count` records of each partition between two offsets, in order; fewer where there are fewer."""
    found: dict[TopicPartition, list[Record]] = {each: [] for each in bounds}
    ends = {each: end for each, (start, end) in bounds.items() if start < end}
    step = max(count, STEP_OFFSETS_MIN)
    rules = RangeRules(isolation_level=isolation_level, skips_deleted=True)
    while ends:
        windows = {each: OffsetRange(start=max(bounds[each][0], end - step), end=end) for each, end in ends.items()}
        tails = {each: deque[Record](maxlen=count - len(found[each])) for each in windows}
        async with aclosing(RangeFetch(cluster, windows, rules).chunks()) as chunks:
            async for chunk in chunks:
                tails[chunk.partition].extend(chunk.records())
        for each, tail in tails.items():
            found[each] = [*tail, *found[each]]
        ends = {
            each: window.start
            for each, window in windows.items()
            if len(found[each]) < count and window.start > bounds[each][0]
        }
        step *= STEP_GROWTH
    return found


def youngest(found: Mapping[TopicPartition, list[Record]], count: int) -> list[tuple[TopicPartition, Record]]:
    """The `count` records with the largest timestamps, oldest first; by partition and offset where these are equal."""
    pairs = [(partition, record) for partition, records in found.items() for record in records]
    pairs.sort(key=lambda pair: (pair[1].timestamp, pair[0], pair[1].offset))
    return pairs[-count:]
