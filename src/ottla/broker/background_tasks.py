"""The tasks of a broker that must not end while it runs: if one fails, the broker has failed."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

_LOGGER: Final = logging.getLogger(__name__)


class BackgroundTasks:
    """Runs tasks until `close`. `wait_failure` returns if one of them raised."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a task."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_done)
        self._tasks.append(task)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOGGER.critical("background task failed, the broker must stop: %s", error, exc_info=error)
            if not self._failure.done():
                self._failure.set_result(error)

    @property
    def failure(self) -> BaseException | None:
        """The error of the first task that failed; None if none did."""
        return self._failure.result() if self._failure.done() else None

    async def wait_failure(self) -> BaseException:
        """Returns the error of the first task that failed."""
        return await asyncio.shield(self._failure)

    async def wait_unless_failed(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits until the work is done. If a task fails before, cancels the work and raises the task's error."""
        working = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait((working, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise self._failure.result()
            await working
        finally:
            working.cancel()

    async def close(self) -> None:
        """Cancels all tasks and waits for their end."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
