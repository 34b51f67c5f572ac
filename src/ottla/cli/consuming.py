"""The work of `ottla consume`: from positions to offsets, from chunks to bytes on stdout or in a file."""

import heapq
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from ottla.cli.output import human_bytes, human_count, say
from ottla.cli.positions import AtOffset, AtTime, Beginning, End, FromEnd, Position
from ottla.cli.progress import Progress
from ottla.cli.record_formats import Format
from ottla.client.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.errors import CorruptLogError
from ottla.client.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED
from ottla.client.offsets import list_offsets, offset_bounds
from ottla.client.reader import Chunk, OffsetRange, Reader
from ottla.model.ids import TopicPartition
from ottla.records.record import Record

_WRITE_BYTES: Final = 256 * 1024
"""Lines are gathered to this size before they are written."""


class Consuming:
    """One run of the command."""

    def __init__(
        self, cluster: Cluster, topic: str, *, write: Format, is_committed: bool, records_max: int | None
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._write = write
        self._isolation_level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        self._left = records_max
        self._records = 0
        self._bytes = 0
        self._progress = Progress(shown=None if not sys.stdout.isatty() else False)

    async def ranges(
        self, partitions: Sequence[int] | None, start: Position, end: Position | None
    ) -> dict[TopicPartition, OffsetRange]:
        """What the positions mean in each partition, now; without an end the ranges have none."""
        topic = await self._cluster.topic(self._topic)
        for index in partitions or ():
            if index >= len(topic.partitions):
                words = f"topic {self._topic} has no partition {index}; it has {len(topic.partitions)}, from 0 on"
                raise UnknownPartitionInTopicError(words)
        chosen = sorted(set(partitions)) if partitions else range(len(topic.partitions))
        asked = [TopicPartition(self._topic, index) for index in chosen]
        bounds = await offset_bounds(self._cluster, asked, isolation_level=self._isolation_level)
        starts = await self._resolve(start, bounds)
        ends = {} if end is None else await self._resolve(end, bounds)
        return {each: OffsetRange(start=starts[each], end=ends.get(each)) for each in asked}

    async def _resolve(
        self, position: Position, bounds: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, int]:
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

    async def run(
        self, ranges: Mapping[TopicPartition, OffsetRange], *, output: str | None, last: int | None, at_once: bool
    ) -> None:
        """Writes the records of the ranges; `last` only so many, the youngest; `at_once` without gathering lines."""
        chunks = Reader(self._cluster, ranges, isolation_level=self._isolation_level).chunks()
        with _opened(output) as stream:
            try:
                if last is not None:
                    await self._write_last(chunks, stream, last)
                else:
                    async for chunk in chunks:
                        self._write_chunk(chunk, stream)
                        if at_once:
                            stream.flush()
                        self._progress.tick(self._words)
                        if self._left == 0:
                            break
            except CorruptLogError as error:
                advice = (
                    "`ottla cluster health` shows the next readable offset; to skip the batch: ottla consume"
                    f" {self._topic} --partition {error.partition.partition} --from OFFSET"
                )
                raise CorruptLogError(error.partition, error.offset, advice) from error
            finally:
                self._progress.end()
                await chunks.aclose()
                stream.flush()
        if output is not None:
            say(f"{human_count(self._records, 'record')}, {human_bytes(self._bytes)} to {output}")

    def _write_chunk(self, chunk: Chunk, stream: BinaryIO) -> None:
        lines: list[bytes] = []
        size = 0
        for record in chunk.records():
            if self._left == 0:
                break
            if self._left is not None:
                self._left -= 1
            line = self._write(chunk.partition, record)
            lines.append(line)
            self._records += 1
            size += len(line)
            if size >= _WRITE_BYTES:
                self._put(lines, stream)
                size = 0
        self._put(lines, stream)

    def _put(self, lines: list[bytes], stream: BinaryIO) -> None:
        data = b"".join(lines)
        lines.clear()
        self._bytes += len(data)
        stream.write(data)

    async def _write_last(self, chunks: AsyncIterator[Chunk], stream: BinaryIO, last: int) -> None:
        """Keeps the youngest in a heap, so that memory is bounded by what is asked for."""
        youngest: list[tuple[int, int, int, TopicPartition, Record]] = []
        async for chunk in chunks:
            for record in chunk.records():
                # Partition and offset decide among records of one time, and never let two records be compared.
                item = (record.timestamp, chunk.partition.partition, record.offset, chunk.partition, record)
                if len(youngest) < last:
                    heapq.heappush(youngest, item)
                else:
                    heapq.heappushpop(youngest, item)
        kept = min(last, last if self._left is None else self._left)
        lines = [self._write(partition, record) for *_, partition, record in sorted(youngest)[-kept:]]
        self._records = len(lines)
        self._put(lines, stream)

    def _words(self) -> str:
        rate = self._bytes / self._progress.seconds
        return f"{self._records:,} records, {human_bytes(self._bytes)}, {human_bytes(rate)}/s"


def _opened(output: str | None) -> BinaryIO:
    """The file, or stdout as bytes; leaving the context flushes it, and closes only the file."""
    if output is None:
        return open(sys.stdout.fileno(), "wb", closefd=False)
    return Path(output).open("wb")
