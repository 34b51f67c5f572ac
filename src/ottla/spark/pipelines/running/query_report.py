"""The progress of the queries of a run, for the terminal and as JSON. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec


class QueryReport(msgspec.Struct, kw_only=True, omit_defaults=False):
    """One query after its last micro-batch."""

    name: str
    to: str
    """Where it writes: a topic or a path."""
    state: str = "starting"
    """`starting`, `running`, `idle` (nothing new to read), `done`, `stopped` or `failed`."""
    batch: int | None = None
    rows: int = 0
    """Rows read since this run began."""
    rows_per_second: float = 0.0
    bytes_per_second: float | None = None
    batch_ms: int | None = None
    behind: int | None = None
    """Offsets up to the end that are not yet read; None if the sources do not report it."""
    state_rows: int | None = None
    watermark: str | None = None


def with_progress(report: QueryReport, progress: Mapping[str, Any]) -> QueryReport:
    """The report after one more micro-batch, from the progress that Spark reports."""
    from ottla.spark.progress import stream_progress

    stream = stream_progress(progress)
    return msgspec.structs.replace(
        report,
        state=_state_when_alive(report, "running"),
        batch=stream.batch_id,
        rows=report.rows + stream.rows,
        rows_per_second=stream.rows_processed_per_second,
        bytes_per_second=stream.bytes_per_second,
        batch_ms=stream.batch_ms,
        behind=stream.offsets_behind,
        state_rows=stream.state_rows if progress.get("stateOperators") else None,
        watermark=(progress.get("eventTime") or {}).get("watermark"),
    )


def when_begun(report: QueryReport) -> QueryReport:
    """The report once the sources of the query have started."""
    return msgspec.structs.replace(report, state="running") if report.state == "starting" else report


def when_idle(report: QueryReport) -> QueryReport:
    """The report when Spark reports the query as idle."""
    return msgspec.structs.replace(
        report, state=_state_when_alive(report, "idle"), rows_per_second=0.0, bytes_per_second=None
    )


def _state_when_alive(report: QueryReport, state: str) -> str:
    """The new state, unless the query has ended: Spark reports the last micro-batch after that."""
    return state if report.state in ("starting", "running", "idle") else report.state
