"""The work of `ottla consume` without a group: from positions to offsets, from chunks to lines."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from ottla.cli.consume.last_records import last_of_each, youngest
from ottla.cli.consume.positions import AtOffset, AtTime, Beginning, End, FromEnd, Position
from ottla.cli.consume.record_sink import RecordSink
from ottla.cli.output import human_count, say
from ottla.client.consumer.reader import OffsetRange, Reader
from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.network.list_offsets import END, list_offsets, offset_bounds
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_COMMITTED

Bounds = Mapping[TopicPartition, tuple[int, int]]


class Consuming:
    """One run of the command."""

    def __init__(self, cluster: Cluster, *, isolation_level: int) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level

    async def bounds(
        self, topics: Sequence[str], partitions: Sequence[int] | None, start: Position, end: Position
    ) -> dict[TopicPartition, tuple[int, int]]:
        """What the positions mean in each partition, now: first offset, and the offset after the last."""
        asked = [each for topic in topics for each in await self._chosen(topic, partitions)]
        whole = await offset_bounds(self._cluster, asked, isolation_level=self._isolation_level)
        starts = await self._resolve(start, whole)
        ends = await self._resolve(end, whole)
        if isinstance(end, End) and self._isolation_level == READ_COMMITTED:
            await self._tell_hidden(ends)
        return {each: (starts[each], max(ends[each], starts[each])) for each in asked}

    async def _chosen(self, name: str, partitions: Sequence[int] | None) -> list[TopicPartition]:
        topic = await self._cluster.topic(name)
        for index in partitions or ():
            if index >= len(topic.partitions):
                count = human_count(len(topic.partitions), "partition")
                raise UnknownPartitionInTopicError(f"topic {name} has no partition {index}; it has {count}, from 0")
        chosen = sorted(set(partitions)) if partitions else range(len(topic.partitions))
        return [TopicPartition(name, index) for index in chosen]

    async def _resolve(self, position: Position, bounds: Bounds) -> dict[TopicPartition, int]:
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
                found = await list_offsets(self._cluster, dict.fromkeys(bounds, timestamp))
                return {
                    each: min(found[each].offset if found[each].offset >= 0 else end, end)
                    for each, (_, end) in bounds.items()
                }

    async def _tell_hidden(self, ends: Mapping[TopicPartition, int]) -> None:
        """A read_committed reader stops at the first open transaction; otherwise it looks as if nothing was there."""
        written = await list_offsets(self._cluster, dict.fromkeys(ends, END))
        for partition, end in ends.items():
            hidden = written[partition].offset - end
            if hidden > 0:
                say(
                    f"{partition}: an open transaction hides {human_count(hidden, 'offset')} from {end} on; "
                    "pass --isolation-level read_uncommitted to see them"
                )

    async def run(self, bounds: Bounds, sink: RecordSink, *, follow: bool) -> None:
        """Writes the records between the bounds; with `follow` also those that are written later."""
        ranges = {each: OffsetRange(start=start, end=None if follow else end) for each, (start, end) in bounds.items()}
        async with aclosing(Reader(self._cluster, ranges, isolation_level=self._isolation_level).chunks()) as chunks:
            async for chunk in chunks:
                sink.put(chunk.partition, chunk.records())
                if follow:
                    sink.flush()
                if sink.is_full:
                    break

    async def run_last(self, bounds: Bounds, sink: RecordSink, *, last: int, follow: bool) -> None:
        """Writes the youngest records of each topic, then with `follow` those that are written later."""
        found = await last_of_each(self._cluster, bounds, last, isolation_level=self._isolation_level)
        for topic in dict.fromkeys(each.topic for each in bounds):
            of_topic = {each: records for each, records in found.items() if each.topic == topic}
            for partition, record in youngest(of_topic, last):
                sink.put(partition, (record,))
        if follow and not sink.is_full:
            sink.flush()
            await self.run({each: (end, end) for each, (_, end) in bounds.items()}, sink, follow=True)
