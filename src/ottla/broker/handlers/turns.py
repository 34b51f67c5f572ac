"""Requests that name thousands of things: worked through with pauses, in which the event loop serves others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

AT_ONCE: Final = 100
"""Of things that take some ten microseconds each."""

T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items in their order, with a pause after each hundred."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
