"""The work of `ottla consume` without a group: from positions to offsets, from chunks to lines."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing

from ottla.cli.consume.record_sink import RecordSink
from ottla.cli.output import human_count, say
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, list_offsets
from ottla.model.ids import TopicPartition
from ottla.operations.last_records import last_of_each, youngest
from ottla.operations.position_offsets import Bounds, bounds_of, chosen_partitions
from ottla.operations.positions import End, Position
from ottla.protocol.fetch_frames import READ_COMMITTED


class Consuming:
    """One run of the command."""

    def __init__(self, cluster: Cluster, *, isolation_level: int) -> None:
        self._cluster = cluster
        self._isolation_level = isolation_level

    async def bounds(
        self, topics: Sequence[str], partitions: Sequence[int] | None, start: Position, end: Position
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The present offsets of the positions in each partition: start, and end (exclusive)."""
        asked = [each for topic in topics for each in await chosen_partitions(self._cluster, topic, partitions)]
        found = await bounds_of(self._cluster, asked, start, end, isolation_level=self._isolation_level)
        if isinstance(end, End) and self._isolation_level == READ_COMMITTED:
            await self._tell_hidden({each: bounds[1] for each, bounds in found.items()})
        return found

    async def _tell_hidden(self, ends: Mapping[TopicPartition, int]) -> None:
        """Says if an open transaction hides records: otherwise the output of read_committed would look complete."""
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
        rules = RangeRules(isolation_level=self._isolation_level)
        async with aclosing(RangeFetch(self._cluster, ranges, rules).chunks()) as chunks:
            async for chunk in chunks:
                await sink.write(chunk.partition, chunk.records())
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
                await sink.write(partition, (record,))
        if follow and not sink.is_full:
            sink.flush()
            await self.run({each: (end, end) for each, (_, end) in bounds.items()}, sink, follow=True)
