"""Reads companions' logs as they are, control batches included, and finds what is owed."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import offset_bounds
from ottla.model.ids import Offset, TopicPartition
from ottla.queues.owed_records import Owed, OwedRecords
from ottla.records.batch import Batch
from ottla.records.record import Record

_READ_AT_ONCE: Final = 8
_RULES: Final = RangeRules(skips_deleted=True)
"""What is delivered meanwhile may be deleted."""


class Parked(NamedTuple):
    """A parked record, with what is known of it."""

    partition: TopicPartition
    owed: Owed
    record: Record


async def scan_owed(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    on_owed: Callable[[TopicPartition, list[Owed]], None],
    on_progress: Callable[[int, int], None],
) -> dict[TopicPartition, int]:
    """Calls `on_owed` with what each partition owes, piece by piece, in the order of offsets.

    Reads the logs twice (see `owed_records`), so that memory does not grow with what is parked. `on_progress` gets the
    number of offsets read, and the number of offsets to read. Returns the end offset of each partition that was read.
    """
    bounds = await offset_bounds(cluster, partitions)
    found = {each: OwedRecords(Offset(start)) for each, (start, _) in bounds.items()}
    total = sum(end - start for start, end in bounds.values())
    async for where, batch in _batches(cluster, bounds):
        found[where].on_batch(batch)
        on_progress(sum(each.next_offset - bounds[name][0] for name, each in found.items()), 2 * total)
    # What was delivered meanwhile may have been deleted.
    now = await offset_bounds(cluster, partitions)
    left = {each: (max(now[each][0], owed.first_owed), bounds[each][1]) for each, owed in found.items()}
    done = {each: start for each, (start, _) in left.items()}
    total_left = sum(max(0, end - start) for start, end in left.values())
    async for where, batch in _batches(cluster, left):
        owed = found[where].owed_in(batch)
        if owed:
            on_owed(where, owed)
        done[where] = batch.next_offset
        read = sum(at - left[name][0] for name, at in done.items())
        on_progress(2 * total - total_left + read, 2 * total)
    return {each: end for each, (_, end) in bounds.items()}


async def _batches(
    cluster: Cluster, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> AsyncIterator[tuple[TopicPartition, Batch]]:
    ranges = {each: OffsetRange(start=start, end=end) for each, (start, end) in bounds.items() if start < end}
    async with aclosing(RangeFetch(cluster, ranges, _RULES).chunks()) as chunks:
        async for chunk in chunks:
            for batch in chunk.batches:
                yield chunk.partition, batch


async def read_parked(cluster: Cluster, wanted: Sequence[tuple[TopicPartition, Owed]]) -> list[Parked]:
    """The records at these offsets, in the same order; those that are gone by now are left out."""
    limit = asyncio.Semaphore(_READ_AT_ONCE)

    async def read(partition: TopicPartition, owed: Owed) -> Parked | None:
        ranges = {partition: OffsetRange(start=owed.offset, end=owed.offset + 1)}
        async with limit, aclosing(RangeFetch(cluster, ranges, _RULES).chunks()) as chunks:
            async for chunk in chunks:
                for record in chunk.records():
                    if record.offset == owed.offset:
                        return Parked(partition, owed, record)
        return None

    found = await asyncio.gather(*(read(partition, owed) for partition, owed in wanted))
    return [each for each in found if each is not None]
