"""A coroutine begun at once: most handlers that may wait need not, and a task for each would cost more than its work.

Only for coroutines that do not ask which task they run in before they first wait, as `asyncio.timeout` does.
"""

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any


class Waiting:
    """A coroutine that was begun, and waits for something. To be awaited once, by the task that goes on with it."""

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


def begin(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What the coroutine returns if it need not wait, and a `Waiting` if it must; raises what it raises."""
    try:
        return Waiting(coroutine, coroutine.send(None))
    except StopIteration as done:
        return done.value
