"""What a person sees while a pipeline runs: a table that changes in place, or lines where there is no terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from ottla.cli.output import MISSING, human_bytes, json_line, print_table, say

if TYPE_CHECKING:
    from rich.table import Table

    from ottla.spark.pipelines.project import Project
    from ottla.spark.pipelines.query_report import QueryReport

LINES_SECONDS: Final = 10.0
"""How often a run tells how far it is, where there is no terminal."""
COLUMNS: Final = ("sink", "to", "state", "batch", "rows", "rows/s", "bytes/s", "batch time", "behind", "state rows")


class _Watcher(Protocol):
    def __call__(self, reports: "list[QueryReport]", /) -> None: ...


def run_watched(project: "Project", *, master: str, once: bool, as_json: bool) -> None:
    """Runs a project and shows its progress; prints what came of it at the end."""
    from ottla.spark.pipelines.runner import run_project

    with _watcher(project, as_json=as_json) as watch:
        say(f"{project.name}: starting Spark on {master} …")

        def ready() -> None:
            if as_json:
                _print_json({"event": "ready", "pipeline": project.name})
            say(f"{project.name}: running" + (", until all there is has been read" if once else "; Ctrl-C ends it"))

        reports = run_project(project, master=master, once=once, watch=watch, ready=ready)
    if as_json:
        _print_json({"event": "end", "pipeline": project.name, "queries": reports})
    else:
        print_table(COLUMNS, [row_of(report) for report in reports])


def row_of(report: "QueryReport") -> tuple[str | int, ...]:
    """A report as the cells of a table."""
    return (
        report.name,
        report.to,
        report.state,
        MISSING if report.batch is None else report.batch,
        f"{report.rows:,}",
        f"{report.rows_per_second:,.0f}",
        MISSING if report.bytes_per_second is None else human_bytes(report.bytes_per_second),
        MISSING if report.batch_ms is None else f"{report.batch_ms / 1000:.2f} s",
        MISSING if report.behind is None else f"{report.behind:,}",
        MISSING if report.state_rows is None else f"{report.state_rows:,}",
    )


@contextmanager
def _watcher(project: "Project", *, as_json: bool) -> Iterator[_Watcher]:
    if as_json:
        yield _Lines(_print_report)
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield lambda reports: live.update(drawn(project.name, reports), refresh=True)
    else:
        yield _Lines(_say_report, every_seconds=LINES_SECONDS)


def drawn(title: str, reports: "list[QueryReport]") -> "Table":
    """The reports as a table for the terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    colours = {"running": "green", "failed": "red", "done": "cyan"}
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in COLUMNS:
        table.add_column(heading, justify="left" if heading in COLUMNS[:3] else "right", no_wrap=True)
    for report in reports:
        cells = [Text(str(cell)) for cell in row_of(report)]
        cells[2].stylize(colours.get(report.state, "yellow"))
        table.add_row(*cells)
    return table


class _Lines:
    """Tells of each micro-batch, or of as many as there is time for."""

    def __init__(self, tell: Any, every_seconds: float = 0.0) -> None:
        self._tell = tell
        self._every = every_seconds
        self._told: dict[str, tuple[int | None, str]] = {}
        self._due = time.monotonic() + every_seconds

    def __call__(self, reports: "list[QueryReport]", /) -> None:
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + self._every
        for report in reports:
            if report.batch is not None and self._told.get(report.name) != (report.batch, report.state):
                self._told[report.name] = (report.batch, report.state)
                self._tell(report)


def _print_json(document: Any) -> None:
    print(json_line(document).decode(), end="", flush=True)


def _print_report(report: "QueryReport") -> None:
    _print_json({"event": "progress"} | msgspec.to_builtins(report))


def _say_report(report: "QueryReport") -> None:
    cells = dict(zip(COLUMNS, row_of(report), strict=True))
    say(", ".join([str(cells.pop("sink"))] + [f"{name} {cell}" for name, cell in cells.items() if cell != MISSING]))
