"""Waits for the first of several coroutines."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def wait_first(*works: Coroutine[Any, Any, Any]) -> None:
    """Returns when one of them has returned or failed; the others are cancelled, and all results are ignored."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
