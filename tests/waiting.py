"""Bounded waits for conditions that no event announces: looks every few milliseconds, and fails when time is up."""

import asyncio
import inspect
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE_SECONDS: Final = 180
"""A machine may stall for long; a condition that comes to be is noticed at once all the same."""
LOOK_SECONDS: Final = 0.01
TURNS: Final = 100
"""What depends on this event loop alone is so after a few turns of it."""


async def until(condition: Callable[[], object | Awaitable[object]], seconds: float = PATIENCE_SECONDS) -> None:
    """Returns once the condition is true; the event loop runs meanwhile. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        for turn in itertools.count():
            result = condition()
            if await result if inspect.isawaitable(result) else result:
                return
            await asyncio.sleep(0 if turn < TURNS else LOOK_SECONDS)


async def settle() -> None:
    """Lets the event loop do all that waits for nothing outside of it."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def tries(what: str = "it is through", seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Once for each try at what may not be through yet, which itself takes its time; fails when time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
    raise AssertionError(f"tried for {seconds:g} s until {what}")


def wait_until(
    condition: Callable[[], T],
    what: str | Callable[[], object] = "the condition is true",
    seconds: float = PATIENCE_SECONDS,
) -> T:
    """Returns the condition's result once that is true; other threads and processes decide when.

    The failure says `what` was waited for, or what it returns then.
    """
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s until {what if isinstance(what, str) else what()}")
        time.sleep(LOOK_SECONDS)
    return result
