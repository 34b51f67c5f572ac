"""Runs several brokers on one machine, each in a process of its own, so that they use several cores.

The supervisor is a small process that serves no clients: it forks the brokers, restarts one that died, and stops them
one after the other. The caller says what a broker's process does. A forked process has everything loaded already, so a
broker that died is back in the time that opening its logs takes, and what was loaded before is in memory once.

The first broker serves before the others are started: it may have a data dir that the cluster begins with. If it says
that it waits for the others (`WAITING`), to recover lost metadata with them, they are started earlier. A broker that
cannot be started at all stops everything, like a single broker; one that fails later is restarted for ever, with
growing pauses. A broker whose supervisor is killed stops by itself.
"""

import ctypes
import gc
import logging
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_LOGGER: Final = logging.getLogger(__name__)

STOP_SECONDS: Final = 60.0
"""How long a broker may take to stop before it is killed."""
PAUSE_SECONDS_MIN: Final = 0.5
PAUSE_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A broker that ran for this long counts as healthy: its next pause is the shortest again."""
_PR_SET_PDEATHSIG: Final = 1
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

WAITING: Final = "waiting"
"""Reported by a broker instead of its address while it needs the others before it can serve."""

SEES_ALL: Final = "sees-all"
"""Reported by a broker after its address, when it has seen all brokers registered."""

RunBroker = Callable[[int, str | None, Callable[[str], None]], int]
"""What a broker's process does. Called with the broker's id, its former address if it had one, and a function to report
its address as soon as it serves, `WAITING` before, and `SEES_ALL` after. Returns the exit status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Something that the supervisor calls again and again."""

    seconds: float
    call: Callable[[], None]


@dataclass(slots=True)
class Restarts:
    """When a broker that died is restarted. Pure."""

    pause_seconds: float = 0.0

    def pause_after(self, lived_seconds: float) -> float:
        """The pause before the next start, after a run of this length: none at first, then longer and longer."""
        if lived_seconds >= STEADY_SECONDS:
            self.pause_seconds = 0.0
        pause = self.pause_seconds
        self.pause_seconds = min(max(pause * 2, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
        return pause


@dataclass(slots=True, kw_only=True)
class _Process:
    """One broker. `pid` is 0 while it has no process."""

    id: int
    pid: int = 0
    pipe: int = -1
    """Reads what it reports; end of file means that the process is dead."""
    started: float = 0.0
    address: str | None = None
    """Where it last served; None if it never did."""
    sees_all: bool = False
    """Whether it has seen all brokers registered since it was started."""
    starts_at: float | None = None
    killed_at: float | None = None
    """When to kill it if it has not stopped by then."""
    restarts: Restarts = field(default_factory=Restarts)


class Supervisor:
    """`on_ready` is called once, with all addresses, when all brokers serve and each has seen the others registered;
    `on_stopping` when the first signal to stop arrives."""

    def __init__(
        self,
        brokers: Sequence[int],
        run: RunBroker,
        on_ready: Callable[[list[str]], None],
        on_stopping: Callable[[], None] = lambda: None,
        tick: Tick | None = None,
    ) -> None:
        self._processes: Final = [_Process(id=each) for each in brokers]
        self._run = run
        self._on_ready = on_ready
        self._on_stopping = on_stopping
        self._tick = tick
        self._ticks_at = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._is_announced = False
        self._stops_asked = 0
        self._status = 0

    def run(self) -> int:
        """Runs the brokers until SIGTERM or SIGINT; returns the exit status. There must be no other thread."""
        gc.collect()
        gc.freeze()
        with self._listening():
            self._start(self._processes[0])
            while self._has_work():
                for key, _ in self._selector.select(self._seconds_to_wait()):
                    key.data()
                self._do_what_is_due()
        return self._status

    def _has_work(self) -> bool:
        return any(each.pid or each.starts_at is not None for each in self._processes)

    def _seconds_to_wait(self) -> float | None:
        moments = [
            moment for each in self._processes for moment in (each.starts_at, each.killed_at) if moment is not None
        ]
        if self._tick is not None:
            moments.append(self._ticks_at)
        return max(min(moments) - time.monotonic(), 0.0) if moments else None

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if self._tick is not None and self._ticks_at <= now:
            self._ticks_at = now + self._tick.seconds
            self._tick.call()
        for each in self._processes:
            if each.starts_at is not None and each.starts_at <= now:
                self._start(each)
            if each.killed_at is not None and each.killed_at <= now:
                _LOGGER.error("broker %d did not stop within %.0f s; killing it", each.id, STOP_SECONDS)
                each.killed_at = None
                os.kill(each.pid, signal.SIGKILL)

    # A broker's life

    def _start(self, broker: _Process) -> None:
        broker.starts_at = None
        broker.sees_all = False
        reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # A signal that arrives during the fork must not be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            self._become(broker, parent, reading, writing)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.close(writing)
        broker.pid, broker.pipe, broker.started = pid, reading, time.monotonic()
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._on_said(broker))

    def _become(self, broker: _Process, parent: int, reading: int, writing: int) -> None:
        """Runs the broker in the child process; does not return."""
        status = 1
        try:
            # Linux only: elsewhere the brokers of a supervisor that was killed run on.
            with suppress(AttributeError):
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            # Ctrl-C in a terminal reaches all processes; the supervisor decides when each stops.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            for key in list(self._selector.get_map().values()):
                os.close(key.fd)
            self._selector.close()
            os.close(reading)
            if os.getppid() == parent:
                status = self._run(broker.id, broker.address, lambda address: _tell(writing, address))
        except BaseException:
            _LOGGER.critical("broker %d failed", broker.id, exc_info=True)
        finally:
            # The cleanup of the supervisor must not run in a broker.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(status)

    def _on_said(self, broker: _Process) -> None:
        said = os.read(broker.pipe, 4096)
        if not said:
            self._on_ended(broker)
            return
        # Several reports may arrive together.
        for word in said.decode().split():
            if word == SEES_ALL:
                broker.sees_all = True
            elif word != WAITING:
                broker.address = word
        if self._stops_asked:
            return
        for each in self._processes:
            if each.pid == 0 and each.starts_at is None:
                self._start(each)
        if not self._is_announced and all(each.sees_all for each in self._processes):
            self._is_announced = True
            self._on_ready([each.address or "" for each in self._processes])

    def _on_ended(self, broker: _Process) -> None:
        self._selector.unregister(broker.pipe)
        os.close(broker.pipe)
        _, status = os.waitpid(broker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        how = f"with status {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
        pid, broker.pid, broker.killed_at = broker.pid, 0, None
        if self._stops_asked:
            if code not in (0, -signal.SIGTERM):
                self._status = 1
                _LOGGER.error("broker %d (process %d) ended %s", broker.id, pid, how)
            self._stop_next()
        elif broker.address is None and not self._is_announced:
            _LOGGER.error("broker %d could not be started: it ended %s; stopping all brokers", broker.id, how)
            self._status = 1
            self._stop()
        else:
            pause = broker.restarts.pause_after(time.monotonic() - broker.started)
            broker.starts_at = time.monotonic() + pause
            when = f"in {pause:g} s" if pause else "at once"
            _LOGGER.error("broker %d (process %d) ended %s; restarting it %s", broker.id, pid, how, when)

    # The end

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Makes signals wake the selector, and restores the former handlers."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)
        before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
        wakeup_before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

        def on_signal() -> None:
            with suppress(BlockingIOError):
                os.read(reading, 4096)
            self._stop()

        self._selector.register(reading, selectors.EVENT_READ, on_signal)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(reading)
            os.close(writing)

    def _stop(self) -> None:
        """Stops the brokers one after the other, so that leadership moves to those that still serve; if asked again,
        all at once."""
        self._stops_asked += 1
        for each in self._processes:
            each.starts_at = None
        if self._stops_asked == 1:
            self._on_stopping()
            self._stop_next()
        else:
            for each in self._processes:
                self._ask_to_stop(each)

    def _stop_next(self) -> None:
        running = [each for each in self._processes if each.pid]
        if running and not any(each.killed_at is not None for each in running):
            self._ask_to_stop(running[-1])

    def _ask_to_stop(self, broker: _Process) -> None:
        if broker.pid:
            os.kill(broker.pid, signal.SIGTERM)
            broker.killed_at = time.monotonic() + STOP_SECONDS


def _tell(pipe: int, word: str) -> None:
    # Kept open: end of file tells the supervisor that this process ended.
    os.write(pipe, f"{word}\n".encode())
