"""Reads ranges of partitions by Fetch, many partitions side by side, and hands out batches as they arrive.

No group, no commits: the caller says from where to where. One request per leader is under way while the answer before
it is worked on. What is handed out is a `Chunk`, bytes of whole batches, which decodes itself at need: to columns, to
records, or only to a count. Where offsets come from: `offsets.py`.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.client.errors import AnswerError, CorruptLogError, UnsupportedByBrokerError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    VERSION,
    Fetched,
    Wanted,
    fetch_body,
    read_fetch_answer,
)
from ottla.records.aborted import AbortedTransactions
from ottla.records.batch import Batch, scan, spanned
from ottla.records.decode import decode_records
from ottla.records.record import Record
from ottla.transport.client_connection import Connection

if TYPE_CHECKING:
    from ottla.records.packed import Columns

FETCH_BYTES_MAX: Final = 16 * 1024 * 1024
PARTITION_BYTES_MAX: Final = 4 * 1024 * 1024
WAIT_MS: Final = 500
CHUNKS_QUEUED_MAX: Final = 4
_ANSWER_TIMEOUT_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """From `start` to `end`, exclusive; without an end, for as long as somebody reads."""

    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some batches of one partition, whole, with the bounds that their records must keep to."""

    partition: TopicPartition
    batches: list[Batch]
    start: int
    end: int | None
    aborted: list[tuple[int, int]] | None
    """What a read_committed reader must leave out; None for read_uncommitted."""
    high_watermark: int
    size_bytes: int

    @property
    def next_offset(self) -> int:
        """Where the next chunk of this partition begins."""
        return self.batches[-1].next_offset

    def count(self) -> int:
        """How many records the data batches' headers promise, all of each batch."""
        return sum(batch.count for batch in self.batches if not batch.is_control)

    def records(self) -> Iterator[Record]:
        """The records as objects, checked against their CRC, within the bounds and without aborted ones."""
        aborted = None if self.aborted is None else AbortedTransactions(self.aborted)
        for batch in self.batches:
            left_out = aborted is not None and aborted.covers(batch)
            if left_out or batch.is_control:
                continue
            batch.check()
            for record in decode_records(batch):
                if record.offset >= self.start and (self.end is None or record.offset < self.end):
                    yield record

    def columns(self, *, headers: bool = True) -> "Columns":
        """The same records as packed columns; `Columns.consumed_bytes` says whether all fitted its limit."""
        from ottla.records.columns import decode

        data = spanned(self.batches)
        return decode(data, start_offset=self.start, end_offset=self.end, headers=headers, aborted=self.aborted)


