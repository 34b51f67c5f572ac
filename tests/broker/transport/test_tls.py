"""TLS: the same exchanges encrypted, with Python's own TLS or ours on the other side, and streams cut anywhere."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Event

import pytest

from ottla.env.ports import Socket
from ottla.env.real_network import RealNetwork
from ottla.transport.connection import IN_FLIGHT_MAX
from ottla.transport.outbox import Piece
from ottla.transport.tls import TlsSocket
from ottla.transport.turn import Turn
from tests.unit.transport.certificates import Certificate
from tests.unit.transport.rig import (
    HOST,
    Client,
    Echo,
    EchoAtTurnEnd,
    FileRange,
    Parked,
    Pieces,
    ServedListener,
    file_of,
    request,
    response,
)
from tests.waiting import settle, until

pytestmark = pytest.mark.both_loops

MIB = 1024 * 1024


def tls_rig(certificate: Certificate, make_serve: Callable[[Turn], object]) -> ServedListener:
    return ServedListener(
        make_serve,  # type: ignore[arg-type]
        tls=certificate.listener_tls(),
        client_tls=certificate.client_context(),
    )


@pytest.mark.usefixtures("tls_on")
class TestAsABroker:
    @pytest.mark.parametrize("size", [0, 100, 16_384, 70_000, 3 * MIB])
    async def test_requests_and_responses(self, certificate: Certificate, size: int) -> None:
        async with tls_rig(certificate, EchoAtTurnEnd) as rig:
            client = await rig.connect(receive_bytes=4 * MIB)
            bodies = [Random(number).randbytes(size) for number in range(5)]
            await client.send(b"".join(request(number, body) for number, body in enumerate(bodies)))
            for number, body in enumerate(bodies):
                assert (number, body) == await client.receive()
            assert sum(len(body) + 14 for body in bodies) == rig.only_connection.bytes_in
            assert sum(len(body) + 8 for body in bodies) == rig.only_connection.bytes_out

    async def test_file_ranges(self, certificate: Certificate, tmp_path: Path) -> None:
        content = Random(1).randbytes(5 * MIB)
        file = file_of(tmp_path, content)
        answers: list[list[Piece]] = [[FileRange(file, 7, 100), b"between", FileRange(file, 3, 4 * MIB), b"end"]] * 3
        async with tls_rig(certificate, lambda turn: Pieces(answers)) as rig:
            client = await rig.connect(receive_bytes=1000)
            await client.send(b"".join(request(number) for number in range(3)))
            for number in range(3):
                expected = content[7:107] + b"between" + content[3 : 3 + 4 * MIB] + b"end"
                assert (number, expected) == await client.receive()

    @pytest.mark.parametrize("promised", [60_000, 600_000])
    async def test_a_file_that_ends_early(self, certificate: Certificate, tmp_path: Path, promised: int) -> None:
        file = file_of(tmp_path, b"x" * 50_000)
        async with tls_rig(certificate, lambda turn: Pieces([[FileRange(file, 0, promised)]])) as rig:
            client = await rig.connect()
            await client.send(request(0))
            assert len(await client.rest()) <= 50_008
            assert [] == list(rig.listener.connections)

    @pytest.mark.parametrize("size", [1, 10_000, 200_000, 20 * MIB])
    async def test_the_last_response_is_whole_before_the_end(self, certificate: Certificate, size: int) -> None:
        parked, told = Parked(), Event()
        async with tls_rig(certificate, lambda turn: parked) as rig:
            slow = socket.create_connection((HOST, rig.port))
            slow.setblocking(True)
            reading = asyncio.ensure_future(asyncio.to_thread(self._read_when_told, slow, certificate, told))
            await parked.wait_served(3)
            fill, body = b"f" * (4 * MIB), Random(size).randbytes(size)
            parked.slots[3].fail("enough")
            parked.complete(1, fill)
            parked.complete(2, body)
            await rig.settle()
            told.set()
            assert response(1, fill) + response(2, body) == await reading

    @staticmethod
    def _read_when_told(slow: socket.socket, certificate: Certificate, told: Event) -> bytes:
        """Asks three times, does not read before it is told, then reads to the end of the stream."""
        received = bytearray()
        with certificate.client_context().wrap_socket(slow, server_hostname="localhost") as client:
            client.sendall(request(1) + request(2) + request(3))
            told.wait()
            while piece := client.recv(1 << 16):
                received += piece
        return bytes(received)

    async def test_who_does_not_read_is_not_read_from(self, certificate: Certificate) -> None:
        echo = Echo()
        async with tls_rig(certificate, lambda turn: echo) as rig:
            client = await rig.connect(receive_bytes=1000)
            count = 100
            bodies = [Random(number).randbytes(200_000) for number in range(count)]
            sending = asyncio.ensure_future(
                client.send(b"".join(request(number, body) for number, body in enumerate(bodies)))
            )
            await rig.settle()
            assert len(echo.served) < count
            for number, body in enumerate(bodies):
                assert (number, body) == await client.receive()
            await sending

    async def test_decrypted_requests_wait_while_reading_is_paused(self, certificate: Certificate) -> None:
        """All are in the kernel's hands and past it at once: nothing readable comes when it resumes."""
        parked = Parked()
        async with tls_rig(certificate, lambda turn: parked) as rig:
            client = await rig.connect()
            count = IN_FLIGHT_MAX + 700
            await client.send(b"".join(request(number, b"b" * 20) for number in range(count)))
            await parked.wait_served(IN_FLIGHT_MAX)
            await rig.settle()
            assert IN_FLIGHT_MAX == len(parked.order)
            for number in range(count):
                await parked.wait_served(number + 1)
                parked.complete(number)
                assert (number, b"") == await client.receive()

    async def test_garbage_instead_of_a_handshake(self, certificate: Certificate) -> None:
        async with tls_rig(certificate, lambda turn: Echo()) as rig:
            for garbage in (
                b"GET / HTTP/1.1\r\n\r\n",
                bytes(100),
                request(1),
                b"\x16\x03\x01\x40\x00" + b"x" * 20_000,
            ):
                client = Client(*await asyncio.open_connection(HOST, rig.port))
                await client.send(garbage)
                answer = await client.rest()
                assert b"" == answer or answer[:1] == b"\x15"  # Nothing, or an alert.
                await client.close()
            await until(lambda: not rig.listener.connections)
            assert (1, b"still here") == await (await rig.connect()).ask(1, b"still here")

    @pytest.mark.parametrize("size", [100, 100_000])
    async def test_a_bad_record_behind_a_request_ends_the_connection(self, certificate: Certificate, size: int) -> None:
        def send_both(port: int) -> bool:
            """Whether the broker closes the connection, although the client leaves it open."""
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = certificate.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
            with socket.create_connection((HOST, port), timeout=30) as client:
                while True:
                    try:
                        tls.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        client.sendall(outgoing.read())
                        incoming.write(client.recv(1 << 16))
                tls.write(request(1, b"r" * size))
                client.sendall(outgoing.read() + b"\x17\x03\x03\x00\x40" + bytes(64))
                try:
                    while client.recv(1 << 16):
                        pass
                except ConnectionResetError:
                    pass
                return True

        async with tls_rig(certificate, lambda turn: Echo()) as rig:
            assert await asyncio.to_thread(send_both, rig.port)
            await until(lambda: not rig.listener.connections)

    async def test_one_who_trusts_somebody_else_leaves(self, certificate: Certificate) -> None:
        async with tls_rig(certificate, lambda turn: Echo()) as rig:
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.open_connection(HOST, rig.port, ssl=ssl.create_default_context())
            await until(lambda: not rig.listener.connections)


