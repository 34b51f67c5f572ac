"""Threads in which the records of one user are looked through, so that the searches of others go on.

A thread cannot be ended from outside: a scan asks in short steps whether it was abandoned.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

THREADS_MAX: Final = 4
"""Of one session; without a login, of all browsers together."""

IsStopped = Callable[[], bool]
"""Whether a scan was abandoned, and should end."""


class ScanStoppedError(Exception):
    """The scan was abandoned, or its time is over."""


class Scans:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS_MAX, "console-scan")
        self._is_closed = False

    async def run(self, scan: Callable[[IsStopped], T]) -> T:
        """Runs the scan in a thread and returns its result. Cancelling this stops the scan."""
        is_abandoned = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, scan, lambda: is_abandoned.is_set() or self._is_closed
            )
        finally:
            is_abandoned.set()

    def close(self) -> None:
        """Tells all scans to stop; does not wait for them."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
