"""Prints the status of a pipeline: a table with a line per query and topic, or everything as JSON."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla.cli.output import MISSING, Cell, print_json, print_table, say, tell

if TYPE_CHECKING:
    from ottla.spark.pipelines.declaration.project import Project
    from ottla.spark.pipelines.running.project_status import ProjectStatus, QueryStatus


def print_status(project: "Project", status: "ProjectStatus", *, as_json: bool) -> None:
    """Prints the status of a project."""
    if as_json:
        print_json(
            {
                "pipeline": project.name,
                "running": status.process is not None,
                "process": status.process,
                "remark": status.remark,
                "queries": [document_of(query) for query in status.queries],
            }
        )
        return
    state = f"is running (process {status.process})" if status.process is not None else "is not running"
    tell(f"{project.name} {state}")
    columns = ("sink", "to", "batch", "at", "rows/s", "batch time", "topic", "read", "committed", "lag")
    print_table(columns, [row for query in status.queries for row in _rows(query)])
    if status.remark:
        say(status.remark)


def document_of(query: "QueryStatus") -> dict[str, Any]:
    """One query in JSON."""
    state = query.checkpoint
    return {
        "name": query.name,
        "to": query.to,
        "group": query.group_id,
        "batch": None if state is None else state.batch,
        "batch_open": state is not None and state.is_batch_open,
        "finished_ms": None if state is None else state.finished_ms,
        "watermark_ms": None if state is None else state.watermark_ms,
        "lag": query.lag,
        "progress": query.progress,
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "read": each.read,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
            }
            for each in query.partitions
        ],
    }


def _rows(query: "QueryStatus") -> list[tuple[Cell, ...]]:
    state = query.checkpoint
    batch: Cell = MISSING if state is None or state.batch is None else state.batch
    at = MISSING
    if state is not None and state.finished_ms is not None:
        at = datetime.fromtimestamp(state.finished_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    rate: Cell = round(query.progress["rows_per_second"]) if "rows_per_second" in query.progress else MISSING
    took = query.progress.get("batch_ms")
    first: tuple[Cell, ...] = (
        query.name,
        query.to,
        batch,
        at,
        rate,
        MISSING if took is None else f"{took / 1000:.2f} s",
    )
    topics = list(dict.fromkeys(each.topic for each in query.partitions))
    if not topics:
        return [(*first, MISSING, MISSING, MISSING, MISSING)]
    rows: list[tuple[Cell, ...]] = []
    for topic in topics:
        parts = [each for each in query.partitions if each.topic == topic]
        sums = (
            _sum([each.read for each in parts]),
            _sum([each.committed for each in parts]),
            _sum([each.lag for each in parts]),
        )
        rows.append((*(first if not rows else ("",) * len(first)), topic, *sums))
    return rows


def _sum(numbers: list[int | None]) -> Cell:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else MISSING
