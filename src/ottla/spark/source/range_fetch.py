"""Fetches one span of a partition ahead of whoever decodes it; follows leaders, and sits out a broker that is away.

Unlike the clients' readers this one knows where the span must end: an offset that is gone is data loss, which a query
may allow; a gap that compaction or transactions left, up to the very end, is none. Decoding is `range_scan.py`'s.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.client.errors import AnswerError, DeadlineError, UnsupportedByBrokerError, answer_error
from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.network.list_offsets import offset_bounds
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.protocol.apis import ApiKey
from ottla.protocol.fetch_frames import (
    READ_COMMITTED,
    VERSION,
    VERSION_BY_ID,
    Fetched,
    Wanted,
    fetch_body,
    read_fetch_answer,
)
from ottla.records.batch import Batch, scan
from ottla.spark.source.data_loss import report_data_loss
from ottla.spark.source.fetch_connections import FetchConnections
from ottla.spark.source.range_plan import OffsetSpan
from ottla.transport.client_connection import Connection

FETCH_BYTES: Final = 2 * 1024 * 1024
PIECES_AHEAD_MAX: Final = 4
_WAIT_MS: Final = 500
_ANSWER_TIMEOUT_MS: Final = 30_000
_RETRY_FIRST_S: Final = 0.05
_RETRY_LONGEST_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some whole batches of the span, in order."""

    batches: list[Batch]
    aborted: list[tuple[int, int]] | None
    """What a reader of committed records leaves out; None for other readers."""
    start: int
    """Records before it do not belong to the span, or came already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRules:
    """How a span is fetched."""

    isolation_level: int
    poll_timeout_ms: int
    """How long nothing may arrive before that is an error."""
    fail_on_data_loss: bool = True
    fetch_bytes: int = FETCH_BYTES
    request_timeout_ms: int = _ANSWER_TIMEOUT_MS


class RangeFetch:
    """The pieces of one span; `pieces` may be iterated once, on the event loop of the cluster.

    With the topic's id, one that was made again under the same name is not read: what the span means is gone.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: FetchConnections,
        span: OffsetSpan,
        rules: FetchRules,
        topic_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._connections = connections
        self._span = span
        self._topic_id = None if topic_id is None else UUID(topic_id)
        self._rules = rules
        self._next = span.start
        """Where to go on after what was put into the queue."""
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue(PIECES_AHEAD_MAX)

    async def pieces(self) -> AsyncGenerator[Piece, None]:
        """Yields what there is in order. Raises `DataLossError`, and `DeadlineError` if nothing arrives any more."""
        reading = asyncio.create_task(self._read())
        try:
            while (piece := await self._pieces.get()) is not None:
                yield piece
            await reading
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, OttlaError):
                await reading

    async def _read(self) -> None:
        try:
            await self._read_through()
        except asyncio.CancelledError:
            raise
        except BaseException:
            await self._pieces.put(None)
            raise
        await self._pieces.put(None)

    async def _read_through(self) -> None:
        """Fetches until the end of the span, again and again while what fails may come back."""
        tries, progress = 0, self._cluster.clock.monotonic()
        reached = self._next
        while self._next < self._span.end:
            try:
                await self._fetch()
            except (RetriableError, UnknownPartitionInTopicError) as error:
                now = self._cluster.clock.monotonic()
                if self._next > reached:
                    tries, progress, reached = 0, now, self._next
                if _is_missing(error) and tries >= 3:
                    await self._on_missing(error)
                    return
                if (now - progress) * 1000 >= self._rules.poll_timeout_ms:
                    raise self._too_late(error) from error
                await self._cluster.clock.sleep(min(_RETRY_FIRST_S * 2**tries, _RETRY_LONGEST_S))
                tries += 1
                self._cluster.forget_topic(self._span.partition.topic)
            except AnswerError as error:
                if error.error_code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                await self._on_out_of_range()

    async def _fetch(self) -> None:
        """Fetches from the leader as it is now; one request is under way while the answer before is handed on."""
        leader = await self._cluster.leader_of(self._span.partition)
        ahead, silent_since = self._next, self._cluster.clock.monotonic()
        async with self._connections.to(leader) as connection:
            answer = self._request(connection, ahead)
            while True:
                (fetched,) = self._answered(await answer, connection)
                if fetched.error_code:
                    raise answer_error(fetched.error_code, f"reading {self._span.partition} at offset {ahead}")
                batches, _, problem = scan(fetched.records, check_crc=False)
                if problem is not None and not batches:
                    what = f"{self._span.partition} at offset {ahead}: {problem}"
                    raise AnswerError(ErrorCode.CORRUPT_MESSAGE, what)
                start, now = ahead, self._cluster.clock.monotonic()
                if batches:
                    ahead, silent_since = batches[-1].next_offset, now
                elif self._is_gap(fetched):
                    self._next = self._span.end
                    return
                elif (now - silent_since) * 1000 >= self._rules.poll_timeout_ms:
                    raise self._too_late(None)
                if ahead < self._span.end:
                    answer = self._request(connection, ahead)
                if batches:
                    aborted = fetched.aborted if self._rules.isolation_level == READ_COMMITTED else None
                    await self._pieces.put(Piece(batches=batches, aborted=aborted, start=start))
                    self._next = ahead
                if ahead >= self._span.end:
                    return

    def _request(self, connection: Connection, offset: int) -> "asyncio.Future[memoryview]":
        version = self._version(connection)
        if version < VERSION:
            raise UnsupportedByBrokerError(f"{connection.address} does not speak FETCH {VERSION}; use a newer broker")
        size = self._rules.fetch_bytes
        body = fetch_body(
            [Wanted(self._span.partition, offset, size)],
            isolation_level=self._rules.isolation_level,
            wait_ms=_WAIT_MS,
            bytes_min=1,
            bytes_max=size,
            topic_id=self._topic_id if version == VERSION_BY_ID else None,
        )
        timeout_ms = _WAIT_MS + self._rules.request_timeout_ms
        return connection.request_bytes(ApiKey.FETCH, version, body, timeout_ms=timeout_ms)

    def _answered(self, frame: memoryview, connection: Connection) -> list[Fetched]:
        by_id = self._version(connection) == VERSION_BY_ID
        return read_fetch_answer(frame, self._span.partition.topic if by_id else None)

    def _version(self, connection: Connection) -> int:
        """By id, if there is one and the broker is new enough to know ids."""
        return connection.version_for(ApiKey.FETCH, VERSION if self._topic_id is None else VERSION_BY_ID)

    def _is_gap(self, fetched: Fetched) -> bool:
        """Whether an empty answer says that there is nothing up to the end: all of it could be seen, and nothing is."""
        committed = self._rules.isolation_level == READ_COMMITTED
        end = fetched.last_stable_offset if committed else fetched.high_watermark
        return end >= self._span.end

    async def _on_out_of_range(self) -> None:
        """Records were deleted, or the log is shorter than it was: goes on with what is left, if that is allowed."""
        partition = self._span.partition
        bounds = await offset_bounds(self._cluster, [partition], isolation_level=self._rules.isolation_level)
        start, end = bounds[partition]
        report_data_loss(
            f"{partition}: offsets {self._next} to {self._span.end - 1} should be read, and the log has "
            f"{start} to {end - 1}",
            fails=self._rules.fail_on_data_loss,
        )
        # What lies before the log's start is skipped; a log that ends before has nothing for this span.
        self._next = start if self._next < start < self._span.end else self._span.end

    async def _on_missing(self, error: OttlaError) -> None:
        report_data_loss(
            f"{self._span.partition} is gone, and offsets {self._next} to {self._span.end - 1} with it ({error})",
            fails=self._rules.fail_on_data_loss,
        )
        self._next = self._span.end

    def _too_late(self, error: Exception | None) -> DeadlineError:
        reason = f" ({error})" if error is not None else ""
        return DeadlineError(
            f"{self._span.partition}: nothing arrived at offset {self._next} for {self._rules.poll_timeout_ms} ms"
            f"{reason}; kafkaConsumer.pollTimeoutMs says how long to wait"
        )


def _is_missing(error: Exception) -> bool:
    return isinstance(error, UnknownPartitionInTopicError) or (
        isinstance(error, AnswerError)
        and error.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    )
