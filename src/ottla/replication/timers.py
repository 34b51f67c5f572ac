"""Drives the timing wheel: one timer of the event loop serves all deadlines of the broker."""

import asyncio
from collections.abc import Callable

from ottla.env.ports import Clock
from ottla.replication.timing_wheel import Deadline, TimingWheel


class Timers:
    """Calls back after a time span."""

    __slots__ = ("_armed_ms", "_clock", "_handle", "_is_closed", "_loop", "_wheel")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._wheel = TimingWheel(self._now_ms())
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._is_closed = False

    def after(self, span_ms: int, callback: Callable[[], None]) -> Deadline:
        """Calls back once, after `span_ms` at least, unless cancelled."""
        deadline_ms = self._now_ms() + max(span_ms, 0) + 1
        deadline = self._wheel.add(deadline_ms, callback)
        if self._handle is None or deadline_ms < self._armed_ms:
            self._arm()
        return deadline

    def __len__(self) -> int:
        return len(self._wheel)

    def close(self) -> None:
        """Nothing fires any more, not even what is added later."""
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        due_ms = self._wheel.next_due_ms()
        if due_ms is not None and not self._is_closed:
            self._armed_ms = due_ms
            self._handle = self._loop.call_later(max(due_ms / 1000 - self._clock.monotonic(), 0.0005), self._fire)

    def _fire(self) -> None:
        self._handle = None
        for deadline in self._wheel.advance(self._now_ms()):
            try:
                deadline.callback()
            except Exception as error:
                self._loop.call_exception_handler({"message": f"unexpected failure: {error}", "exception": error})
        self._arm()
