"""An event loop on virtual time: when nothing is left to do now, the clock jumps to the next timer.

One thread, no sockets, no executor: the order of everything is that in which it was scheduled, so that one seed gives
one run. A *process* is what can be killed or stopped as a whole: each callback belongs to the process in whose context
it was scheduled, and once that has ended it is not called any more, in the middle of whatever it was doing. What the
process waited for simply never comes, as after kill -9; nothing is unwound.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

RESOLUTION_SECONDS: Final = 1e-9
TURN_SECONDS: Final = 1e-6
"""What a turn takes. Without it, who waits for what is left of a time that rounding made too short waits for ever."""


class DeadlockError(Exception):
    """Nothing is ready and no timer is set: whoever waits would wait for ever."""


class Process:
    """What lives and dies together: a broker or a client with all its tasks, timers and connections."""

    __slots__ = ("_held", "_loop", "_tasks", "is_alive", "is_stopped", "name")

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.name: Final = name
        self.is_alive = True
        self.is_stopped = False
        self._loop = loop
        self._held: list[tuple[asyncio.Handle | None, Callable[..., object], tuple[Any, ...], contextvars.Context]] = []
        # Kept beyond its end: a task that is collected would be unwound, at a moment that no seed decides.
        self._tasks: list[asyncio.Task[Any]] = []

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Runs something in this process."""
        context = contextvars.Context()
        context.run(PROCESS.set, self)
        return self._loop.create_task(work, context=context)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Remembers a task of this process as long as the process is remembered."""
        self._tasks.append(task)
        if len(self._tasks) % 1000 == 0:
            self._tasks = [each for each in self._tasks if not each.done()]

    def end(self) -> None:
        """Kills it: nothing of it runs any more."""
        self.is_alive = False
        self._held.clear()

    def stop(self) -> None:
        """Stops it where it is, until `resume`; time goes on meanwhile, and what arrives waits."""
        self.is_stopped = True

    def resume(self) -> None:
        """Everything that was due meanwhile is done now, in order."""
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
        """Calls back, if there is still somebody to be called."""
        if not self.is_alive:
            return
        if self.is_stopped:
            self._held.append((cell[0] if cell else None, callback, args, context))
            return
        callback(*args)


PROCESS: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("PROCESS", default=None)


TURNS_WITHOUT_TIME_MAX: Final = 20_000
"""So many turns in one instant are no work any more: something spins."""


class SpinError(Exception):
    """The loop turns, and time does not pass."""


class _Jump:
    """In the place of a selector: to wait is to move the clock."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> list[object]:
        self._turns = 0 if timeout is None or timeout > 0 else self._turns + 1
        if self._turns > TURNS_WITHOUT_TIME_MAX:
            raise SpinError(f"something spins at {self._loop.time():.3f} s: {self._loop.spinning()}")
        if timeout is None:
            raise DeadlockError(f"nothing is left to happen after {self._loop.time():.3f} s")
        self._loop.now += max(timeout, 0.0) + TURN_SECONDS
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module's docstring. `now` is the virtual time in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.processes: list[Process] = []
        self.steps = 0
        self._is_over = False
        self._selector = _Jump(self)
        # The base class's own queues, which type checkers do not know of.
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
        """In the next turn, if the process of this context still lives then."""
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
        """At a time, if the process of this context still lives then."""
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
        """Whose tasks are ready to run, and where they wait, for the one who looks for the loop."""
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
        self.processes.clear()

    def _process_events(self, event_list: list[object]) -> None:
        """There are none: what arrives comes by timers."""

    def _write_to_self(self) -> None:
        """There is no other thread that the loop would have to be woken for."""


def _make_task(
    loop: asyncio.AbstractEventLoop, work: Any, context: contextvars.Context | None = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.keep(task)
    return task
