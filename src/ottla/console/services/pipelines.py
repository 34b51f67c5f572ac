"""Pipelines of this machine: their projects, runs and queries, from files, and their lag, from the cluster. No Spark.

A pipeline leaves its progress, its checkpoints and its last error beside its project (`ottla.spark.pipelines.running`).
The console reads them in the folders that it was started with; a pipeline on another machine is seen only as the groups
that commit its offsets.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.client.admin.async_admin import OffsetSpec
from ottla.client.errors import AnswerError
from ottla.console.cluster.access import Access
from ottla.console.services.pipeline_graph import Graph, QueryFacts, draw
from ottla.console.settings import AuthMode
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, MisuseError, OttlaError
from ottla.spark.pipelines.declaration.loading import load_project
from ottla.spark.pipelines.declaration.project import PROJECT_FILE, Project
from ottla.spark.pipelines.running.checkpoints import Batch, read_batches
from ottla.spark.pipelines.running.failure_reasons import failure_reason
from ottla.spark.pipelines.running.project_status import QueryStatus, compared, local_status, wanted_partitions
from ottla.spark.pipelines.running.query_names import view_of
from ottla.spark.pipelines.running.run_files import ERROR_LOG, checkpoint_folder, read_progress, state_folder

if TYPE_CHECKING:
    from ottla.client.admin.async_admin import AsyncAdmin

_ALIVE: Final = frozenset({"starting", "running", "idle"})
_BATCHES_MAX: Final = 50
_ERROR_BYTES_MAX: Final = 64 * 1024
_PROJECTS_MAX: Final = 500


class UnknownPipelineError(InvalidRequestError):
    """No folder of the console has a pipeline of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRow:
    """One query of a pipeline."""

    name: str
    view: str
    to: str
    topic: str | None
    """The topic that it writes; None for files."""
    group_id: str
    state: str
    """`starting`, `running`, `idle`, `done`, `stopped`, `failed`, `interrupted`, or `not run`."""
    level: str
    """ok, warning, error or unknown, for the eye."""
    batch: int | None
    rows: int | None
    """Rows read since the run began."""
    rows_per_second: float | None
    bytes_per_second: float | None
    batch_ms: int | None
    lag: int | None
    lag_by_topic: dict[str, int]
    state_rows: int | None
    watermark: str | None
    finished_ms: int | None
    """When its last batch was completed."""
    batches: tuple[Batch, ...]
    status: QueryStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineError:
    """The last failure of a run."""

    reason: str
    text: str
    at_ms: int
    is_current: bool
    """Whether the last run ended with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """One pipeline."""

    key: str
    """Its name in addresses."""
    name: str
    folder: Path
    state: str
    """`running`, `failed`, `interrupted`, `not running`, `never run` or `invalid`."""
    level: str
    process: int | None
    progress_ms: int | None
    """When the run reported last."""
    bootstrap: str
    mode: str
    trigger: str
    queries: tuple[QueryRow, ...]
    error: PipelineError | None
    problems: tuple[str, ...]
    """Why the project cannot be loaded."""
    remark: str | None
    """Why the lag is not known."""
    graph: Graph | None

    @property
    def rows_per_second(self) -> float | None:
        """Of all queries together."""
        return _total([each.rows_per_second for each in self.queries])

    @property
    def lag(self) -> int | None:
        """Of all queries together."""
        known = [each.lag for each in self.queries if each.lag is not None]
        return sum(known) if known else None


def find_projects(folders: Iterable[Path]) -> dict[str, Path]:
    """The folders with a project, by the name in addresses: those given, and those directly inside of them."""
    found: dict[str, Path] = {}
    for folder in folders:
        inner = sorted(folder.iterdir()) if folder.is_dir() else []
        for each in (folder, *inner):
            if len(found) >= _PROJECTS_MAX:
                return found
            if (each / PROJECT_FILE).is_file() and each.resolve() not in found.values():
                key, number = each.resolve().name, 2
                while key in found:
                    key, number = f"{each.resolve().name}~{number}", number + 1
                found[key] = each.resolve()
    return found


async def list_pipelines(access: Access) -> list[PipelineView]:
    """All pipelines that the user may see, each with its queries and their lag."""
    found = await asyncio.to_thread(find_projects, access.settings.pipelines)
    local = await asyncio.to_thread(lambda: [read_pipeline(key, folder) for key, folder in found.items()])
    seen = await asyncio.gather(*(_seen(access, each) for each in local))
    return [each for each in seen if each is not None]


async def read_one(access: Access, key: str) -> PipelineView:
    """One pipeline with its picture and its batches. Raises `UnknownPipelineError`."""
    found = await asyncio.to_thread(find_projects, access.settings.pipelines)
    view = None
    if key in found:
        view = await _seen(access, await asyncio.to_thread(read_pipeline, key, found[key], batches=_BATCHES_MAX))
    if view is None:
        raise UnknownPipelineError(f"no pipeline {key} in the folders of this console, or you may not see it")
    return view


async def _seen(access: Access, view: PipelineView) -> PipelineView | None:
    """The pipeline with its lag. With a login, None for a user who may not describe the groups of its queries: the
    files of a pipeline name topics, and its errors may have parts of their records."""
    try:
        return await with_lag(access.admin(), view)
    except AnswerError as error:
        if access.settings.auth is not AuthMode.NONE:
            return None
        return replace(view, remark=f"The lag is not known: {error}")


def read_pipeline(key: str, folder: Path, *, batches: int = 0) -> PipelineView:
    """What the files of a project say. Blocks."""
    try:
        project = load_project(folder)
    except (MisuseError, OSError) as error:
        return _invalid(key, folder, str(error))
    status = local_status(project)
    progress = read_progress(project)
    is_running = status.process is not None
    rows = tuple(_row(project, each, is_running=is_running, batches=batches) for each in status.queries)
    state = _state(rows, is_running=is_running)
    return PipelineView(
        key=key,
        name=project.name,
        folder=folder,
        state=state,
        level=_LEVELS.get(state, "unknown"),
        process=status.process,
        progress_ms=_progress_ms(progress),
        bootstrap=project.settings.bootstrap,
        mode=project.settings.mode,
        trigger=project.settings.trigger,
        queries=rows,
        error=_read_error(project, is_failed=state == "failed"),
        problems=(),
        remark=None,
        graph=draw(project, [_facts(each) for each in rows]),
    )


async def with_lag(admin: "AsyncAdmin", view: PipelineView) -> PipelineView:
    """The pipeline with the offsets of the cluster. A cluster that does not answer is a remark. Raises `AnswerError` if
    the user may not describe a group of it."""
    if view.problems:
        return view
    try:
        rows = tuple(await asyncio.gather(*(_compared(admin, each) for each in view.queries)))
    except OttlaError as error:
        if isinstance(error, AnswerError) and error.error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise
        return replace(view, remark=f"The lag is not known: {error}")
    graph = await asyncio.to_thread(_redrawn, view.folder, rows)
    return replace(view, queries=rows, graph=graph)


def _redrawn(folder: Path, rows: Sequence[QueryRow]) -> Graph | None:
    try:
        return draw(load_project(folder), [_facts(each) for each in rows])
    except (MisuseError, OSError):
        return None


async def _compared(admin: "AsyncAdmin", row: QueryRow) -> QueryRow:
    offsets = await admin.list_consumer_group_offsets(row.group_id)
    committed = {each: found.offset for each, found in offsets.items()}
    wanted = wanted_partitions(row.status, committed)
    ends = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST), raise_errors=False) if wanted else {}
    status = compared(row.status, committed, {each: ends[each].offset for each in ends})
    by_topic: dict[str, int] = {}
    for each in status.partitions:
        if each.lag is not None:
            by_topic[each.topic] = by_topic.get(each.topic, 0) + each.lag
    return replace(row, status=status, lag=status.lag, lag_by_topic=by_topic)


_LEVELS: Final = {
    "running": "ok",
    "idle": "ok",
    "starting": "ok",
    "done": "ok",
    "stopped": "unknown",
    "failed": "error",
    "interrupted": "error",
    "invalid": "error",
    "not running": "unknown",
    "never run": "unknown",
    "not run": "unknown",
}


def _row(project: Project, status: QueryStatus, *, is_running: bool, batches: int) -> QueryRow:
    told = status.progress
    state = str(told.get("state") or "not run")
    if state in _ALIVE and not is_running:
        # The process ended without saying how: it was killed, or the machine stopped.
        state = "interrupted"
    elif not told and status.checkpoint is not None:
        state = "stopped"
    folder = checkpoint_folder(project, status.name)
    sink = project.settings.sinks.get(status.name)
    letters = project.settings.dead_letters
    rate = told.get("rows_per_second") if is_running and state in _ALIVE else None
    return QueryRow(
        name=status.name,
        view=view_of(project, status.name),
        to=status.to,
        topic=(letters.topic if letters is not None else None) if sink is None else sink.topic,
        group_id=status.group_id,
        state=state,
        level=_LEVELS.get(state, "unknown"),
        batch=told.get("batch") if status.checkpoint is None else status.checkpoint.batch,
        rows=told.get("rows"),
        rows_per_second=rate,
        bytes_per_second=told.get("bytes_per_second") if rate is not None else None,
        batch_ms=told.get("batch_ms"),
        lag=told.get("behind"),
        lag_by_topic={},
        state_rows=told.get("state_rows"),
        watermark=told.get("watermark"),
        finished_ms=None if status.checkpoint is None else status.checkpoint.finished_ms,
        batches=tuple(read_batches(folder, batches)) if folder is not None and batches else (),
        status=status,
    )


def _facts(row: QueryRow) -> QueryFacts:
    return QueryFacts(
        name=row.name, rows_per_second=row.rows_per_second, lag_by_topic=row.lag_by_topic, state=row.state
    )


def _state(rows: Sequence[QueryRow], *, is_running: bool) -> str:
    states = {each.state for each in rows}
    if is_running:
        return "failed" if "failed" in states else "running"
    for each in ("failed", "interrupted"):
        if each in states:
            return each
    return "never run" if states <= {"not run"} else "not running"


def _progress_ms(progress: dict[str, Any]) -> int | None:
    at = progress.get("at")
    return int(at * 1000) if isinstance(at, int | float) else None


def _read_error(project: Project, *, is_failed: bool) -> PipelineError | None:
    path = state_folder(project) / ERROR_LOG
    try:
        with path.open("rb") as file:
            text = file.read(_ERROR_BYTES_MAX).decode(errors="replace")
        at_ms = int(path.stat().st_mtime * 1000)
    except OSError:
        return None
    return PipelineError(reason=failure_reason(text), text=text, at_ms=at_ms, is_current=is_failed)


def _invalid(key: str, folder: Path, problems: str) -> PipelineView:
    return PipelineView(
        key=key,
        name=key,
        folder=folder,
        state="invalid",
        level="error",
        process=None,
        progress_ms=None,
        bootstrap="",
        mode="",
        trigger="",
        queries=(),
        error=None,
        problems=tuple(problems.splitlines()),
        remark=None,
        graph=None,
    )


def _total(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None
