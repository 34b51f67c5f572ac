"""Responses that go on: server-sent events, one stream per browser tab, closed when the tab goes away; and downloads.

A session has a bounded number of them, and they end with it.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from ottla.console.cluster.access import Access
from ottla.model.errors import DeniedError

STREAMS_MAX: Final = 24
"""Of one session; without a login, of all browsers together."""
_PING_SECONDS: Final = 15.0
_PING: Final = b": still here\n\n"


class SessionOverError(DeniedError):
    """The session ended while its response was sent."""


def event(kind: str, value: Any) -> bytes:
    """One event: its kind, and a value as JSON."""
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


def event_stream(access: Access, events: AsyncGenerator[bytes, None]) -> StreamingResponse:
    """The response with these events (see `event`); a comment every 15 s shows that the connection lives.

    The generator is closed (its `finally` runs) when the browser disconnects, its session ends or the console stops.
    Raises `HTTPException` if the session has too many streams.
    """
    check_streams(access)
    return StreamingResponse(
        _counted(access, _with_pings(access, events)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def file_stream(
    access: Access, pieces: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str]
) -> StreamingResponse:
    """The response with a file that is made while it is sent. It breaks off if the session ends: what the browser has
    by then is not taken for the whole file. Raises `HTTPException` if the session has too many streams."""
    check_streams(access)
    return StreamingResponse(_counted(access, _while_signed_in(access, pieces)), media_type=media_type, headers=headers)


def attachment(name: str) -> dict[str, str]:
    """The headers of a response that browsers save as a file of this name."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}", "Cache-Control": "no-store"}


def check_streams(access: Access) -> None:
    """Raises `HTTPException` if the session may not open another stream."""
    if access.clients.streams >= STREAMS_MAX:
        raise HTTPException(429, f"{STREAMS_MAX} streams of records are open already; close a page, or wait")


async def _counted(access: Access, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    access.clients.streams += 1
    try:
        async with aclosing(pieces):
            async for each in pieces:
                yield each
    finally:
        access.clients.streams -= 1


async def _while_signed_in(access: Access, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(pieces):
        async for each in pieces:
            if access.clients.ended.is_set():
                raise SessionOverError("the session ended before the download")
            yield each


async def _with_pings(access: Access, events: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    waiting: asyncio.Future[Any] | None = None
    ending: asyncio.Future[Any] = asyncio.ensure_future(access.clients.ended.wait())
    try:
        while True:
            if waiting is None:
                waiting = asyncio.ensure_future(anext(events))
            await asyncio.wait({waiting, ending}, timeout=_PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                yield event("failed", {"words": "Your session is over; sign in again."})
                return
            if not waiting.done():
                yield _PING
                continue
            try:
                made: bytes = waiting.result()
            except StopAsyncIteration:
                return
            waiting = None
            yield made
    finally:
        ending.cancel()
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await events.aclose()
