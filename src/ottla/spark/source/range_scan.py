"""What a task of Spark does: reads one span of a partition and yields Arrow batches, fetching ahead meanwhile.

Connections stay with the worker process, which Spark uses for many tasks. Which span: `range_plan.py`; how it is
fetched: `range_fetch.py`; how decoded: `columns.py`, loaded by tasks alone, for the driver has no use for decoders and
a stream's start waits for what it loads. Where the broker's files are on this machine: `segment_scan.py`.
"""

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ottla.client.admin.options import AdminConfig
from ottla.client.consumer.options import ISOLATION_LEVELS
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import Cluster
from ottla.client.options import OptionError, configured
from ottla.protocol.fetch_frames import READ_COMMITTED
from ottla.spark.option_names import chosen_for
from ottla.spark.source.fetch_connections import FetchConnections
from ottla.spark.source.options import SourceOptions
from ottla.spark.source.range_fetch import FetchRules, Piece, RangeFetch
from ottla.spark.source.range_plan import OffsetSpan
from ottla.spark.source.segment_scan import OFFSETS_MIN, SegmentHint, SegmentScan

if TYPE_CHECKING:
    from ottla.spark.source.columns import SparkColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """All that a task must know, besides its span; made on the driver."""

    client: Mapping[str, Any]
    """Keyword arguments of our clients."""
    rules: FetchRules
    columns: tuple[str, ...]
    segments: Literal["auto", "never", "always"] = "auto"


def scan_plan(options: SourceOptions, columns: Sequence[str]) -> ScanPlan:
    """What the options mean for tasks that give these columns."""
    client = dict(options.client)
    client.setdefault("client_id", client_id_of(options))
    rules = FetchRules(
        isolation_level=ISOLATION_LEVELS[options.isolation_level],
        poll_timeout_ms=options.poll_timeout_ms,
        fail_on_data_loss=options.fail_on_data_loss,
        **{"fetch_bytes": client["max_partition_fetch_bytes"]} if "max_partition_fetch_bytes" in client else {},
    )
    return ScanPlan(client=client, rules=rules, columns=tuple(columns), segments=options.segments)


def client_id_of(options: SourceOptions) -> str:
    """How brokers see the query: by the group it was told, or by the prefix of the groups it would make."""
    group = options.client.get("group_id") or options.group_id
    return str(group or options.raw.get("groupidprefix", "").strip() or "ottla-spark")


def scan_span(
    plan: ScanPlan, span: OffsetSpan, hint: SegmentHint | None = None, topic_id: str | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a span. Raises `DataLossError` for records that are gone, if the query does not allow it.

    With a hint they are read from the broker's files, as far as that can be done without any doubt. With the topic's
    id, those of a topic that was deleted and made again are not taken for them.
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
            f"segments=always: the files of {span.partition} cannot be used: the broker does not say where they are, "
            f"or offset {span.start} lies before the log's start; use segments=auto, which fetches where it must"
        )
    files = SegmentScan(hint, span, stops_at_transactions=plan.rules.isolation_level == READ_COMMITTED)
    if plan.segments == "always" and (problem := files.problem()) is not None:
        raise OptionError(f"segments=always: {problem}; use segments=auto, which fetches where it must")
    return files


def _fetched(
    plan: ScanPlan, span: OffsetSpan, columns: "SparkColumns", topic_id: str | None
) -> Iterator[pa.RecordBatch]:
    opened = _opened(plan.client)
    fetch = RangeFetch(opened.cluster, opened.connections, span, plan.rules, topic_id)
    pieces: AsyncGenerator[Piece, None] = fetch.pieces()
    try:
        while (piece := opened.thread.call(_next_piece(pieces))) is not None:
            yield from columns.decode(piece.batches, piece.start, span.end, piece.aborted)
    finally:
        opened.thread.call(pieces.aclose())


async def _next_piece(pieces: AsyncGenerator[Piece, None]) -> Piece | None:
    return await anext(pieces, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A way into one cluster, with the thread that it lives on."""

    thread: LoopThread
    cluster: Cluster
    connections: FetchConnections
    process: int


_kept: dict[tuple[tuple[str, str], ...], Opened] = {}
"""By client options; a worker process usually reads from one cluster only."""


def _opened(client: Mapping[str, Any]) -> Opened:
    key = tuple(sorted((name, repr(value)) for name, value in client.items()))
    found = _kept.get(key)
    # A forked process has the table of its parent, and none of its threads.
    if found is None or found.process != os.getpid():
        thread = LoopThread("ottla spark reader")
        cluster = configured(AdminConfig, "the source ottla", chosen_for(AdminConfig, client)).cluster()
        found = _kept[key] = Opened(
            thread=thread, cluster=cluster, connections=FetchConnections(cluster), process=os.getpid()
        )
    return found
