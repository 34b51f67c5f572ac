"""The wheel's shell on a real loop: nothing fires early, everything fires, one failing callback harms no other."""

import asyncio
import time
from functools import partial

import pytest

from ottla.env.real_clock import RealClock
from ottla.replication.timers import Timers
from ottla.sim.clock import SimClock

pytestmark = pytest.mark.both_loops


async def test_everything_fires_and_nothing_early() -> None:
    timers = Timers(RealClock())
    spans = [0, 1, 2, 30, 5, 7, 30, 3, -5]
    left = len(spans)
    early: list[tuple[int, float]] = []
    done = asyncio.Event()
    began = time.monotonic()

    def on_time(span: int) -> None:
        nonlocal left
        left -= 1
        passed = (time.monotonic() - began) * 1000
        if passed < span:
            early.append((span, passed))
        if left == 0:
            done.set()

    for span in spans:
        timers.after(span, partial(on_time, span))
    assert len(spans) == len(timers)
    await done.wait()
    assert [] == early
    assert 0 == len(timers)


async def test_a_span_is_never_cut_short_by_rounding() -> None:
    clock = SimClock()
    clock.advance(0.0009)
    timers = Timers(clock)
    fired: list[float] = []
    timers.after(1, lambda: fired.append(clock.monotonic()))
    for _ in range(4):
        clock.advance(0.0003)
        timers._fire()
    assert [0.0021] == [round(moment, 4) for moment in fired]


async def test_an_earlier_deadline_overtakes_a_later_one() -> None:
    timers = Timers(RealClock())
    fired: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    late = timers.after(3_600_000, lambda: fired.set_result("late"))
    timers.after(1, lambda: fired.set_result("early"))
    assert "early" == await fired
    assert late.is_armed
    late.cancel()
    assert 0 == len(timers)


async def test_a_cancelled_one_does_not_fire() -> None:
    timers = Timers(RealClock())
    fired: list[str] = []
    done = asyncio.Event()
    timers.after(1, lambda: fired.append("cancelled")).cancel()
    timers.after(3, done.set)
    await done.wait()
    assert [] == fired


async def test_a_callback_may_add_and_another_may_fail() -> None:
    complaints: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
    timers = Timers(RealClock())
    done = asyncio.Event()

    def fail() -> None:
        raise RuntimeError("on purpose")

    timers.after(1, fail)

    def add() -> None:
        timers.after(1, done.set)

    timers.after(1, add)
    await done.wait()
    assert ["unexpected failure: on purpose"] == complaints


async def test_nothing_fires_after_the_end() -> None:
    timers = Timers(RealClock())
    fired: list[str] = []
    timers.after(1, lambda: fired.append("before"))
    timers.close()
    timers.after(1, lambda: fired.append("after"))
    assert timers._handle is None
    other, done = Timers(RealClock()), asyncio.Event()
    other.after(5, done.set)
    await done.wait()
    assert [] == fired
