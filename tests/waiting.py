"""Bounded waits for conditions that no event announces: looks every few milliseconds, and fails when time is up."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 180.0
"""A machine may stall for long; a condition that comes to be is noticed at once all the same."""
LOOK_SECONDS: Final = 0.01


async def until(is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Returns once it is so, and lets the event loop run meanwhile. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not is_so():  # noqa: ASYNC110  # what is waited for has no event of its own
            await asyncio.sleep(LOOK_SECONDS)


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Returns once it is so; other threads and processes decide when. The failure says `what`."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"waited {seconds:g} s until {what}"
        time.sleep(LOOK_SECONDS)
