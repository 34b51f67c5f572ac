"""Progress of a long command, on stderr if that is a terminal: a line that changes, or a bar if the end is known."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final

from ottla.cli.output import clear_line, printable, show_line

FIRST_SECONDS: Final = 1.0
EVERY_SECONDS: Final = 0.25


class Progress:
    """A line that appears after a second. `tick` may be called often: it asks for the text only to show it."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._start = time.monotonic()
        self._next = self._start + FIRST_SECONDS

    @property
    def seconds(self) -> float:
        """Since it was created; never 0, so that rates can be computed."""
        return max(time.monotonic() - self._start, 1e-9)

    def tick(self, words: Callable[[], str]) -> None:
        """Shows the text, if it is time to."""
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_SECONDS
        show_line(printable(words()))

    def end(self) -> None:
        """Removes the line."""
        if self._shown:
            clear_line()


@asynccontextmanager
async def waiting(what: str) -> AsyncIterator[None]:
    """Shows what a command waits for and since when, if it takes longer than a second."""
    progress = Progress()

    async def tick() -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            progress.tick(lambda: f"waiting for {what} ({progress.seconds:.0f} s)")

    ticking = asyncio.create_task(tick()) if sys.stderr.isatty() else None
    try:
        yield
    finally:
        if ticking is not None:
            ticking.cancel()
        progress.end()


class ProgressBar:
    """A bar with percentage, bytes, rate and time left; nothing if stderr is not a terminal. Leaving it removes it."""

    def __init__(self, label: str, total_bytes: int) -> None:
        self._label = label
        self._total = total_bytes
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "ProgressBar":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.markup import escape
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TaskProgressColumn,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            columns = (BarColumn(), TaskProgressColumn(), DownloadColumn(binary_units=True))
            self._bar = Progress(
                TextColumn("{task.description}"),
                *columns,
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(escape(printable(self._label)), total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, size_bytes: int) -> None:
        """Adds bytes that are done."""
        if self._bar is not None:
            self._bar.advance(self._task, size_bytes)
