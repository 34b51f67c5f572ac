"""Requests with thousands of entries or an expensive pattern: handled with pauses, in which the event loop serves other
connections."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from ottla.model.re2_patterns import SLICE_STEPS_MAX, Pattern

ENTRIES_BETWEEN_PAUSES: Final = 100
"""For entries that take about ten microseconds each."""
_LONG_MATCHES: Final = ThreadPoolExecutor(1, "ottla-patterns")
"""Long texts are matched one at a time, however many requests there are. The thread starts with the first one."""

T = TypeVar("T")


async def with_pauses(entries: Iterable[T]) -> AsyncIterator[T]:
    """The entries in their order, with a pause after each hundred."""
    for number, entry in enumerate(entries, start=1):
        yield entry
        if number % ENTRIES_BETWEEN_PAUSES == 0:
            await asyncio.sleep(0)


async def matching_texts(pattern: Pattern, texts: Iterable[str]) -> set[str]:
    """Those of the texts that the pattern matches, with a pause after each slice.

    A text that is too long for a slice is matched in the thread, since RE2 cannot pause in the middle.
    """
    found: set[str] = set()
    for piece in pattern.slices(texts):
        if pattern.steps(piece[0]) <= SLICE_STEPS_MAX:
            found.update(filter(pattern.matches, piece))
            await asyncio.sleep(0)
        elif await asyncio.get_running_loop().run_in_executor(_LONG_MATCHES, pattern.matches, piece[0]):
            found.add(piece[0])
    return found
