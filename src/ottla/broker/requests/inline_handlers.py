"""Handlers that start without a task: most of them do not have to wait, and a task would cost more than their work.

Only for coroutines that do not ask for the current task before they first wait, as `asyncio.timeout` does.
"""

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any


class Suspended:
    """A coroutine that was started and has to wait. To be awaited once, by the task that continues it."""

    __slots__ = ("_coroutine", "_waited")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waited: Any) -> None:
        self._coroutine = coroutine
        self._waited = waited

    def __await__(self) -> Generator[Any, Any, Any]:
        waited = self._waited
        step: Callable[[], Any]
        while True:
            try:
                step = partial(self._coroutine.send, (yield waited))
            except BaseException as error:
                step = partial(self._coroutine.throw, error)
            try:
                waited = step()
            except StopIteration as done:
                return done.value


def start_eagerly(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine up to its first wait: returns its result, or a `Suspended` if it has to wait."""
    try:
        return Suspended(coroutine, coroutine.send(None))
    except StopIteration as done:
        return done.value
