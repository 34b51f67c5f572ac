"""Fetches one span of a partition for a task, and decides whether missing records are data loss.

A gap that compaction or transactions left is not. An offset out of range, or a topic that was deleted, is: the query
fails, or goes on with what is left if `failOnDataLoss` is false. Fetching is `ottla.client.fetch`'s, decoding is in
`columns.py`.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.client.errors import AnswerError, DeadlineError
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.fetch_connections import FetchConnections
from ottla.client.fetch.range_fetch import OffsetRange, RangeFetch, RangeRules, is_missing
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import offset_bounds
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError, RetriableError
from ottla.spark.source.data_loss import report_data_loss
from ottla.spark.source.span_plan import OffsetSpan

FETCH_BYTES: Final = 2 * 1024 * 1024
_MISSING_TRIES: Final = 3
"""How often a topic may be unknown before its records count as lost: a broker that just started may not know it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanRules:
    """How a span is fetched."""

    isolation_level: int
    poll_timeout_ms: int
    """How long no record may arrive before that is an error."""
    fail_on_data_loss: bool = True
    fetch_bytes: int = FETCH_BYTES


class SpanFetch:
    """The chunks of one span. `chunks` may be iterated once, on the event loop of the cluster.

    With the topic's id, a topic that was recreated under the same name is not read: the span's records are gone.
    """

    def __init__(
        self,
        cluster: Cluster,
        connections: FetchConnections,
        span: OffsetSpan,
        rules: SpanRules,
        topic_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._connections = connections
        self._span = span
        self._rules = rules
        self._next = span.start
        """Where to go on after what was handed out."""
        self._range_rules = RangeRules(
            isolation_level=rules.isolation_level,
            fetch_bytes_max=rules.fetch_bytes,
            partition_bytes_max=rules.fetch_bytes,
            retry_timeout_ms=rules.poll_timeout_ms,
            records_timeout_ms=rules.poll_timeout_ms,
            missing_tries=_MISSING_TRIES,
            topic_id=None if topic_id is None else UUID(topic_id),
        )

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """Yields the span's chunks in order. Raises `DataLossError`, and `DeadlineError` if no more records arrive."""
        while self._next < self._span.end:
            wanted = {self._span.partition: OffsetRange(start=self._next, end=self._span.end)}
            fetch = RangeFetch(self._cluster, wanted, self._range_rules, connections=self._connections)
            try:
                async with aclosing(fetch.chunks()) as chunks:
                    async for chunk in chunks:
                        self._next = chunk.next_offset
                        yield chunk
                return
            except OttlaError as error:
                if is_missing(error):
                    self._on_missing(error)
                elif isinstance(error, AnswerError) and error.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._on_out_of_range()
                elif isinstance(error, RetriableError):
                    raise DeadlineError(f"{error}; kafkaConsumer.pollTimeoutMs sets how long to wait") from error
                else:
                    raise

    async def _on_out_of_range(self) -> None:
        """Records were deleted, or the log is shorter than it was: goes on with what is left, if that is allowed."""
        partition = self._span.partition
        bounds = await offset_bounds(self._cluster, [partition], isolation_level=self._rules.isolation_level)
        start, end = bounds[partition]
        report_data_loss(
            f"{partition}: offsets {self._next} to {self._span.end - 1} are to be read, but the log has "
            f"{start} to {end - 1}",
            fails=self._rules.fail_on_data_loss,
        )
        # What lies before the log's start is skipped. A log that ends before the span has nothing for it.
        self._next = start if self._next < start < self._span.end else self._span.end

    def _on_missing(self, error: OttlaError) -> None:
        report_data_loss(
            f"{self._span.partition} was deleted with offsets {self._next} to {self._span.end - 1} ({error})",
            fails=self._rules.fail_on_data_loss,
        )
        self._next = self._span.end
