"""A thread for checks of schemas that take long: they hold neither the image nor the leader's decisions.

One thread, because checks compute only and would take each other's time. Each has a limit of time, and few may wait.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.registry.service.http_messages import http_error
from ottla.registry.state.schema_checks import SchemaCheck

_SECONDS_MAX: Final = 10.0
_WAIT_SECONDS_MAX: Final = 15.0
"""With `_SECONDS_MAX` less than the 30 seconds that a write may take."""
_WAITING_MAX: Final = 50


class CheckingThread:
    """Belongs to one event loop."""

    def __init__(
        self,
        *,
        seconds_max: float = _SECONDS_MAX,
        wait_seconds_max: float = _WAIT_SECONDS_MAX,
        waiting_max: int = _WAITING_MAX,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds_max = seconds_max
        self._wait_seconds_max = wait_seconds_max
        self._waiting_max = waiting_max
        self._now = now
        self._is_free = asyncio.Lock()
        self._waiting = 0
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, "registry-check")

    def close(self) -> None:
        """Ends the thread after the piece of work that is under way."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, check: SchemaCheck) -> None:
        """Does all of a check. Raises `RegistryError`: 503 if too many wait or it takes too long."""
        if self._waiting >= self._waiting_max:
            raise http_error(
                503, f"the registry is busy: {self._waiting} checks of large schemas are waiting; try again later"
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await self._is_free.acquire()
        except TimeoutError:
            raise http_error(
                503,
                f"the registry was busy with checks of large schemas for {self._wait_seconds_max:g} seconds; try again"
                " later",
            ) from None
        finally:
            self._waiting -= 1
        running = asyncio.get_running_loop().run_in_executor(self._thread, self._work, check)
        # A client that goes away does not let another check begin beside this one.
        running.add_done_callback(self._on_done)
        await asyncio.shield(running)

    def _on_done(self, done: "asyncio.Future[None]") -> None:
        self._is_free.release()
        if not done.cancelled():
            # If the client has gone away, the error is not read elsewhere, and asyncio would log it.
            done.exception()

    def _work(self, check: SchemaCheck) -> None:
        deadline = self._now() + self._seconds_max
        for _ in check.pieces():
            if self._is_closed or self._now() > deadline:
                raise http_error(
                    503,
                    f"comparing the schema with {len(check.versions)} versions takes more than {self._seconds_max:g}"
                    " seconds. What was compared is remembered: try again, or use a compatibility level that is not"
                    " transitive",
                )
