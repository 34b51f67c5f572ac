"""New records as they are written, for the live tail. Bounded: a busy topic sends what a screen can show, and counts.

Records that come faster than `ROWS_PER_SECOND` are counted, not shown.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules
from ottla.client.network.cluster import Cluster
from ottla.console.cluster.scans import Scans
from ottla.console.services.records.query import RecordsQuery
from ottla.console.services.records.rows import RecordRow
from ottla.console.services.records.scan import ScanPlan, scan_chunk
from ottla.console.services.records.search import Bounds, in_time_order
from ottla.protocol.fetch_frames import READ_COMMITTED, READ_UNCOMMITTED

ROWS_PER_TURN: Final = 25
TURN_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRows:
    """What arrived in one turn."""

    rows: list[RecordRow]
    """Newest first."""
    arrived: int
    """Records that were written, whether they pass the filter or not."""
    matched: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Records per second."""
        return self.arrived / self.seconds if self.seconds else 0.0

    @property
    def left_out(self) -> int:
        """Records that passed the filter and are not shown."""
        return self.matched - len(self.rows)


async def follow(
    cluster: Cluster, scans: Scans, bounds: Bounds, plan: ScanPlan, query: RecordsQuery
) -> AsyncGenerator[LiveRows, None]:
    """Records from the end of the bounds on, until the generator is closed; a few times a second at most."""
    rules = RangeRules(isolation_level=READ_UNCOMMITTED if query.uncommitted else READ_COMMITTED)
    ranges = {each: OffsetRange(start=end) for each, (_, end) in bounds.items()}
    kept: deque[RecordRow] = deque(maxlen=ROWS_PER_TURN)
    arrived = matched = 0
    turned = time.monotonic()
    has_more = asyncio.Event()
    failures: list[BaseException] = []

    async def read() -> None:
        nonlocal arrived, matched
        try:
            async with aclosing(RangeFetch(cluster, ranges, rules).chunks()) as chunks:
                async for chunk in chunks:
                    scanned = await scans.run(partial(scan_chunk, chunk, plan, rows_max=ROWS_PER_TURN, newest=True))
                    kept.extend(scanned.rows)
                    arrived += scanned.records
                    matched += scanned.matched
                    has_more.set()
                    if scanned.error is not None:
                        raise scanned.error
        except Exception as error:
            failures.append(error)
            has_more.set()

    reading = asyncio.create_task(read())
    try:
        while True:
            await has_more.wait()
            await asyncio.sleep(max(0.0, turned + TURN_SECONDS - time.monotonic()))
            has_more.clear()
            now = time.monotonic()
            rows = in_time_order(kept, newest=True)
            yield LiveRows(rows=rows, arrived=arrived, matched=matched, seconds=now - turned)
            kept.clear()
            arrived = matched = 0
            turned = now
            if failures:
                raise failures[0]
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
