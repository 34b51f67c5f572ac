"""Streams of a session: they end with it, and have a bound."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from ottla.console.application import Console
from ottla.console.cluster.access import Access, UserClients
from ottla.console.settings import AuthMode, ConsoleSettings
from ottla.console.web.events import STREAMS_MAX, SessionOverError, event_stream, file_stream

SETTINGS = ConsoleSettings(bootstrap="127.0.0.1:1", auth=AuthMode.CLUSTER)


class Endless:
    """A source of pieces: one, then one whenever `more` is set."""

    def __init__(self) -> None:
        self.more = asyncio.Event()
        self.is_closed = False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"piece"
                await self.more.wait()
        finally:
            self.is_closed = True


def signed_in(console: Console) -> tuple[str, Access]:
    clients = UserClients(SETTINGS, {}, None)
    return console.sessions.sign_in("alice", clients), console.access("alice", "192.0.2.1", clients)


def body_of(response: StreamingResponse) -> Any:
    return response.body_iterator


async def test_events_end_with_the_session() -> None:
    console = Console(SETTINGS)
    cookie, access = signed_in(console)
    source = Endless()
    body = body_of(event_stream(access, source.pieces()))
    assert b"piece" == await anext(body)
    waiting = asyncio.ensure_future(anext(body))
    await asyncio.sleep(0)
    await console.sessions.sign_out(cookie)
    assert b"Your session is over" in await waiting
    with pytest.raises(StopAsyncIteration):
        await anext(body)
    assert (True, 0) == (source.is_closed, access.clients.streams)


async def test_a_download_breaks_off_when_the_session_ends() -> None:
    console = Console(SETTINGS)
    cookie, access = signed_in(console)
    source = Endless()
    source.more.set()
    body = body_of(file_stream(access, source.pieces(), "text/csv", {}))
    assert b"piece" == await anext(body) == await anext(body)
    await console.sessions.sign_out(cookie)
    with pytest.raises(SessionOverError):
        await anext(body)
    assert (True, 0) == (source.is_closed, access.clients.streams)


async def test_a_session_has_a_bounded_number_of_streams() -> None:
    console = Console(SETTINGS)
    _, access = signed_in(console)
    bodies = []
    for _ in range(STREAMS_MAX):
        bodies.append(body_of(event_stream(access, Endless().pieces())))
        await anext(bodies[-1])
    with pytest.raises(HTTPException, match="24 streams"):
        event_stream(access, Endless().pieces())
    with pytest.raises(HTTPException, match="24 streams"):
        file_stream(access, Endless().pieces(), "text/csv", {})
    event_stream(signed_in(console)[1], Endless().pieces())
    await bodies[0].aclose()
    event_stream(access, Endless().pieces())
    for each in bodies[1:]:
        await each.aclose()
