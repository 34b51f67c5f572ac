"""Who asks too much, or does not read: reading stops, memory stays bounded, and it resumes where it stopped."""

import asyncio
import socket
from pathlib import Path

import pytest

from ottla.protocol.scan import Request
from ottla.transport.connection import IN_FLIGHT_MAX, UNSENT_BYTES_MAX, UNSENT_FILE_BYTES_MAX, UNSENT_PIECES_MAX, Slot
from ottla.transport.listeners import ListenerLimits
from ottla.transport.outbox import Piece
from ottla.transport.receive_buffers import SMALL_BYTES
from tests.unit.transport.rig import (
    HOST,
    PING,
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

pytestmark = pytest.mark.both_loops

MIB = 1024 * 1024


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class TestInFlight:
    async def test_so_many_requests_wait_and_no_more(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            count = 3 * IN_FLIGHT_MAX + 7
            await client.send(b"".join(request(number) for number in range(count)))
            await parked.wait_served(IN_FLIGHT_MAX)
            await rig.settle()
            assert IN_FLIGHT_MAX == len(parked.order)
            # One that is answered makes room for exactly one more, though it is the youngest that is answered last.
            parked.complete(0)
            await parked.wait_served(IN_FLIGHT_MAX + 1)
            await rig.settle()
            assert IN_FLIGHT_MAX + 1 == len(parked.order)
            assert (0, b"") == await client.receive()
            for number in range(1, count):
                await parked.wait_served(number + 1)
                parked.complete(number, b"%d" % number)
                assert (number, b"%d" % number) == await client.receive()
            assert list(range(count)) == parked.order

    async def test_nothing_more_is_read_meanwhile(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(b"".join(request(number) for number in range(IN_FLIGHT_MAX)))
            await parked.wait_served(IN_FLIGHT_MAX)
            connection = rig.only_connection
            before = connection.bytes_in
            await client.send(request(IN_FLIGHT_MAX) * 10)
            await rig.settle()
            assert before == connection.bytes_in

    async def test_those_behind_the_first_make_no_room(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            client = await rig.connect()
            await client.send(b"".join(request(number) for number in range(IN_FLIGHT_MAX + 10)))
            await parked.wait_served(IN_FLIGHT_MAX)
            for number in range(1, IN_FLIGHT_MAX):
                parked.complete(number)
            await rig.settle()
            assert IN_FLIGHT_MAX == len(parked.order)
            parked.complete(0)
            await parked.wait_served(IN_FLIGHT_MAX + 10)

    async def test_other_connections_go_on(self) -> None:
        parked = Parked()
        async with ServedListener(lambda turn: parked) as rig:
            for _ in range(5):
                client = await rig.connect()
                await client.send(b"".join(request(number) for number in range(2 * IN_FLIGHT_MAX)))
            await parked.wait_served(5 * IN_FLIGHT_MAX)
            await rig.settle()
            assert 5 * IN_FLIGHT_MAX == len(parked.order)


class Sized:
    """Answers at once with so many bytes as the body says."""

    def __init__(self) -> None:
        self.served = 0

    def __call__(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        if request.correlation_id == PING:
            slot.complete((response(PING),))
            return
        self.served += 1
        size = int(bytes(buffer[request.body_start : request.end]))
        slot.complete((response(request.correlation_id, b"y" * size),))


class TestUnsent:
    async def test_who_does_not_read_is_not_read_from(self) -> None:
        sized = Sized()
        async with ServedListener(lambda turn: sized) as rig:
            client = await rig.connect(receive_bytes=1000)
            before = resident_bytes()
            size, count = 64 * 1024, 1600
            await client.send(b"".join(request(number, b"%d" % size) for number in range(count)))
            await rig.settle()
            connection = rig.only_connection
            assert UNSENT_BYTES_MAX <= connection._outbox.bytes_waiting < UNSENT_BYTES_MAX + 20 * size
            assert sized.served < count // 2
            assert resident_bytes() - before < 16 * MIB
            for number in range(count):
                assert (number, b"y" * size) == await client.receive()
            assert (count, b"y") == await client.ask(count, b"1")
            assert 0 == connection._outbox.bytes_waiting

    async def test_file_ranges_have_a_bound_of_their_own(self, tmp_path: Path) -> None:
        content = bytes(range(256)) * (4 * MIB // 256)
        file = file_of(tmp_path, content)
        answers = [[FileRange(file, 0, 4 * MIB)]] * 50
        async with ServedListener(lambda turn: Pieces(answers)) as rig:
            client = await rig.connect(receive_bytes=1000)
            await client.send(b"".join(request(number) for number in range(50)))
            await rig.settle()
            outbox = rig.only_connection._outbox
            assert outbox.memory_bytes < 1000
            assert UNSENT_FILE_BYTES_MAX <= outbox.bytes_waiting < UNSENT_FILE_BYTES_MAX + 20 * 4 * MIB
            for number in range(50):
                assert (number, content) == await client.receive()

    async def test_pieces_are_bounded_however_small(self, tmp_path: Path) -> None:
        file = file_of(tmp_path, bytes(range(256)) * 4096)
        answers: list[list[Piece]] = [[FileRange(file, at, 1), FileRange(file, 0, 1000)] * 100 for at in range(256)]
        async with ServedListener(lambda turn: Pieces(answers)) as rig:
            blocked = await rig.connect(receive_bytes=1000)
            fill: list[Piece] = [FileRange(file, 0, 1 << 20)] * 30
            answers[0] = fill
            await blocked.send(b"".join(request(number) for number in range(256)))
            await rig.settle()
            assert len(rig.only_connection._outbox) < UNSENT_PIECES_MAX + 20 * 201
            for number in range(256):
                assert number == (await blocked.receive())[0]


class TestMemory:
    async def test_a_thousand_half_sent_requests_hold_little(self) -> None:
        async with ServedListener(lambda turn: Echo()) as rig:
            await rig.settle()
            before = resident_bytes()
            # Plain sockets, so that what they cost on this side is the kernel's.
            clients = [socket.create_connection((HOST, rig.port)) for _ in range(1000)]
            for client in clients:
                client.sendall(request(2, b"x" * 1000)[:-1])
            await rig.settle()
            while len(rig.listener.connections) < 1000:
                await rig.settle()
            assert resident_bytes() - before < 8 * MIB
            for client in clients:
                client.sendall(b"x")
            await rig.settle()
            for client in clients:
                client.setblocking(False)
                assert response(2, b"x" * 1000) == client.recv(5000)
                client.close()

    async def test_large_requests_wait_for_each_other(self) -> None:
        """Each is larger than half of what may be lent, so that they must come one after the other."""
        limits = ListenerLimits(queued_bytes_max=3 * MIB)
        async with ServedListener(EchoAtTurnEnd, limits=limits) as rig:
            clients = [await rig.connect(receive_bytes=4 * MIB) for _ in range(8)]
            buffers = rig.listener._buffers
            highest = 0

            async def exchange(at: int, client: Client) -> None:
                nonlocal highest
                for number in range(4):
                    body = bytes([at]) * (2 * MIB - 100 - number)
                    await client.send(request(number, body))
                    assert (number, body) == await client.receive()
                    highest = max(highest, buffers.lent_bytes)

            await asyncio.gather(*(exchange(at, client) for at, client in enumerate(clients)))
            assert highest <= 4 * MIB
            assert 0 == buffers.lent_bytes

    async def test_one_that_waits_for_memory_waits_once(self) -> None:
        """Its earlier requests are answered meanwhile; that is no reason to ask for memory again."""
        parked = Parked()
        async with ServedListener(lambda turn: parked, limits=ListenerLimits(queued_bytes_max=2 * MIB)) as rig:
            buffers = rig.listener._buffers
            first, second = await rig.connect(), await rig.connect()
            large = request(100, b"x" * MIB)
            await first.send(large[:500_000])
            await rig.settle()
            await second.send(b"".join(request(number) for number in range(5)) + large[:100_000])
            await parked.wait_served(5)
            await rig.settle()
            assert (MIB // 2, 1) == (buffers.lent_bytes, buffers.waiting)
            for number in range(5):
                parked.complete(number)
                await rig.settle()
                assert 1 == buffers.waiting
            await first.send(large[500_000:])
            await parked.wait_served(6)
            await second.send(large[100_000:])
            await parked.wait_served(7)
            assert 0 == buffers.waiting

    async def test_those_who_all_wait_for_more_do_not_wait_for_ever(self) -> None:
        """All hold a part of a request larger than what they have, and together all that may be lent."""
        limits = ListenerLimits(queued_bytes_max=4 * MIB)
        async with ServedListener(EchoAtTurnEnd, limits=limits) as rig:
            clients = [await rig.connect(receive_bytes=4 * MIB) for _ in range(4)]
            for client in clients:
                # A stream of large requests teaches the connection to read far ahead.
                await client.send(request(0, b"a" * 900_000))
                await client.receive()
            frames = [request(1, bytes([at]) * (3 * MIB)) for at in range(4)]
            for client, frame in zip(clients, frames, strict=True):
                await client.send(frame[: MIB // 2])
            await rig.settle()
            for client, frame in zip(clients, frames, strict=True):
                client.writer.write(frame[MIB // 2 :])
            for at, client in enumerate(clients):
                assert (1, bytes([at]) * (3 * MIB)) == await client.receive()
            assert 0 == rig.listener._buffers.lent_bytes

    async def test_a_request_larger_than_the_bound_comes_through_alone(self) -> None:
        async with ServedListener(EchoAtTurnEnd, limits=ListenerLimits(queued_bytes_max=2 * SMALL_BYTES)) as rig:
            client = await rig.connect(receive_bytes=4 * MIB)
            for number in range(3):
                assert (number, b"q" * MIB) == await client.ask(number, b"q" * MIB)