class Cutter:
    """Stands between client and broker, and passes the client's bytes on in pieces of random sizes."""

    def __init__(self, port: int, sizes: list[int], seed: int) -> None:
        self._port = port
        self._sizes = sizes
        self._random = Random(seed)

    async def start(self) -> int:
        self._relay = await asyncio.start_server(self._on_client, HOST, 0)
        port: int = self._relay.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        self._relay.close()
        await self._relay.wait_closed()

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(HOST, self._port)

        async def answers() -> None:
            while piece := await back.read(1 << 16):
                writer.write(piece)

        answering = asyncio.ensure_future(answers())
        while piece := await reader.read(self._random.choice(self._sizes)):
            forth.write(piece)
            await forth.drain()
            await asyncio.sleep(0)
        forth.close()
        await answering
        writer.close()


@pytest.mark.usefixtures("tls_on")
@pytest.mark.parametrize(("sizes", "seed"), [([1], 0), ([1, 2, 5, 100], 1), ([1, 50, 3000, 17_000], 2), ([16_406], 3)])
async def test_a_stream_cut_anywhere(certificate: Certificate, sizes: list[int], seed: int) -> None:
    """Handshake and records come in pieces; what is complete must be served without waiting for more."""
    async with tls_rig(certificate, EchoAtTurnEnd) as rig:
        cutter = Cutter(rig.port, sizes, seed)
        port = await cutter.start()
        client = Client(*await asyncio.open_connection(HOST, port, ssl=certificate.client_context()))
        random = Random(seed)
        for turn in range(10 if sizes == [1] else 60):
            group = [(number, random.randbytes(random.choice([0, 1, 100, 3000]))) for number in range(turn % 7 + 1)]
            for number, body in group:
                client.writer.write(request(number, body))  # Each becomes a record of its own.
            for number, body in group:
                assert (number, body) == await client.receive()
        await client.close()
        await cutter.stop()


