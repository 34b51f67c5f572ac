"""Reads and searches a topic: rows stream in, with how much was scanned; it ends at the limit or when it is stopped.

The newest records are found from the end backwards, window by window, each larger than the one before; the oldest in
one pass. Memory is bounded by the chunks in flight and the rows of the limit, whatever the topic's size.
"""

import re
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.fetch_connections import FetchConnections
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.client.producer.partitioner import partition_for_key
from ottla.console.cluster.scans import IsStopped, Scans, ScanStoppedError
from ottla.console.services.records.query import Order, RecordsQuery
from ottla.console.services.records.rows import RecordRow
from ottla.console.services.records.scan import Scanned, ScanPlan, scan_chunk
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.operations.position_offsets import bounds_of, chosen_partitions
from ottla.operations.positions import Beginning, End, parse_position
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED

_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_WINDOW_OFFSETS_MIN: Final = 200
_WINDOW_OFFSETS_MAX: Final = 1_000_000
"""Of all partitions together."""
_WINDOW_GROWTH: Final = 4
_REPORT_SECONDS: Final = 0.2
_FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
_PARTITION_BYTES_MAX: Final = 2 * 1024 * 1024

Bounds = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a search is."""

    scanned: int
    """Records."""
    matched: int
    """Of the records that were scanned."""
    size_bytes: int
    """As stored, compressed."""
    offsets_done: int
    offsets_total: int
    seconds: float
    outcome: str = ""
    """Why it ended; empty while it goes on."""
    error: str = ""

    @property
    def per_second(self) -> float:
        """Records per second."""
        return self.scanned / self.seconds if self.seconds else 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the whole range was looked at."""
        return self.offsets_done >= self.offsets_total


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Rows, newest first for a query of the newest."""

    rows: list[RecordRow]


async def bounds_for(cluster: Cluster, topic: str, query: RecordsQuery) -> dict[TopicPartition, tuple[int, int]]:
    """The offsets that a query is about. Raises `BadPositionError`, `UnknownPartitionInTopicError`."""
    now_ms = cluster.clock.now_ms()
    wanted = query.partitions
    if query.key is not None and not query.everywhere and wanted is None:
        count = len((await cluster.topic(topic)).partitions)
        wanted = (partition_for_key(query.key.encode("utf-8", "surrogatepass"), count),)
    partitions = await chosen_partitions(cluster, topic, wanted)
    start = parse_position(in_utc(query.from_), now_ms) if query.from_ else Beginning()
    end = parse_position(in_utc(query.to), now_ms) if query.to else End()
    level = READ_UNCOMMITTED if query.uncommitted else READ_COMMITTED
    return await bounds_of(cluster, partitions, start, end, isolation_level=level)


def in_utc(position: str) -> str:
    """A time without a zone is in UTC, as all times of the console are; anything else stays as it is."""
    if not _DAY.match(position):
        return position
    try:
        moment = datetime.fromisoformat(position)
    except ValueError:
        return position
    return position if moment.tzinfo is not None else moment.replace(tzinfo=UTC).isoformat()


class Search:
    """One run of a query. `events` may be iterated once; closing it stops the search."""

    def __init__(
        self,
        cluster: Cluster,
        scans: Scans,
        bounds: Bounds,
        plan: ScanPlan,
        query: RecordsQuery,
        *,
        seconds_max: float | None = None,
    ) -> None:
        self._cluster = cluster
        self._threads = scans
        self._bounds = {each: pair for each, pair in bounds.items() if pair[0] < pair[1]}
        self._plan = plan
        self._query = query
        self._level = READ_UNCOMMITTED if query.uncommitted else READ_COMMITTED
        self._started = time.monotonic()
        self._deadline = None if seconds_max is None else self._started + seconds_max
        self._reported = 0.0
        self._scanned = self._matched = self._bytes = self._offsets = self._shown = 0
        self._error: OttlaError | None = None

    async def events(self) -> AsyncGenerator[Found | Progress, None]:
        """Rows as they are found, and the progress a few times a second; the last one says why it ended."""
        connections = FetchConnections(self._cluster)
        steps = self._newest(connections) if self._query.order is Order.NEWEST else self._oldest(connections)
        try:
            async with aclosing(steps):
                async for each in steps:
                    yield each
        except OttlaError as error:
            self._error = error
        finally:
            connections.close()
        if self._error is not None:
            outcome = "ended with an error"
        elif self._shown >= self._query.limit:
            outcome = f"stopped at {self._query.limit} records"
        elif self._is_late:
            outcome = "stopped: the time is over"
        else:
            outcome = "complete"
        yield self.progress(outcome)

    def progress(self, outcome: str = "") -> Progress:
        """How far it is."""
        return Progress(
            scanned=self._scanned,
            matched=self._matched,
            size_bytes=self._bytes,
            offsets_done=self._offsets,
            offsets_total=sum(end - start for start, end in self._bounds.values()),
            seconds=time.monotonic() - self._started,
            outcome=outcome,
            error="" if self._error is None else str(self._error),
        )

    @property
    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _is_broken(self) -> bool:
        return self._is_late or self._error is not None

    @property
    def _is_over(self) -> bool:
        return self._shown >= self._query.limit or self._is_broken()

    async def _oldest(self, connections: FetchConnections) -> AsyncGenerator[Found | Progress, None]:
        """In a search, one pass. Otherwise the first records of each partition, then the oldest of all of them."""
        limit = self._query.limit
        if not self._query.is_search and len(self._bounds) > 1:
            async for each in self._gathered(connections, newest=False):
                yield each
            return
        ranges = {each: OffsetRange(start=start, end=end) for each, (start, end) in self._bounds.items()}
        chunks = self._scans(ranges, connections, newest=False, rows_max=limit)
        async with aclosing(chunks):
            async for _, scanned in chunks:
                rows = scanned.rows[: limit - self._shown]
                self._shown += len(rows)
                if rows:
                    yield Found(rows=rows)
                if self._is_over:
                    return
                if self._is_report_due():
                    yield self.progress()

    async def _newest(self, connections: FetchConnections) -> AsyncGenerator[Found | Progress, None]:
        if not self._query.is_search:
            async for each in self._gathered(connections, newest=True):
                yield each
            return
        limit = self._query.limit
        ends = {each: end for each, (_, end) in self._bounds.items()}
        step = _WINDOW_OFFSETS_MIN
        while ends and not self._is_over:
            windows = self._windows(ends, step, newest=True)
            kept: deque[RecordRow] = deque()
            chunks = self._scans(windows, connections, newest=True, rows_max=limit)
            async with aclosing(chunks):
                async for _, scanned in chunks:
                    kept.extend(scanned.rows)
                    if len(kept) > 2 * limit:
                        kept = deque(in_time_order(kept, newest=True)[:limit])
                    if self._is_broken():
                        break
                    if self._is_report_due():
                        yield self.progress()
            rows = in_time_order(kept, newest=True)[: limit - self._shown]
            self._shown += len(rows)
            if rows:
                yield Found(rows=rows)
            yield self.progress()
            ends = {each: int(range_.start) for each, range_ in windows.items() if range_.start > self._bounds[each][0]}
            step = min(
                step * _WINDOW_GROWTH, max(_WINDOW_OFFSETS_MAX // max(len(self._bounds), 1), _WINDOW_OFFSETS_MIN)
            )

    async def _gathered(self, connections: FetchConnections, *, newest: bool) -> AsyncGenerator[Found | Progress, None]:
        """Without a filter: as many records of each partition as the page shows, then the first of them by time.

        Offsets cannot be counted instead: transaction markers and compaction leave gaps.
        """
        limit = self._query.limit
        found: dict[TopicPartition, list[RecordRow]] = {each: [] for each in self._bounds}
        ends = {each: end if newest else start for each, (start, end) in self._bounds.items()}
        step = max(limit, _WINDOW_OFFSETS_MIN)
        while ends and not self._is_broken():
            windows = self._windows(ends, step, newest=newest)
            kept: dict[TopicPartition, deque[RecordRow]] = {each: deque(maxlen=limit) for each in windows}
            chunks = self._scans(windows, connections, newest=newest, rows_max=limit)
            async with aclosing(chunks):
                async for partition, scanned in chunks:
                    if newest:
                        kept[partition].extend(scanned.rows)
                    else:
                        kept[partition].extend(scanned.rows[: limit - len(kept[partition])])
                    if self._is_broken():
                        break
            for each, some in kept.items():
                found[each] = [*some, *found[each]][-limit:] if newest else [*found[each], *some][:limit]
            edges = {each: int(range_.start if newest else range_.end or 0) for each, range_ in windows.items()}
            ends = {
                each: edge
                for each, edge in edges.items()
                if len(found[each]) < limit and edge != self._bounds[each][0 if newest else 1]
            }
            step *= _WINDOW_GROWTH
        rows = in_time_order([row for each in found.values() for row in each], newest=newest)[:limit]
        self._shown = len(rows)
        yield Found(rows=rows)

    def _windows(
        self, ends: Mapping[TopicPartition, int], step: int, *, newest: bool
    ) -> dict[TopicPartition, OffsetRange]:
        if newest:
            return {
                each: OffsetRange(start=max(self._bounds[each][0], end - step), end=end) for each, end in ends.items()
            }
        return {
            each: OffsetRange(start=start, end=min(self._bounds[each][1], start + step)) for each, start in ends.items()
        }

    async def _scans(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        connections: FetchConnections,
        *,
        newest: bool,
        rows_max: int,
    ) -> AsyncGenerator[tuple[TopicPartition, Scanned], None]:
        """Scans chunks in a thread, so that other pages are served; the next chunks are fetched meanwhile."""
        rules = RangeRules(
            isolation_level=self._level,
            fetch_bytes_max=_FETCH_BYTES_MAX,
            partition_bytes_max=_PARTITION_BYTES_MAX,
            skips_deleted=True,
        )
        places = {each: range_.start for each, range_ in ranges.items()}
        chunks = RangeFetch(self._cluster, ranges, rules, connections=connections).chunks()
        async with aclosing(chunks):
            async for chunk in chunks:
                try:
                    limit = max(rows_max - self._shown, 1)
                    scanned = await self._threads.run(partial(self._scan, chunk, rows_max=limit, newest=newest))
                except ScanStoppedError:
                    return  # the time is over
                self._scanned += scanned.records
                self._matched += scanned.matched
                self._bytes += chunk.size_bytes
                place = min(int(chunk.next_offset), ranges[chunk.partition].end or int(chunk.next_offset))
                self._offsets += max(place - places[chunk.partition], 0)
                places[chunk.partition] = place
                self._error = self._error or scanned.error
                yield chunk.partition, scanned
        if self._error is None:
            # A range may end in a gap.
            self._offsets += sum(max((range_.end or 0) - places[each], 0) for each, range_ in ranges.items())

    def _scan(self, chunk: Chunk, is_stopped: IsStopped, *, rows_max: int, newest: bool) -> Scanned:
        return scan_chunk(chunk, self._plan, lambda: is_stopped() or self._is_late, rows_max=rows_max, newest=newest)

    def _is_report_due(self) -> bool:
        now = time.monotonic()
        if now - self._reported < _REPORT_SECONDS:
            return False
        self._reported = now
        return True


def in_time_order(rows: Iterable[RecordRow], *, newest: bool) -> list[RecordRow]:
    """Rows by time, then by partition and offset."""
    return sorted(rows, key=lambda row: (row.timestamp, row.partition, row.offset), reverse=newest)


async def all_rows(events: AsyncIterator[Found | Progress]) -> tuple[list[RecordRow], Progress]:
    """Runs a search to its end."""
    rows: list[RecordRow] = []
    progress: Progress | None = None
    async for each in events:
        if isinstance(each, Found):
            rows += each.rows
        else:
            progress = each
    assert progress is not None
    return rows, progress
