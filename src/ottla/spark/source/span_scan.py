"""What a task does: reads one span of a partition and yields Arrow batches, while it fetches ahead.

Connections stay open in the worker process, which Spark uses for many tasks. Spans are planned in `span_plan.py`,
fetched in `span_fetch.py`, and decoded in `columns.py`, which only tasks import: it would delay the start of a stream
on the driver. Segment files of a broker on the same machine are read in `segment_scan.py`.
"""

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ottla.client.admin.options import AdminConfig
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.fetch.chunk import Chunk
from ottla.client.fetch.fetch_connections import FetchConnections
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import Cluster
from ottla.client.options import OptionError, configured
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.spark.option_names import chosen_for
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.segment_scan import OFFSETS_MIN, SegmentHint, SegmentScan
from ottla.spark.source.span_fetch import SpanFetch, SpanRules
from ottla.spark.source.span_plan import OffsetSpan

if TYPE_CHECKING:
    from ottla.spark.source.columns import SparkColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """All that a task must know beside its span; made on the driver."""

    client: Mapping[str, Any] = field(repr=False)
    """Options of the clients, which may contain secrets."""
    rules: SpanRules
    columns: tuple[str, ...]
    segments: Literal["auto", "never", "always"] = "auto"


def scan_plan(options: SourceOptions, columns: Sequence[str]) -> ScanPlan:
    """The plan for tasks that read these columns."""
    client = dict(options.client)
    client.setdefault("client_id", client_id_of(options))
    rules = SpanRules(
        isolation_level=ISOLATION_LEVELS[options.isolation_level],
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        **{"fetch_bytes": client["max_partition_fetch_bytes"]} if "max_partition_fetch_bytes" in client else {},
    )
    return ScanPlan(client=client, rules=rules, columns=tuple(columns), segments=options.segments)


def client_id_of(options: SourceOptions) -> str:
    """The client id of the query: its group, or its group prefix."""
    group = options.client.get("group_id") or options.group_id
    return str(group or options.raw.get("groupidprefix", "").strip() or "ottla-spark")


def scan_span(
    plan: ScanPlan, span: OffsetSpan, hint: SegmentHint | None = None, topic_id: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of a span. Raises `DataLossError` for missing records, unless the query allows it.

    With a hint they are read from the broker's segment files as far as these are valid. With the topic's id, a topic
    that was recreated under the same name is not read.
    """
    from ottla.spark.source.columns import SparkColumns

    columns = SparkColumns(span.partition, plan.columns)
    if plan.segments == "always" or (hint is not None and plan.segments == "auto" and span.size >= OFFSETS_MIN):
        files = _files(plan, span, hint)
        for piece in files.pieces():
            yield from columns.decode(piece.batches, piece.start, span.end, None)
        span = OffsetSpan(span.partition, min(files.position, span.end), span.end)
    if span.size > 0:
        yield from _fetched(plan, span, columns, topic_id)


def _files(plan: ScanPlan, span: OffsetSpan, hint: SegmentHint | None) -> SegmentScan:
    if hint is None:
        raise OptionError(
            f"segments=always: cannot use the segment files of {span.partition}: the broker did not report their "
            f"location (needs DESCRIBE on the cluster) or does not allow this user to READ the topic, offset "
            f"{span.start} is before the log start, or its records have a TTL; use segments=auto to fetch instead"
        )
    files = SegmentScan(hint, span, stops_at_transactions=plan.rules.isolation_level == READ_COMMITTED)
    if plan.segments == "always" and (problem := files.problem()) is not None:
        raise OptionError(f"segments=always: {problem}; use segments=auto to fetch instead")
    return files


def _fetched(
    plan: ScanPlan, span: OffsetSpan, columns: "SparkColumns", topic_id: str | None
) -> Iterator[pa.RecordBatch]:
    opened = _opened(plan.client)
    chunks = SpanFetch(opened.cluster, opened.connections, span, plan.rules, topic_id).chunks()
    try:
        while (chunk := opened.thread.call(_next_chunk(chunks))) is not None:
            yield from columns.decode(chunk.batches, chunk.start, span.end, chunk.aborted)
    finally:
        opened.thread.call(chunks.aclose())


async def _next_chunk(chunks: AsyncGenerator[Chunk, None]) -> Chunk | None:
    return await anext(chunks, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The connections to one cluster, with the thread of their event loop."""

    thread: LoopThread
    cluster: Cluster
    connections: FetchConnections
    process: int


_kept: dict[tuple[tuple[str, str], ...], Opened] = {}
"""By client options; a worker process usually reads from one cluster only."""


def _opened(client: Mapping[str, Any]) -> Opened:
    key = tuple(sorted((name, repr(value)) for name, value in client.items()))
    found = _kept.get(key)
    # A forked process inherits this table without the threads.
    if found is None or found.process != os.getpid():
        thread = LoopThread("ottla spark reader")
        cluster = configured(AdminConfig, "the source ottla", chosen_for(AdminConfig, client)).cluster()
        found = _kept[key] = Opened(
            thread=thread, cluster=cluster, connections=FetchConnections(cluster), process=os.getpid()
        )
    return found
