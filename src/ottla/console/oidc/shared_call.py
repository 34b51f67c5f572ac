"""One call at a time, whose outcome all who wait for it share."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Calls of an identity provider that may be slow: a second caller does not wait for a call of its own behind the
    first, and a caller that gives up does not end the call of the others. A call that was begun is finished, because
    a refresh token that was used cannot be used again."""

    def __init__(self, call: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._call = call
        self._task: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """The outcome of the call that runs, or of a new one."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._call())
            self._task.add_done_callback(_look_at)
        return await asyncio.shield(self._task)


def _look_at(task: asyncio.Task[Any]) -> None:
    """If all callers gave up, asyncio would complain about an error that was not looked at."""
    if not task.cancelled():
        task.exception()
