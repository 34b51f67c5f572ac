"""The screen of the demo: orders written, progress of the queries, events so far."""

import sys
import time
from types import TracebackType
from typing import Any, Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.order_proof import Line
from examples.order_stream import Expected

PLAIN_SECONDS: Final = 5.0


class Screen:
    """A display that changes in place on a terminal, lines elsewhere, nothing if it is hidden. A context manager."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._console = Console(highlight=False)
        self._live = Live(console=self._console, refresh_per_second=5) if shown and sys.stdout.isatty() else None
        self._begin = time.monotonic()
        self._due = self._begin
        self._story: list[str] = []

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, words: str) -> None:
        """Shows an event."""
        self._story.append(f"{time.monotonic() - self._begin:6.1f} s  {words}")
        if self._shown and self._live is None:
            print(self._story[-1], flush=True)

    def show(self, written: Expected, count: int, queries: dict[str, dict[str, Any]]) -> None:
        """Shows the progress."""
        if self._live is not None:
            self._live.update(self._picture(written, count, queries))
        elif self._shown and time.monotonic() >= self._due:
            self._due = time.monotonic() + PLAIN_SECONDS
            read = ", ".join(f"{name} {query['rows']:,}" for name, query in sorted(queries.items()))
            words = f"{written.orders:,} of {count:,} orders written; read by {read or 'none yet'}"
            print(f"{time.monotonic() - self._begin:6.1f} s  {words}", flush=True)

    def show_proof(self, lines: list[Line], count: int, seconds: float) -> None:
        """Prints the final table."""
        table = Table(
            title=f"{count:,} orders, one SIGKILL, {seconds:.0f} s", title_justify="left", box=box.SIMPLE_HEAD
        )
        for heading in ("claim", "must be", "is", ""):
            table.add_column(heading, justify="left" if heading == "claim" else "right")
        for line in lines:
            mark = Text("yes", "green") if line.holds else Text("NO", "bold red")
            table.add_row(line.claim, f"{line.expected:,}", f"{line.found:,}", mark)
        self._console.print(table)
        good = all(line.holds for line in lines)
        words = "every order is counted exactly once" if good else "orders are missing or counted twice"
        self._console.print(Text(words, "bold green" if good else "bold red"))

    def _picture(self, written: Expected, count: int, queries: dict[str, dict[str, Any]]) -> RenderableType:
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            "orders", ProgressBar(total=count, completed=written.orders, width=40), f"{written.orders:,} of {count:,}"
        )
        if not queries:
            return Group(bar, Text("\nwaiting for the first micro-batch …\n"), Text("\n".join(self._story[-6:]), "dim"))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("query", "to", "batch", "rows", "rows/s", "batch time", "behind", "state rows"):
            table.add_column(heading, justify="left" if heading in ("query", "to") else "right", no_wrap=True)
        for name, query in sorted(queries.items()):
            numbers = [f"{query[field] or 0:,.0f}" for field in ("batch", "rows", "rows_per_second")]
            took = f"{(query['batch_ms'] or 0) / 1000:.2f} s"
            behind = "" if query["behind"] is None else f"{query['behind']:,}"
            kept = "" if query["state_rows"] is None else f"{query['state_rows']:,}"
            table.add_row(name, query["to"], *numbers, took, behind, kept)
        return Group(bar, table, Text("\n".join(self._story[-6:]), "dim"))
