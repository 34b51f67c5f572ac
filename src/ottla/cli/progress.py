"""One line on stderr that says how far a long work has come; silent for short ones and where nobody looks."""

import sys
import time
from collections.abc import Callable
from typing import Final

FIRST_SECONDS: Final = 1.0
EVERY_SECONDS: Final = 0.25


class Progress:
    """Call `tick` as often as you like: it asks for the words only when it is time to show them."""

    def __init__(self, *, shown: bool | None = None) -> None:
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._start = time.monotonic()
        self._next = self._start + FIRST_SECONDS
        self._width = 0

    @property
    def seconds(self) -> float:
        """Since it began; never 0, so that rates can be taken."""
        return max(time.monotonic() - self._start, 1e-9)

    def tick(self, words: Callable[[], str]) -> None:
        """Shows how far it is, if it is time to."""
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_SECONDS
        line = words()
        sys.stderr.write(f"\r{line.ljust(self._width)}")
        sys.stderr.flush()
        self._width = len(line)

    def end(self) -> None:
        """Takes the line away, so that what follows stands alone."""
        if self._width:
            sys.stderr.write(f"\r{' ' * self._width}\r")
            sys.stderr.flush()
            self._width = 0
