"""What the transport tests build with: requests as bytes, ways to serve them, a listener and clients on loopback."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from struct import pack, unpack
from types import TracebackType
from typing import Final, NamedTuple, Self

from ottla.env.ports import Clock, File
from ottla.env.real_clock import RealClock
from ottla.env.real_disk import RealDisk
from ottla.env.real_network import RealNetwork
from ottla.protocol.scan import Request
from ottla.security.security_protocol import SecurityProtocol
from ottla.transport.connection import Connection, Serve, Slot
from ottla.transport.listeners import Listener, ListenerLimits, Listeners
from ottla.transport.outbox import Piece
from ottla.transport.tls_handshakes import AcceptingTls
from ottla.transport.turn import Turn
from tests.waiting import until

HOST: Final = "127.0.0.1"
API: Final = 3
"""Any API whose body the transport does not look into."""
HEADER_BYTES: Final = 14
"""Length, API, version, correlation id and a null client id make this much of a request."""
PING: Final = 1_000_000
"""A request of this number is always answered at once."""


class FileRange(NamedTuple):
    """A part of a file, as storage hands it out."""

    file: File
    position: int
    size: int


def request(number: int, body: bytes = b"") -> bytes:
    """A whole request frame with this correlation id."""
    content = pack(">hhih", API, 1, number, -1) + body
    return pack(">i", len(content)) + content


def response(number: int, body: bytes = b"") -> bytes:
    """A whole response frame."""
    return pack(">ii", 4 + len(body), number) + body


def file_of(folder: Path, content: bytes, name: str = "content") -> File:
    """An open file with this content."""
    path = folder / name
    path.write_bytes(content)
    return RealDisk().open(str(path), writable=False)


class Echo:
    """Answers at once with the request's own body."""

    def __init__(self) -> None:
        self.served: list[int] = []

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        self.served.append(request.correlation_id)
        slot.complete((response(request.correlation_id, bytes(buffer[request.body_start : request.end])),))


class EchoAtTurnEnd:
    """Looks into the buffer only when the turn ends, as a gathered append does, then answers with the body."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.served = 0

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        self.served += 1

        def work() -> None:
            slot.complete((response(request.correlation_id, bytes(buffer[request.body_start : request.end])),))

        self._turn.add_append(work)


class Parked:
    """Answers nothing by itself: the test completes the slots."""

    def __init__(self) -> None:
        self.slots: dict[int, Slot] = {}
        self.order: list[int] = []
        self._arrived = asyncio.Event()

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        if request.correlation_id == PING:
            slot.complete((response(PING),))
            return
        self.slots[request.correlation_id] = slot
        self.order.append(request.correlation_id)
        self._arrived.set()

    async def wait_served(self, count: int) -> None:
        """Returns once so many requests have come."""
        while len(self.order) < count:
            self._arrived.clear()
            await self._arrived.wait()

    def complete(self, number: int, body: bytes = b"") -> None:
        """Answers one of them."""
        self.slots.pop(number).complete((response(number, body),))


class Pieces:
    """Answers request number n with the n-th of given lists of pieces, behind a header."""

    def __init__(self, answers: Sequence[Sequence[Piece]]) -> None:
        self._answers = answers

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        pieces: Sequence[Piece] = () if request.correlation_id == PING else self._answers[request.correlation_id]
        size = sum(len(each) if isinstance(each, bytes) else each.size for each in pieces)
        slot.complete([pack(">ii", 4 + size, request.correlation_id), *pieces])


class Client:
    """The other side: a plain stream of the standard library."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, content: bytes) -> None:
        """Returns once the kernel, or at most a small buffer, has it."""
        self.writer.write(content)
        await self.writer.drain()

    def end_sending(self) -> None:
        """Closes this side's half of the connection; responses are still received."""
        self.writer.write_eof()

    async def receive(self) -> tuple[int, bytes]:
        """The next response: its correlation id and body."""
        size, number = unpack(">ii", await self.reader.readexactly(8))
        return number, await self.reader.readexactly(size - 4)

    async def ask(self, number: int, body: bytes = b"") -> tuple[int, bytes]:
        """One request and its response."""
        await self.send(request(number, body))
        return await self.receive()

    async def rest(self) -> bytes:
        """What still comes before the other side closes; it must do so."""
        try:
            return await self.reader.read(-1)
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        """Ends it."""
        self.writer.close()
        with suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()


class ServedListener:
    """A listener on loopback with its turn, and clients of it; an async context manager."""

    def __init__(
        self,
        make_serve: Callable[[Turn], Serve],
        *,
        limits: ListenerLimits | None = None,
        clock: Clock | None = None,
        tls: AcceptingTls | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.turn = Turn()
        self.listener = Listeners(
            RealNetwork(),
            clock or RealClock(),
            self.turn,
            make_serve(self.turn),
            limits or ListenerLimits(),
        )
        self._tls = tls
        self._client_tls = client_tls
        self._clients: list[Client] = []
        self.port = 0

    async def __aenter__(self) -> Self:
        self.port = await self.listener.open(
            HOST, 0, Listener("SSL", SecurityProtocol.SSL, self._tls) if self._tls else Listener()
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()
        await self.listener.close(0.0)

    async def connect(self, *, receive_bytes: int = 1 << 16) -> Client:
        """Another client; it reads ahead by about so many bytes, then the kernel's buffers fill."""
        reader, writer = await asyncio.open_connection(HOST, self.port, limit=receive_bytes, ssl=self._client_tls)
        client = Client(reader, writer)
        self._clients.append(client)
        return client

    async def settle(self) -> None:
        """Some turns of the loop, each with a real exchange: what was ready to be read before has been."""
        client = await self.connect()
        for _ in range(10):
            await client.ask(PING)
        host, port = client.writer.get_extra_info("sockname")[:2]
        (mine,) = (each for each in self.listener.connections if each.context.address == f"{host}:{port}")
        self._clients.remove(client)
        await client.close()
        await until(mine.is_closed)

    @property
    def only_connection(self) -> Connection:
        """The one connection that the listener has."""
        (connection,) = self.listener.connections
        return connection