class Reader:
    """Reads each partition's range from its leader. `chunks` may be iterated once."""

    def __init__(
        self,
        cluster: Cluster,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        isolation_level: int = READ_UNCOMMITTED,
        wait_ms: int = WAIT_MS,
        fetch_bytes_max: int = FETCH_BYTES_MAX,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
        retry_timeout_ms: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._ends = {partition: asked.end for partition, asked in ranges.items()}
        self._next = {
            partition: asked.start
            for partition, asked in ranges.items()
            if asked.end is None or asked.start < asked.end
        }
        """Where each partition that is not finished goes on: after the last chunk that was handed out."""
        self._answers = 0
        self._isolation_level = isolation_level
        self._wait_ms = wait_ms
        self._fetch_bytes_max = fetch_bytes_max
        self._partition_bytes_max = partition_bytes_max
        self._retry_timeout_ms = retry_timeout_ms
        self._chunks: asyncio.Queue[Chunk | None] = asyncio.Queue(CHUNKS_QUEUED_MAX)

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Yields chunks of all partitions as they arrive, in order within each; ends when all ranges are read.

        Leaders that move are followed; raises `AnswerError` for what cannot be read, such as an offset that is gone.
        """
        reading = asyncio.create_task(self._read_all())
        try:
            while (chunk := await self._chunks.get()) is not None:
                yield chunk
            await reading
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, OttlaError):
                await reading

    async def _read_all(self) -> None:
        """Reads from all leaders until everything is read, finding new leaders as often as it must."""
        try:
            while self._next:
                answers = self._answers
                try:
                    await self._cluster.retry(self._read_once, timeout_ms=self._retry_timeout_ms)
                except RetriableError:
                    # Its time is over only if nobody answered in that time.
                    if self._answers == answers:
                        raise
        except asyncio.CancelledError:
            # Nobody takes from the queue any more.
            raise
        except BaseException:
            await self._chunks.put(None)
            raise
        await self._chunks.put(None)

    async def _read_once(self) -> None:
        """Reads from the leaders as they are now; raises when one of them is no longer it."""
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in self._next:
            by_leader[await self._cluster.leader_of(partition)].append(partition)
        try:
            async with asyncio.TaskGroup() as group:
                for leader, partitions in by_leader.items():
                    group.create_task(self._read_leader(leader, partitions))
        except BaseExceptionGroup as failures:
            final = [each for each in failures.exceptions if not isinstance(each, RetriableError)]
            raise (final or failures.exceptions)[0] from None

    async def _read_leader(self, leader: int, partitions: list[TopicPartition]) -> None:
        """Reads partitions of one broker on a connection of its own: a long poll holds up what comes behind it."""
        connection = await self._cluster.own_connection(leader)
        # What was asked for runs ahead of what was handed out, which alone may be forgotten.
        ahead = {partition: self._next[partition] for partition in partitions}
        try:
            answer = self._request(connection, ahead)
            while ahead:
                chunks, refusal = self._on_answer(read_fetch_answer(await answer), ahead)
                if ahead and refusal is None:
                    # Whoever was first in this answer is last in the next: limits must not starve anybody.
                    first = next(iter(ahead))
                    ahead[first] = ahead.pop(first)
                    answer = self._request(connection, ahead)
                for chunk in chunks:
                    await self._chunks.put(chunk)
                    self._on_handed_out(chunk)
                if refusal is not None:
                    raise refusal
        finally:
            connection.close()

    def _request(self, connection: Connection, ahead: Mapping[TopicPartition, int]) -> "asyncio.Future[memoryview]":
        wanted = [Wanted(each, offset, self._partition_bytes_max) for each, offset in ahead.items()]
        # Stable, so that the order within a topic stays.
        wanted.sort(key=lambda each: each.partition.topic)
        if connection.version_for(ApiKey.FETCH, VERSION) < VERSION:
            raise UnsupportedByBrokerError(f"{connection.address} does not speak FETCH {VERSION}; use a newer broker")
        body = fetch_body(
            wanted,
            isolation_level=self._isolation_level,
            wait_ms=self._wait_ms,
            bytes_min=1,
            bytes_max=self._fetch_bytes_max,
        )
        timeout_ms = self._wait_ms + _ANSWER_TIMEOUT_MS
        return connection.request_bytes(ApiKey.FETCH, VERSION, body, timeout_ms=timeout_ms, wait_ms=self._wait_ms)

    def _on_answer(
        self, answer: list[Fetched], ahead: dict[TopicPartition, int]
    ) -> tuple[list[Chunk], AnswerError | None]:
        """Moves `ahead` on; gives what there is to hand out, and the first refusal."""
        self._answers += 1
        chunks: list[Chunk] = []
        for fetched in answer:
            if fetched.partition not in ahead:
                continue
            start = ahead[fetched.partition]
            if fetched.error_code:
                return chunks, _refusal(fetched, start)
            batches, _, problem = scan(fetched.records, check_crc=False)
            if problem is not None and not batches:
                what = f"{fetched.partition} at offset {start}: {problem}"
                return chunks, AnswerError(ErrorCode.CORRUPT_MESSAGE, what)
            if batches:
                chunk = self._chunk(fetched, batches, start)
                chunks.append(chunk)
                ahead[fetched.partition] = chunk.next_offset
                if chunk.end is not None and chunk.next_offset >= chunk.end:
                    del ahead[fetched.partition]
        return chunks, None

    def _chunk(self, fetched: Fetched, batches: list[Batch], start: int) -> Chunk:
        return Chunk(
            partition=fetched.partition,
            batches=batches,
            start=start,
            end=self._ends[fetched.partition],
            aborted=fetched.aborted if self._isolation_level == READ_COMMITTED else None,
            high_watermark=fetched.high_watermark,
            size_bytes=sum(batch.size_bytes for batch in batches),
        )

    def _on_handed_out(self, chunk: Chunk) -> None:
        if chunk.end is not None and chunk.next_offset >= chunk.end:
            del self._next[chunk.partition]
        else:
            self._next[chunk.partition] = chunk.next_offset


def _refusal(fetched: Fetched, start: int) -> AnswerError:
    what = f"reading {fetched.partition} at offset {start}"
    words = None
    if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        words = "there is no such offset; records may have been deleted, or not written yet"
    elif fetched.error_code == ErrorCode.CORRUPT_MESSAGE:
        # Not retriable here: where another replica has the batch, the broker answers KAFKA_STORAGE_ERROR meanwhile.
        return CorruptLogError(fetched.partition, start)
    return answer_error(fetched.error_code, what, words)