class TestBothSides:
    """Our TLS on both ends of a real connection."""

    @staticmethod
    async def connect(certificate: Certificate) -> tuple[TlsSocket, TlsSocket, Callable[[], None]]:
        accepted: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()
        listener = await RealNetwork().listen(HOST, 0, accepted.set_result)
        plain = await RealNetwork().connect(HOST, listener.port)
        client = TlsSocket(plain, certificate.client_context(), server_side=False, host="localhost")
        broker = TlsSocket(await accepted, certificate.broker_context(), server_side=True)

        def close() -> None:
            for each in (client, broker, listener):
                each.close()
                each.close()

        return client, broker, close

    async def test_bytes_go_both_ways_and_end(self, certificate: Certificate) -> None:
        client, broker, close = await self.connect(certificate)
        for near, far, body in ((client, broker, b"there" * 100_000), (broker, client, b"and back" * 100_000)):
            received = collect(far, len(body))
            reading = collect(near, 0)
            await send_whole(near, body)
            assert body == await received
            reading.cancel()
        ended = collect(broker, 1)
        client.close()
        assert b"" == await ended
        close()

    async def test_who_sends_before_the_handshake_is_over_does_not_spin(self, certificate: Certificate) -> None:
        client, broker, close = await self.connect(certificate)
        calls = 0

        def on_writable() -> None:
            nonlocal calls
            calls += 1
            if client.send([b"early"]):
                client.on_writable(None)

        assert 0 == client.send([b"early"])
        client.on_writable(on_writable)
        reading = collect(client, 0)
        await settle()
        assert (0, False) == (calls, client._is_watching)
        assert b"early" == await collect(broker, 5)
        assert 1 == calls
        reading.cancel()
        close()

    async def test_nothing_counts_as_sent_before_the_socket_has_it(self, certificate: Certificate) -> None:
        client, broker, close = await self.connect(certificate)
        received = collect(broker, 3)
        reading = collect(client, 0)
        await send_whole(client, b"now")
        assert b"now" == await received
        body = Random(4).randbytes(30 * MIB)
        sent = 0
        while count := client.send([memoryview(body)[sent:]]):
            sent += count
        assert sent < len(body)
        assert len(client._unsent) > 0
        receiving = collect(broker, len(body))
        await send_whole(client, body[sent:])
        assert 0 == len(client._unsent)
        client.close()
        assert body == await receiving
        reading.cancel()
        close()

    async def test_a_broken_connection_is_told_to_who_sends(self, certificate: Certificate) -> None:
        client, broker, close = await self.connect(certificate)
        reading = collect(client, 0)
        received = collect(broker, 2)
        await send_whole(client, b"ok")
        await received
        broker._socket.close()
        with pytest.raises(OSError):  # noqa: PT011  # A reset or a broken pipe, as the kernel likes.
            await send_whole(client, bytes(100 * MIB))
        reading.cancel()
        close()


def collect(stream: TlsSocket, size: int) -> "asyncio.Future[bytes]":
    """Reads so many bytes, or until the end; with 0 it only keeps the stream going, until cancelled."""
    done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    received = bytearray()
    buffer = memoryview(bytearray(10_000))

    def on_readable() -> None:
        if done.done():
            return
        try:
            count = stream.recv_into(buffer[: min(len(buffer), size - len(received))] if size else buffer)
        except BlockingIOError:
            return
        except OSError:
            count = 0
        received.extend(buffer[:count])
        if size and (count == 0 or len(received) == size):
            stream.on_readable(None)
            done.set_result(bytes(received))
        elif count == 0:
            stream.on_readable(None)

    stream.on_readable(on_readable)
    return done


async def send_whole(stream: TlsSocket, body: bytes) -> None:
    """Returns when the kernel has all of it."""
    loop = asyncio.get_running_loop()
    sent = 0
    while True:
        sent += stream.send([memoryview(body)[sent:]])
        if sent == len(body):
            return
        writable: asyncio.Future[None] = loop.create_future()
        stream.on_writable(lambda future=writable: future.done() or future.set_result(None))  # type: ignore[misc]
        try:
            await writable
        finally:
            stream.on_writable(None)
