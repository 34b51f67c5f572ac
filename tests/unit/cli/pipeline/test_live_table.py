"""The table of a pipeline that runs: numbers are whole at every width, and what is left out is what matters least."""

import re
from io import StringIO

import pytest
from rich.console import Console

from ottla.cli.pipeline.live_table import COLUMNS, drawn, row_of
from ottla.spark.pipelines.running.query_report import QueryReport, when_begun, when_idle, with_progress

REPORTS = [
    QueryReport(
        name="totals_by_customer_and_minute",
        to="order-totals-by-customer-and-minute",
        state="running",
        batch=123_456,
        rows=1_234_567_890,
        rows_per_second=1_234_567,
        bytes_per_second=123.4 * 1024 * 1024,
        batch_ms=12_340,
        behind=9_876_543,
        state_rows=7_654_321,
    ),
    QueryReport(name="dead_letters-clean", to="/data/archive/of/what/was/wrong", state="starting"),
]


def shown(width: int) -> str:
    console = Console(file=StringIO(), width=width, force_terminal=False)
    console.print(drawn("shop", REPORTS, width))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [200, 160, 132, 120, 110, 100, 90, 80, 60])
def test_numbers_are_never_cut(width: int) -> None:
    text = shown(width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    cells = dict(zip(COLUMNS, row_of(REPORTS[0]), strict=True))
    for name in ("state", "rows", "rows/s", "behind"):
        assert str(cells[name]) in text, (width, name)
    for name in set(COLUMNS) - {"sink", "to"}:
        # Either the whole column is there, or none of it.
        assert (str(cells[name]) in text) == bool(re.search(rf"(?<!\S){re.escape(name)}(?!\S)", text)), (width, name)


def test_a_wide_terminal_has_everything() -> None:
    text = shown(200)
    for report in REPORTS:
        for cell in row_of(report):
            assert str(cell) in text


def progress(**fields: object) -> dict[str, object]:
    return {
        "id": "q",
        "runId": "r",
        "timestamp": "now",
        "batchId": 3,
        "numInputRows": 10,
        "processedRowsPerSecond": 5.0,
        "sources": [],
        "durationMs": {},
        **fields,
    }


def test_a_query_with_nothing_to_read_is_not_starting_for_ever() -> None:
    begun = when_begun(QueryReport(name="x", to="y"))
    assert "running" == begun.state
    idle = when_idle(begun)
    assert "idle" == idle.state
    busy = with_progress(idle, progress())
    assert ("running", 10, 5.0) == (busy.state, busy.rows, busy.rows_per_second)
    again = when_idle(busy)
    # Rates are those of the moment, sums stay.
    assert ("idle", 10, 0.0) == (again.state, again.rows, again.rows_per_second)
    done = QueryReport(name="x", to="y", state="done")
    assert "done" == when_idle(done).state == when_begun(done).state == with_progress(done, progress()).state
