"""Drives the timing wheel by the event loop: one timer of the loop for all deadlines of the broker."""

import asyncio
from collections.abc import Callable

from ottla.env.ports import Clock
from ottla.replication.timing_wheel import Timer, TimingWheel


class Timers:
    """Calls back when a span has passed; costs the event loop one timer, however many wait."""

    __slots__ = ("_armed_ms", "_clock", "_handle", "_is_closed", "_loop", "_wheel")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._wheel = TimingWheel(self._now_ms())
        self._handle: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._is_closed = False

    def after(self, span_ms: int, callback: Callable[[], None]) -> Timer:
        """Calls back once, at least that much later, unless cancelled."""
        deadline_ms = self._now_ms() + max(span_ms, 0) + 1
        timer = self._wheel.add(deadline_ms, callback)
        if self._handle is None or deadline_ms < self._armed_ms:
            self._arm()
        return timer

    def __len__(self) -> int:
        return len(self._wheel)

    def close(self) -> None:
        """Nothing fires any more, whatever is still added."""
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
        for timer in self._wheel.advance(self._now_ms()):
            try:
                timer.callback()
            except Exception as error:
                self._loop.call_exception_handler({"message": f"unexpected failure: {error}", "exception": error})
        self._arm()
