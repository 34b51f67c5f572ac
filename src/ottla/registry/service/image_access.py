"""Access to the image: threads that parse schemas read it, and it does not change meanwhile.

The event loop reads and changes the image between two awaits, so look-ups need nothing of this. Work that takes long
runs in a thread and holds the image: changes wait until it is done, and new work waits behind changes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from ottla.registry.schemas.time_limit import TimeLimitExceededError, limited
from ottla.registry.service.http_messages import http_error

T = TypeVar("T")

_THREADS_MAX: Final = 2
_WAITING_MAX: Final = 500
_WAIT_SECONDS_MAX: Final = 30.0
WORK_SECONDS_MAX: Final = 10.0
"""Of work with an image, its own or another one: large schemas are parsed before (`checking_thread.py`)."""


class ImageAccess:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._readers = 0
        self._changes = 0
        """How many changes wait or are under way."""
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_THREADS_MAX, "registry-parse")

    def close(self) -> None:
        """Ends the threads when their work is done."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def read(self, work: Callable[[], T]) -> T:
        """Runs the work in a thread; the image does not change meanwhile.

        Raises `RegistryError` (503) if too many wait already, or after a long wait.
        """
        if self._waiting >= _WAITING_MAX:
            raise http_error(
                503, f"the registry is busy: {self._waiting} requests are waiting to be parsed; try again later"
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(_WAIT_SECONDS_MAX), self._changed:
                # Changes wait for all readers, so a reader counts only once a thread is free for it.
                await self._changed.wait_for(lambda: self._changes == 0 and self._readers < _THREADS_MAX)
                self._readers += 1
        except TimeoutError:
            raise http_error(
                503, f"the registry was busy parsing schemas for {_WAIT_SECONDS_MAX:g} seconds; try again later"
            ) from None
        finally:
            self._waiting -= 1
        # Shielded: a client that goes away does not let the image change under the thread.
        running = asyncio.ensure_future(self._run(work))
        return await asyncio.shield(running)

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, in_time, work)
        finally:
            async with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """No thread reads the image within this block."""
        self._changes += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._readers == 0)
            yield
        finally:
            async with self._changed:
                self._changes -= 1
                self._changed.notify_all()


def in_time(work: Callable[[], T]) -> T:
    """What the work returns. Raises `RegistryError` (503) if parsing and comparing schemas takes too long in it."""
    deadline = time.monotonic() + WORK_SECONDS_MAX
    try:
        with limited(lambda: time.monotonic() > deadline):
            return work()
    except TimeLimitExceededError:
        raise http_error(503, f"parsing the schema takes more than {WORK_SECONDS_MAX:g} seconds") from None
