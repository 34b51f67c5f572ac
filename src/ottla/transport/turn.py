"""One turn of the event loop: what many connections caused in it is done once, at its end.

Requests that arrive in one turn are gathered: first all appends (one gathered write for each partition), then the
waiters that those woke, then one send for each connection. Everything here runs on the event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

_ALONE_AFTER: Final = 8
"""After this many turns in a row that waited and got no request of another connection, turns do not wait."""

_LOOK_EVERY: Final = 64
"""Every this many turns, one waits nevertheless, to see whether other connections are active again."""


class Ending(Protocol):
    """Something that has work to finish when the turn ends."""

    def end_turn(self) -> None:
        """Called once for each turn it joined; must not raise."""


class Turn:
    """Gathers until the loop has served what was ready, or until `finish` is called.

    `appends` run before `wakes`, those before connections end their turn. Each may add to a later stage, and a wake may
    add appends: the stages repeat until nothing is left.

    To wait for others costs another round of the event loop. While connections come one at a time, a turn therefore
    ends with the event that began it; now and then one waits, to see whether that is still so.
    """

    __slots__ = ("_alone", "_appends", "_endings", "_events", "_expected", "_is_running", "_loop", "_unseen", "_wakes")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._appends: list[Callable[[], None]] = []
        self._wakes: list[Callable[[], None]] = []
        self._endings: list[Ending] = []
        self._is_running = False
        self._expected = 0
        """Calls of `finish` that are certain to come; with none, adding work must schedule one."""
        self._events = 0
        """In the turn that waits for others."""
        self._alone = 0
        """Turns in a row that waited and got no request of another connection."""
        self._unseen = 0
        """Turns since the last one that waited."""

    def add_append(self, work: Callable[[], None]) -> None:
        """Work that writes to a log."""
        self._appends.append(work)
        if not self._expected:
            self._schedule()

    def add_wake(self, work: Callable[[], None]) -> None:
        """Work that waited for what the appends did."""
        self._wakes.append(work)
        if not self._expected:
            self._schedule()

    def join(self, ending: Ending) -> None:
        """Will call `ending.end_turn()`; an object that joins twice in a turn is called twice."""
        self._endings.append(ending)
        if not self._expected:
            self._schedule()

    def begin_event(self) -> None:
        """A connection is about to serve what arrived, and will call `end_event`."""
        self._expected += 1

    def end_event(self) -> None:
        """It has served it: the turn may end here, unless it waits for others."""
        self._expected -= 1
        self._events += 1
        if self._expected:
            return
        if self._alone < _ALONE_AFTER or self._unseen >= _LOOK_EVERY:
            self._events = 1
            self._schedule()
        else:
            self._unseen += 1
            self.finish()

    def _schedule(self) -> None:
        self._expected += 1
        self._loop.call_soon(self._on_due)

    def _on_due(self) -> None:
        self._expected -= 1
        self._alone = self._alone + 1 if self._events <= 1 else 0
        self._unseen = 0
        self._events = 0
        self.finish()

    def finish(self) -> None:
        """Does now all that was gathered. Harmless from within: what is added meanwhile is done by the outer call."""
        if self._is_running:
            return
        self._is_running = True
        self._expected += 1
        try:
            while self._appends or self._wakes or self._endings:
                if self._appends:
                    works, self._appends = self._appends, []
                elif self._wakes:
                    works, self._wakes = self._wakes, []
                else:
                    endings, self._endings = self._endings, []
                    for ending in endings:
                        try:
                            ending.end_turn()
                        except Exception as error:
                            self._report(error)
                    continue
                for work in works:
                    self._do(work)
        finally:
            self._expected -= 1
            self._is_running = False

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        """One partition's or connection's failure must not keep the others from being finished."""
        self._loop.call_exception_handler({"message": f"unexpected failure: {error}", "exception": error})
