"""What is parked in the queues of a topic: counts by due time, records that are due next, records by id or place."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.network.cluster import Cluster
from ottla.metadata.configs.queue_settings import CompanionMark
from ottla.model.ids import TopicPartition
from ottla.operations.queues.due_histogram import DueCounts
from ottla.operations.queues.owed_scan import Parked, read_parked, scan_owed
from ottla.operations.queues.queue_topics import NoQueueError, chosen_queues
from ottla.queues.owed_records import Owed

SORTED_AT_ONCE: Final = 10_000
"""How many places more than the wanted ones are kept before they are sorted and cut."""

OnProgress = Callable[[int, int], None]
"""Gets the number of offsets read, and the number of offsets to read."""


def _ignore(done: int, total: int) -> None:
    pass


class ParkingQueue(NamedTuple):
    """A companion that parks records, and the partitions of it that are looked at."""

    name: str
    mark: CompanionMark
    places: list[TopicPartition]


class ChosenRecords(NamedTuple):
    """Parked records, and the id that they have, if they were chosen by it or have one."""

    id: bytes | None
    records: Mapping[TopicPartition, Sequence[int]]
    """Their offsets, in order."""

    @property
    def total(self) -> int:
        """How many they are."""
        return sum(map(len, self.records.values()))

    def before(self, ends: Mapping[TopicPartition, int]) -> "ChosenRecords":
        """Those below the offset of their partition; none of partitions that are not named."""
        some = {where: offsets[: bisect_left(offsets, ends.get(where, 0))] for where, offsets in self.records.items()}
        return ChosenRecords(self.id, some)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """What one queue holds, compared with the time `now_ms`."""

    queue: ParkingQueue
    now_ms: int
    every: DueCounts
    partitions: Mapping[TopicPartition, DueCounts]
    oldest_ms: int | None
    """The timestamp of the record that was parked first; None if nothing is parked."""
    ends: Mapping[TopicPartition, int]
    """The end offset of each partition: what was parked later is not counted."""


async def parking_queues(cluster: Cluster, topic: str, partition: int | None = None) -> list[ParkingQueue]:
    """The queues that a name stands for: that of a companion, or all of a topic. Raises `NoQueueError`."""
    chosen = []
    for name, mark in await chosen_queues(cluster, topic):
        count = len((await cluster.topic(name)).partitions)
        if partition is not None and partition >= count:
            partitions = "1 partition" if count == 1 else f"{count:,} partitions"
            raise NoQueueError(f"topic {name} has no partition {partition}; it has {partitions}")
        indexes = range(count) if partition is None else [partition]
        chosen.append(ParkingQueue(name, mark, [TopicPartition(name, index) for index in indexes]))
    return chosen


async def count_parked(
    cluster: Cluster, queues: Sequence[ParkingQueue], on_progress: OnProgress = _ignore
) -> list[QueueCounts]:
    """Counts what the queues hold. Reads their whole logs, twice."""
    now_ms = cluster.clock.now_ms()
    counts = {where: DueCounts(now_ms) for queue in queues for where in queue.places}
    ends = await scan_owed(cluster, list(counts), lambda where, owed: counts[where].add(owed), on_progress)
    return [await _queue_counts(cluster, queue, counts, ends, now_ms) for queue in queues]


async def _queue_counts(
    cluster: Cluster,
    queue: ParkingQueue,
    counts: Mapping[TopicPartition, DueCounts],
    ends: Mapping[TopicPartition, int],
    now_ms: int,
) -> QueueCounts:
    some = {where: counts[where] for where in queue.places}
    every = DueCounts(now_ms)
    for each in some.values():
        every.add_counts(each)
    first = [(where, Owed(0, each.first_offset)) for where, each in some.items() if each.first_offset is not None]
    written = [parked.record.timestamp for parked in await read_parked(cluster, first)]
    return QueueCounts(
        queue=queue,
        now_ms=now_ms,
        every=every,
        partitions=some,
        oldest_ms=min(written, default=None),
        ends={where: ends[where] for where in queue.places},
    )


class _DueFirst:
    """Keeps the places of the records that are due first, at most `limit` when asked."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._first: list[tuple[int, TopicPartition, int, bytes | None]] = []
        self.count = 0

    def add(self, where: TopicPartition, owed: list[Owed]) -> None:
        self.count += len(owed)
        first = self._first
        first.extend((each.due_ms, where, each.offset, each.id) for each in owed)
        if len(first) > 2 * self._limit + SORTED_AT_ONCE:
            first.sort()
            del first[self._limit :]

    def chosen(self) -> list[tuple[TopicPartition, Owed]]:
        first = sorted(self._first)[: self._limit]
        return [(where, Owed(due_ms, offset, id)) for due_ms, where, offset, id in first]


async def next_parked(
    cluster: Cluster, places: Collection[TopicPartition], limit: int, on_progress: OnProgress = _ignore
) -> tuple[list[Parked], int]:
    """The records that are due next, at most `limit`, and how many are parked in all."""
    first = _DueFirst(limit)
    await scan_owed(cluster, list(places), first.add, on_progress)
    return await read_parked(cluster, first.chosen()), first.count


async def inspect_queue(cluster: Cluster, queue: ParkingQueue, limit: int) -> tuple[QueueCounts, list[Parked]]:
    """What `count_parked` and `next_parked` find, by one scan."""
    now_ms = cluster.clock.now_ms()
    counts = {where: DueCounts(now_ms) for where in queue.places}
    first = _DueFirst(limit)

    def on_owed(where: TopicPartition, owed: list[Owed]) -> None:
        counts[where].add(owed)
        first.add(where, owed)

    ends = await scan_owed(cluster, queue.places, on_owed, _ignore)
    return await _queue_counts(cluster, queue, counts, ends, now_ms), await read_parked(cluster, first.chosen())


async def chosen_if(
    cluster: Cluster,
    places: Collection[TopicPartition],
    is_chosen: Callable[[Owed], bool],
    on_progress: OnProgress = _ignore,
) -> ChosenRecords:
    """The parked records of these partitions that are chosen."""
    chosen: dict[TopicPartition, array[int]] = {}

    def on_owed(where: TopicPartition, owed: list[Owed]) -> None:
        for each in owed:
            if is_chosen(each):
                chosen.setdefault(where, array("q")).append(each.offset)

    await scan_owed(cluster, list(places), on_owed, on_progress)
    return ChosenRecords(None, chosen)


async def parked_at(cluster: Cluster, place: TopicPartition, offset: int, on_progress: OnProgress = _ignore) -> Parked:
    """The parked record at this offset. Raises `NoQueueError` if none is parked there."""
    found: list[Owed] = []

    def on_owed(_: TopicPartition, owed: list[Owed]) -> None:
        found.extend(each for each in owed if each.offset == offset)

    await scan_owed(cluster, [place], on_owed, on_progress)
    parked = await read_parked(cluster, [(place, found[0])]) if found else []
    if not parked:
        where = f"{place.partition}:{offset}"
        raise NoQueueError(f"{place.topic}: no parked record at {where}; `ottla queues peek` shows them")
    return parked[0]
