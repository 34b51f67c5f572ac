"""Runs CPU-bound work in a child process, so that it does not hold the event loop's GIL.

Covers starting, using, retiring and losing the child; `helper_main.py` runs in the child. It is an ordinary program
that talks over pipes, not a `multiprocessing` worker, so that a broker can be embedded in any program, with or without
a guarded main module.
"""

import asyncio
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from ottla.env.helper_main import LENGTH, frame
from ottla.model.errors import MisuseError, RetriableError

T = TypeVar("T")

IDLE_SECONDS: Final = 30.0
"""How long a child waits for another job before it is retired."""

FAREWELL_SECONDS: Final = 5.0
"""How long a child may take to end after its input was closed; then it is killed."""


class HelperDiedError(RetriableError):
    """The helper process died during a job: killed, out of memory, or crashed. The next job starts a new one."""


class HelperProcess:
    """The `Helper` port with one child process: started for the first job, one job at a time, retired when idle.

    Cancelling a job kills its child, since nothing else can stop a computation; so does `close`.
    """

    def __init__(self, *, idle_seconds: float = IDLE_SECONDS, python: str | None = None) -> None:
        self._idle_seconds = idle_seconds
        self._python = python or sys.executable
        self._turn = asyncio.Lock()
        self._child: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._farewells: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id, if there is a child."""
        return self._child.pid if self._child is not None else None

    async def run(self, function: Callable[..., T], /, *args: Any) -> T:
        """Calls a module-level function with picklable arguments; its exception is raised here."""
        body = pickle.dumps((function, args), protocol=pickle.HIGHEST_PROTOCOL)
        async with self._turn:
            if self._closed:
                raise MisuseError(f"the helper is closed; {_name(function)} was not run")
            child = await self._ready_child()
            try:
                done, value = await self._exchange(child, body, function)
            except BaseException:
                # Cancelled, or the child is gone: a result may still arrive, so that this child cannot be used again.
                self._dismiss(child, at_once=True)
                raise
            self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._dismiss, child)
        if not done:
            raise value
        return cast(T, value)

    async def _ready_child(self) -> Process:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        child = self._child
        if child is not None and (child.returncode is not None or _output(child).at_eof()):
            self._dismiss(child)
            child = None
        if child is None:
            child = self._child = await self._start()
        return child

    async def _start(self) -> Process:
        if not self._python:
            raise MisuseError(
                "the Python interpreter is unknown (sys.executable is empty);  pass one with HelperProcess(python=...)"
            )
        try:
            return await asyncio.create_subprocess_exec(
                self._python,
                "-P",
                "-m",
                "ottla.env.helper_main",
                stdin=PIPE,
                stdout=PIPE,
                env={**os.environ, "PYTHONPATH": _module_path()},
            )
        except OSError as error:
            raise HelperDiedError(f"cannot start the helper process with {self._python}: {error}") from error

    async def _exchange(self, child: Process, body: bytes, function: Callable[..., Any]) -> tuple[bool, Any]:
        stdin, stdout = child.stdin, _output(child)
        if stdin is None:
            raise MisuseError("the helper process was started without a pipe")
        try:
            stdin.writelines(frame(body))
            await stdin.drain()
            size = LENGTH.unpack(await stdout.readexactly(LENGTH.size))[0]
            answer = await stdout.readexactly(size)
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            code = await child.wait()
            raise HelperDiedError(
                f"the helper process {child.pid} {_ending(code)} while it ran {_name(function)}; "
                "the next job starts a new one"
            ) from None
        done, value = pickle.loads(answer)
        return done, value

    def _dismiss(self, child: Process, at_once: bool = False) -> None:
        """Retires a child; a job that comes in the meantime starts another."""
        if self._child is child:
            self._child = None
        farewell = asyncio.get_running_loop().create_task(_end(child, at_once))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)

    async def close(self) -> None:
        """Kills the child and any running job (its caller gets `HelperDiedError`), and refuses further jobs."""
        self._closed = True
        if self._child is not None and self._turn.locked():
            _kill(self._child)
        async with self._turn:
            if self._idle is not None:
                self._idle.cancel()
                self._idle = None
            if self._child is not None:
                self._dismiss(self._child)
        # Not cancelled with this task: a retired child must be waited for.
        await asyncio.gather(*self._farewells)


async def _end(child: Process, at_once: bool) -> None:
    if at_once:
        _kill(child)
    if child.stdin is not None:
        child.stdin.close()
    try:
        await asyncio.wait_for(child.wait(), FAREWELL_SECONDS)
    except TimeoutError:
        _kill(child)
        await child.wait()


def _kill(child: Process) -> None:
    if child.returncode is None:
        try:
            child.kill()
        except ProcessLookupError:
            return


def _output(child: Process) -> asyncio.StreamReader:
    if child.stdout is None:
        raise MisuseError("the helper process was started without a pipe")
    return child.stdout


def _module_path() -> str:
    """The child must find the same modules as this process."""
    return os.pathsep.join(os.path.abspath(folder) for folder in sys.path)


def _name(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', repr(function))}"


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
