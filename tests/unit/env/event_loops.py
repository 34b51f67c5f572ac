"""Runs a scenario on each event loop that Ottla supports."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]

TIME_LIMIT_SECONDS = 120.0


def _on_asyncio(scenario: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(scenario, TIME_LIMIT_SECONDS)

    return asyncio.run(limited())


def _on_uvloop(scenario: Coroutine[Any, Any, T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(scenario, TIME_LIMIT_SECONDS)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(limited())


EVENT_LOOPS = [pytest.param(_on_asyncio, id="asyncio"), pytest.param(_on_uvloop, id="uvloop")]


async def wait_ended(pid: int) -> None:
    """Returns once the process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
