"""Requests with thousands of entries: handled with pauses, in which the event loop serves other connections."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

ENTRIES_BETWEEN_PAUSES: Final = 100
"""For entries that take about ten microseconds each."""

T = TypeVar("T")


async def with_pauses(entries: Iterable[T]) -> AsyncIterator[T]:
    """The entries in their order, with a pause after each hundred."""
    for number, entry in enumerate(entries, start=1):
        yield entry
        if number % ENTRIES_BETWEEN_PAUSES == 0:
            await asyncio.sleep(0)
