"""An event loop on virtual time: when nothing is left to do now, the clock jumps to the next timer.

One thread, no sockets, no executor: the order of everything is that in which it was scheduled, so that one seed gives
one run. A *process* can be killed or paused as a whole: each callback belongs to the process in whose context it was
scheduled, and is not called after that process has ended. What the process waited for never comes, as after kill -9;
nothing is unwound.
"""

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

RESOLUTION_SECONDS: Final = 1e-9
TURN_SECONDS: Final = 1e-6
"""The duration of a turn. Without it, a wait that rounding made too short would repeat forever."""


class DeadlockError(Exception):
    """Nothing is ready and no timer is set: all tasks would wait forever."""


class Process:
    """A process: a broker or a client with all its tasks, timers and connections."""

    __slots__ = ("_held", "_loop", "_tasks", "is_alive", "is_stopped", "name")

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name: Final = name
        self.is_alive = True
        self.is_stopped = False
        self._loop = loop
        self._held: list[tuple[asyncio.Handle | None, Callable[..., object], tuple[Any, ...], contextvars.Context]] = []
        # Kept after its end: garbage collection would unwind a task at a moment that the seed does not decide.
        self._tasks: list[asyncio.Task[Any]] = []

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs a coroutine in this process."""
        context = contextvars.Context()
        context.run(PROCESS.set, self)
        return self._loop.create_task(work, context=context)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keeps a task as long as the process is kept."""
        self._tasks.append(task)
        if len(self._tasks) % 1000 == 0:
            self._tasks = [each for each in self._tasks if not each.done()]

    def end(self) -> None:
        """Kills the process: nothing of it runs any more."""
        self.is_alive = False
        self._held.clear()

    def close_unstarted(self) -> None:
        """Closes the coroutines of tasks that never began, about which Python would warn. None of their code runs."""
        for task in self._tasks:
            work = task.get_coro()
            if inspect.iscoroutine(work) and inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
                work.close()

    def stop(self) -> None:
        """Pauses the process until `resume`; time passes, and what arrives waits."""
        self.is_stopped = True

    def resume(self) -> None:
        """Continues a paused process: everything that was due is done now, in order."""
        self.is_stopped = False
        held, self._held = self._held, []
        for handle, callback, args, context in held:
            if handle is None or not handle.cancelled():
                self._loop.call_soon(callback, *args, context=context)

    def step(
        self,
        cell: list[asyncio.Handle],
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
    ) -> None:
        """Runs the callback, if its process is still alive."""
        if not self.is_alive:
            return
        if self.is_stopped:
            self._held.append((cell[0] if cell else None, callback, args, context))
            return
        callback(*args)


PROCESS: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("PROCESS", default=None)


TURNS_WITHOUT_TIME_MAX: Final = 20_000
"""More turns than this in one instant mean that something spins."""


class SpinError(Exception):
    """The loop turns, and time does not pass."""


class _Jump:
    """Replaces the selector: waiting moves the clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> list[object]:
        self._turns = 0 if timeout is None or timeout > 0 else self._turns + 1
        if self._turns > TURNS_WITHOUT_TIME_MAX:
            raise SpinError(f"a task spins at {self._loop.time():.3f} s: {self._loop.spinning()}")
        if timeout is None:
            raise DeadlockError(f"no event is left after {self._loop.time():.3f} s")
        self._loop.now += max(timeout, 0.0) + TURN_SECONDS
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop on virtual time. `now` is the time in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.processes: list[Process] = []
        self.steps = 0
        self._is_over = False
        self._selector = _Jump(self)
        # Queues of the base class, which type checkers do not know.
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[asyncio.TimerHandle]
        self._clock_resolution = RESOLUTION_SECONDS
        self.set_task_factory(_make_task)

    def time(self) -> float:
        """The virtual time."""
        return self.now

    def process(self, name: str) -> Process:
        """A new process."""
        made = Process(self, name)
        self.processes.append(made)
        return made

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Schedules a callback for the next turn, if the process of its context is still alive then."""
        if self._is_over:
            return asyncio.Handle(callback, args, self, context)
        self.steps += 1
        context = context if context is not None else contextvars.copy_context()
        process = context.get(PROCESS)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        cell: list[asyncio.Handle] = []
        handle = super().call_soon(process.step, cell, callback, args, context, context=context)
        cell.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedules a callback for a time, if the process of its context is still alive then."""
        if self._is_over:
            return asyncio.TimerHandle(when, callback, args, self, context)
        context = context if context is not None else contextvars.copy_context()
        process = context.get(PROCESS)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        cell: list[asyncio.Handle] = []
        handle = super().call_at(when, process.step, cell, callback, args, context, context=context)
        cell.append(handle)
        return handle

    def spinning(self) -> str:
        """The tasks that are ready to run and where they wait, to find a task that spins."""
        found: list[str] = []
        for handle in list(self._ready):
            args = tuple(handle._args or ())
            task = getattr(args[1] if len(args) == 4 else None, "__self__", None)
            if isinstance(task, asyncio.Task):
                places = [f"{frame.f_code.co_qualname}:{frame.f_lineno}" for frame in task.get_stack(limit=3)]
                found.append(f"{args[3].get(PROCESS).name}: {task.get_coro()!r:.60} at {', '.join(places)}")
        return "; ".join(found)

    def forget(self) -> None:
        """Drops everything that is still scheduled, at the end of a run; nothing can be scheduled any more."""
        self._is_over = True
        self.set_exception_handler(None)
        self._ready.clear()
        self._scheduled.clear()
        for process in self.processes:
            process.close_unstarted()
        self.processes.clear()

    def _process_events(self, event_list: list[object]) -> None:
        """There are no events: everything arrives by timers."""

    def _write_to_self(self) -> None:
        """Does nothing: there is no other thread."""


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: contextvars.Context | None = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.keep(task)
    return task
