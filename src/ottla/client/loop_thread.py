"""An event loop in a thread of its own: what the blocking clients stand on.

The loop runs from the first use until `close`, whatever the program's own threads do. Each client has one: its sender
or its heartbeats must go on while the program computes.
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
    """The fastest there is."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """See the module's docstring. Every method may be called from any thread but the loop's own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._is_closed = False
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the client lives."""
        return self._loop

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Runs a coroutine there and waits for what it answers or raises.

        After `timeout` seconds it is cancelled, and `TimeoutError` raised. So it is if the waiting is interrupted.
        """
        self._check_usable(work)
        waiting = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return waiting.result(timeout)
        except WaitCancelledError:
            raise MisuseError(f"{self._name} was closed by another thread meanwhile") from None
        except BaseException:
            waiting.cancel()
            raise

    def post(self, callback: Callable[[], object]) -> None:
        """Has something called there soon; nothing happens if the loop is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def close(self) -> None:
        """Cancels what still runs there, ends the thread, and waits for that. Closing twice is harmless."""
        if self._is_closed or self._process != os.getpid():
            return
        self._is_closed = True
        self.post(self._loop.stop)
        self._thread.join(_CLOSE_SECONDS)

    def _check_usable(self, work: Coroutine[Any, Any, T]) -> None:
        problem = None
        if self._process != os.getpid():
            problem = f"{self._name} was made by process {self._process}; after a fork, make one in each process"
        elif self._is_closed:
            problem = f"{self._name} is closed"
        elif threading.current_thread() is self._thread:
            problem = f"{self._name} would wait for itself: use the asyncio class within its callbacks"
        if problem is not None:
            work.close()
            raise MisuseError(problem)

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
