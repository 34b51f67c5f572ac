"""A plain HTTP client over a real socket that sends bytes as they are, good or bad."""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.http_endpoint import REQUEST_SECONDS, HttpEndpoint
from ottla.env.real_clock import RealClock

HOST = "127.0.0.1"


class Response(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes


class HttpClient:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, port: int, source: str = HOST) -> "HttpClient":
        """To loopback, from an address of loopback."""
        return cls(*await asyncio.open_connection(HOST, port, local_addr=(source, 0)))

    async def ask(self, content: bytes) -> Response:
        """Sends these bytes and reads one response."""
        self.writer.write(content)
        return await self.receive(is_head=content.startswith(b"HEAD"))

    async def receive(self, *, is_head: bool = False) -> Response:
        """One response."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in head[1:]) if key}
        body = b"" if is_head else await self.reader.readexactly(int(headers.get("content-length", "0")))
        return Response(int(head[0].split()[1]), headers, body)

    async def get(self, path: str, method: str = "GET") -> Response:
        """A well-formed request."""
        return await self.ask(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())

    async def rest(self) -> bytes:
        """What still comes before the other side closes; it must do so."""
        try:
            return await self.reader.read(-1)
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        """Ends it."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


async def get(port: int, path: str, method: str = "GET") -> Response:
    """One request on a connection of its own."""
    client = await HttpClient.connect(port)
    try:
        return await client.get(path, method)
    finally:
        await client.close()


def endpoint_of(broker: Broker, *, request_seconds: float = REQUEST_SECONDS) -> HttpEndpoint:
    """An endpoint for the health and metrics of a broker, which may start later."""
    return HttpEndpoint(broker.health, broker.metrics, RealClock(), request_seconds=request_seconds)
