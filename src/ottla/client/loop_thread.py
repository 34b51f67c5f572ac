"""An event loop in a thread of its own, on which the blocking clients run their asyncio twins.

Each client has its own: its sender or its heartbeats must go on while the program computes.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError as WaitCancelledError
from contextlib import suppress
from typing import Any, Final, TypeVar

from ottla.model.errors import MisuseError

T = TypeVar("T")

_CLOSE_SECONDS: Final = 10.0


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop if uvloop is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """Starts its thread at once. Every method may be called from any thread except the loop's own.

    `closed_error` makes the error for calls after `close`.
    """

    def __init__(self, name: str, closed_error: Callable[[], MisuseError] | None = None) -> None:
        self._name = name
        self._closed_error = closed_error or (lambda: MisuseError(f"{name} is closed"))
        self._process = os.getpid()
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_closed = False
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of the thread."""
        return self._loop

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Runs a coroutine in the loop, waits for it, and returns its result or raises its error.

        The coroutine is cancelled after `timeout` seconds, with `TimeoutError`, and if the waiting thread is
        interrupted. Raises `MisuseError` after `close`, in the loop's own thread, and in a forked process.
        """
        self._check_usable(work)
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result(timeout)
        except WaitCancelledError:
            # Another thread closed the client during the call.
            raise self._closed_error() from None
        except BaseException:
            waiting.cancel()
            raise

    def post(self, callback: Callable[[], object]) -> None:
        """Schedules a callback in the loop; does nothing after `close`."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Cancels all tasks of the loop and waits until its thread has ended. Calling it again does nothing."""
        if self._is_closed or self._process != os.getpid():
            return
        self._is_closed = True
        self.post(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)

    def _check_usable(self, work: Coroutine[Any, Any, T]) -> None:
        problem: MisuseError | None = None
        if self._process != os.getpid():
            problem = MisuseError(
                f"{self._name} was created by process {self._process}; after a fork, create one in each process"
            )
        elif self._is_closed:
            problem = self._closed_error()
        elif threading.current_thread() is self._thread:
            problem = MisuseError(
                f"{self._name} cannot be called from one of its callbacks; use the asyncio class there"
            )
        if problem is not None:
            work.close()
            raise problem

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            asyncio.set_event_loop(None)
            self._loop.close()
