"""A thread for checks of schemas that take long: they hold neither the image nor the leader's decisions.

One thread, because checks compute only and would take each other's time. Each has a limit of time, clients take turns,
and few may wait.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.registry.schemas.time_limit import TimeLimitExceededError, check_time, limited
from ottla.registry.service.http_messages import http_error
from ottla.registry.service.turns import TooManyWaitingError, Turns
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
        self._now = now
        self._turns = Turns(at_once_max=1, waiting_max=waiting_max)
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, "registry-check")

    @property
    def waiting(self) -> int:
        """How many checks wait."""
        return self._turns.waiting

    def close(self) -> None:
        """Ends the thread, and the check that is under way."""
        self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, check: SchemaCheck, client: str = "") -> None:
        """Does all of a check. Raises `RegistryError`: 503 if too many wait or it takes too long."""
        try:
            async with asyncio.timeout(self._wait_seconds_max):
                await self._turns.take(client)
        except TooManyWaitingError as error:
            raise http_error(
                503, f"the registry is busy with checks of large schemas: {error}; try again later"
            ) from None
        except TimeoutError:
            raise http_error(
                503,
                f"the registry was busy with checks of large schemas for {self._wait_seconds_max:g} seconds; try again"
                " later",
            ) from None
        running = asyncio.get_running_loop().run_in_executor(self._thread, self._work, check)
        # A client that goes away does not let another check begin beside this one.
        running.add_done_callback(lambda done: self._on_done(done, client))
        await asyncio.shield(running)

    def _on_done(self, done: "asyncio.Future[None]", client: str) -> None:
        self._turns.end(client)
        if not done.cancelled():
            # If the client has gone away, the error is not read elsewhere, and asyncio would log it.
            done.exception()

    def _work(self, check: SchemaCheck) -> None:
        deadline = self._now() + self._seconds_max
        try:
            with limited(lambda: self._is_closed or self._now() > deadline):
                for _ in check.pieces():
                    check_time()
        except TimeLimitExceededError:
            raise http_error(
                503,
                f"checking the schema, and comparing it with {len(check.versions)} versions, takes more than"
                f" {self._seconds_max:g} seconds. What was compared is remembered: try again, or use a compatibility"
                " level that is not transitive",
            ) from None
