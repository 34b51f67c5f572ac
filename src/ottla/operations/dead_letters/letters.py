"""Reads the letters of a dead-letter topic, and chooses among them."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import offset_bounds
from ottla.model.dead_letters import DeadLetter, read_dead_letter
from ottla.model.ids import TopicPartition
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.records.record import Record

Bounds = dict[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One record of a dead-letter topic; `story` is None if its headers do not tell where it came from."""

    partition: TopicPartition
    record: Record
    story: DeadLetter | None

    def __str__(self) -> str:
        return f"{self.partition.partition}:{self.record.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters are meant: those that everything given here is true for."""

    since_ms: int | None = None
    until_ms: int | None = None
    """Bounds of the record's timestamp; the second is exclusive."""
    reason: str | None = None
    """Part of the reason or of the exception's type, in any case."""
    key: str | None = None
    headers: Sequence[tuple[str, str]] = field(default=())
    topic: str | None = None
    group: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether all letters are meant."""
        return self == LetterFilter()

    def matches(self, letter: Letter) -> bool:
        """Whether this letter is meant."""
        record, story = letter.record, letter.story
        if self.since_ms is not None and record.timestamp < self.since_ms:
            return False
        if self.until_ms is not None and record.timestamp >= self.until_ms:
            return False
        if self.key is not None and record.key != self.key.encode("utf-8", "surrogateescape"):
            return False
        if any((name, value.encode("utf-8", "surrogateescape")) not in record.headers for name, value in self.headers):
            return False
        if self.topic is not None and (story is None or story.origin.topic != self.topic):
            return False
        if self.group is not None and (story is None or story.group != self.group):
            return False
        return self.reason is None or (story is not None and self._has_reason(story))

    def _has_reason(self, story: DeadLetter) -> bool:
        wanted = (self.reason or "").lower()
        return wanted in story.reason.lower() or wanted in (story.exception or "").lower()


async def bounds_of(cluster: Cluster, topic: str) -> Bounds:
    """The first and the end offset of each partition, up to the first open transaction."""
    count = len((await cluster.topic(topic)).partitions)
    partitions = [TopicPartition(topic, index) for index in range(count)]
    return dict(await offset_bounds(cluster, partitions, isolation_level=READ_COMMITTED))


async def read_letters(
    cluster: Cluster, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> AsyncGenerator[tuple[TopicPartition, int, list[Letter]], None]:
    """Yields letters in pieces: the partition, the offset that was read up to (exclusive), and the letters before it.

    Every piece continues where the piece before it of the same partition ended; offsets between have no letters.
    """
    ranges = {each: OffsetRange(start=start, end=end) for each, (start, end) in bounds.items() if start < end}
    rules = RangeRules(isolation_level=READ_COMMITTED, skips_deleted=True)
    async with aclosing(RangeFetch(cluster, ranges, rules).chunks()) as chunks:
        async for chunk in chunks:
            found = [
                Letter(partition=chunk.partition, record=record, story=read_dead_letter(record.headers))
                for record in chunk.records()
            ]
            yield chunk.partition, min(chunk.next_offset, bounds[chunk.partition][1]), found
