"""Reads a file, a pipe or a terminal in pieces on the event loop, and reports pauses of the input.

This does not use a thread: a thread that waits for a terminal cannot be interrupted, and the program would not end.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

PIECE_BYTES: Final = 256 * 1024
PAUSE_SECONDS: Final = 0.02


async def read_pieces(descriptor: int, on_pause: Callable[[], Awaitable[None]]) -> AsyncIterator[bytes]:
    """The content of the descriptor, in pieces; `on_pause` is awaited when no input has come for a moment."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
        is_watched = True
    except PermissionError:
        # A regular file is always readable and cannot be watched.
        is_watched = False
    try:
        while True:
            if is_watched:
                await _wait_readable(readable, on_pause)
            piece = os.read(descriptor, PIECE_BYTES)
            if not piece:
                return
            yield piece
            readable.clear()
    finally:
        if is_watched:
            loop.remove_reader(descriptor)


async def _wait_readable(readable: asyncio.Event, on_pause: Callable[[], Awaitable[None]]) -> None:
    try:
        async with asyncio.timeout(PAUSE_SECONDS):
            await readable.wait()
    except TimeoutError:
        await on_pause()
        await readable.wait()
