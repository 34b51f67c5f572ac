"""The progress of a running pipeline: a table that changes in place, or lines if there is no terminal."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from ottla.cli.output import MISSING, human_bytes, json_line, print_table, say

if TYPE_CHECKING:
    from rich.table import Table

    from ottla.spark.pipelines.declaration.project import Project
    from ottla.spark.pipelines.running.query_report import QueryReport

LINES_SECONDS: Final = 10.0
"""How often a run prints its progress if there is no terminal."""
COLUMNS: Final = ("sink", "to", "state", "batch", "rows", "rows/s", "bytes/s", "batch time", "behind", "state rows")

NAMES: Final = ("sink", "to")
"""The columns that may be shortened."""
NAME_WIDTH_MIN: Final = 12
DISPENSABLE: Final = ("state rows", "batch time", "bytes/s", "to", "batch")
"""The columns that are left out on a narrow terminal, in this order."""
GAP: Final = 3
"""Width of a column beside its content."""


class _Watcher(Protocol):
    def __call__(self, reports: "list[QueryReport]", /) -> None: ...


def run_watched(project: "Project", *, master: str, once: bool, as_json: bool) -> None:
    """Runs a project, shows its progress, and prints the final state of its queries."""
    from ottla.spark.pipelines.running.runner import run_project

    with _watcher(project, as_json=as_json) as watch:
        say(f"{project.name}: starting Spark on {master} ...")

        def ready() -> None:
            if as_json:
                _print_json({"event": "ready", "pipeline": project.name})
            end = "until all existing records are processed" if once else "until Ctrl-C"
            say(f"{project.name}: running {end}")

        reports = run_project(project, master=master, once=once, watch=watch, ready=ready)
    if as_json:
        _print_json({"event": "end", "pipeline": project.name, "queries": reports})
    elif sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        console.print(drawn(project.name, reports, console.width))
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
            yield lambda reports: live.update(drawn(project.name, reports, console.width), refresh=True)
    else:
        yield _Lines(_say_report, every_seconds=LINES_SECONDS)


def drawn(title: str, reports: "list[QueryReport]", width: int) -> "Table":
    """The reports as a table for a terminal of that width.

    Numbers are never shortened. Names are; if that is not enough, the least important columns are left out.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    colours = {"running": "green", "idle": "green", "failed": "red", "done": "cyan"}
    rows = [[str(cell) for cell in row_of(report)] for report in reports]
    widths = widths_for(rows, width)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, size in widths.items():
        justify: Literal["left", "right"] = "left" if heading in (*NAMES, "state") else "right"
        table.add_column(heading, justify=justify, no_wrap=True, overflow="ellipsis", width=size)
    for report, row in zip(reports, rows, strict=True):
        cells = {heading: Text(cell) for heading, cell in zip(COLUMNS, row, strict=True)}
        cells["state"].stylize(colours.get(report.state, "yellow"))
        table.add_row(*(cells[heading] for heading in widths))
    return table


def widths_for(rows: list[list[str]], width: int) -> dict[str, int]:
    """The columns that fit, with their widths; names take the width that numbers leave."""
    whole = {heading: max(len(heading), *(len(row[at]) for row in rows), 0) for at, heading in enumerate(COLUMNS)}
    widths = {heading: min(size, NAME_WIDTH_MIN) if heading in NAMES else size for heading, size in whole.items()}
    for least in DISPENSABLE:
        if _spare(widths, width) >= 0:
            break
        del widths[least]
    for name in NAMES:
        if name in widths:
            widths[name] = max(min(whole[name], widths[name] + _spare(widths, width)), 1)
    return widths


def _spare(widths: dict[str, int], width: int) -> int:
    """Width that these columns leave; negative if they do not fit."""
    return width - sum(size + GAP for size in widths.values())


class _Lines:
    """Prints each micro-batch, or those that come after an interval."""

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
