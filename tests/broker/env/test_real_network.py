"""The real network over loopback: gathered sends, files into sockets past a full one, and the errors people meet."""

import asyncio
import errno
import hashlib
import os
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.env import real_network
from ottla.env.ports import File, Listener, Network, Socket, UnresolvedHostError
from ottla.env.real_disk import RealDisk
from ottla.env.real_network import IOV_MAX, RealNetwork, RealSocket
from ottla.env.system_calls import sendfile_by_copy
from ottla.model.buffer import Buffer
from ottla.sim.disk import SimDisk
from tests.waiting import settle

pytestmark = pytest.mark.both_loops

HOST = "127.0.0.1"
TRIES = 5


async def until(register: Callable[[Callable[[], None] | None], None]) -> None:
    """Waits once for readable or writable."""
    happened = asyncio.Event()
    register(happened.set)
    try:
        await happened.wait()
    finally:
        register(None)


async def receive(connection: Socket, size: int, *, step: int = 1 << 16) -> bytes:
    """Exactly that many bytes, or what came before the end, at most `step` per turn."""
    buffer = memoryview(bytearray(step))
    received = bytearray()
    while len(received) < size:
        try:
            got = connection.recv_into(buffer[: size - len(received)])
        except BlockingIOError:
            await until(connection.on_readable)
            continue
        if got == 0:
            break
        received += buffer[:got]
        await asyncio.sleep(0)
    return bytes(received)


async def pair(network: Network) -> tuple[Socket, Socket, Listener]:
    accepted: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()
    listener = await network.listen(HOST, 0, accepted.set_result)
    client = await network.connect(HOST, listener.port)
    return client, await accepted, listener


@asynccontextmanager
async def connected_pair() -> AsyncIterator[tuple[Socket, Socket]]:
    client, server, listener = await pair(RealNetwork())
    try:
        yield client, server
    finally:
        for each in (client, server, listener):
            each.close()
            each.close()


class TestConnections:
    async def test_bytes_go_both_ways(self) -> None:
        async with connected_pair() as (client, server):
            with pytest.raises(BlockingIOError):
                server.recv_into(memoryview(bytearray(10)))
            assert 11 == client.send([b"hello ", bytearray(b"wor"), memoryview(b"ld")])
            assert b"hello world" == await receive(server, 11)
            assert 3 == server.send([b"yes"])
            assert b"yes" == await receive(client, 3)
            client.close()
            assert b"" == await receive(server, 1)

    async def test_a_peer_that_is_not_read_gets_what_was_sent_before_the_end(self) -> None:
        async with connected_pair() as (client, server):
            client.send([bytes(100_000)])
            await until(server.on_readable)
            server.send([b"no"])
            server.close()
            assert b"no" == await receive(client, 2)
            assert b"" == await receive(client, 1)

    async def test_nobody_is_called_before_what_is_expected_is_there(self) -> None:
        async with connected_pair() as (client, server):
            other_client, other_server, listener = await pair(RealNetwork())
            calls: list[None] = []
            client.on_readable(lambda: calls.append(None))
            client.expect(1000)
            server.send([bytes(500)])
            # What is sent later on another connection is there, so this is too.
            other_server.send([b"x"])
            await until(other_client.on_readable)
            await asyncio.sleep(0)
            assert [] == calls
            client.on_readable(None)
            server.send([bytes(500)])
            await until(client.on_readable)
            assert 1000 == client.recv_into(memoryview(bytearray(2000)))
            server.send([bytes(10)])
            server.close()
            await until(client.on_readable)
            assert 10 == client.recv_into(memoryview(bytearray(2000)))
            for each in (other_client, other_server, listener):
                each.close()

    async def test_peers_have_names_and_no_delay(self) -> None:
        async with connected_pair() as (client, server):
            assert isinstance(client, RealSocket)
            assert isinstance(server, RealSocket)
            host, port = client._socket.getsockname()
            assert f"{host}:{port}" == server.peer()
            for each in (client, server):
                assert 0 != each._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                assert 0 != each._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert 10 == each._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
                assert not each._socket.getblocking()

    async def test_more_buffers_than_one_call_takes(self) -> None:
        async with connected_pair() as (client, server):
            buffers: list[Buffer] = [b"%04d" % number for number in range(IOV_MAX + 10)]
            assert IOV_MAX * 4 == client.send(buffers)
            assert 40 == client.send(buffers[IOV_MAX:])
            assert b"".join(buffers) == await receive(server, len(buffers) * 4)

    async def test_a_full_socket_takes_nothing_and_calls_back_when_there_is_room(self) -> None:
        async with connected_pair() as (client, server):
            block = os.urandom(1 << 16)
            sent = 0
            while (taken := client.send([block[sent % len(block) :]])) > 0:
                sent += taken
            writable = asyncio.create_task(until(client.on_writable))
            await asyncio.sleep(0)
            assert not writable.done()
            received = await receive(server, sent)
            await writable
            assert block * (sent // len(block)) + block[: sent % len(block)] == received
            assert 3 == client.send([b"end"])

    async def test_a_peer_that_resets_is_an_error(self) -> None:
        async with connected_pair() as (client, server):
            descriptor = server.descriptor()
            assert descriptor is not None
            with socket.socket(fileno=os.dup(descriptor)) as same:
                same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            server.close()
            await until(client.on_readable)
            with pytest.raises(ConnectionResetError):
                client.recv_into(memoryview(bytearray(10)))


class TestFiles:
    @pytest.fixture(autouse=True, params=["Linux's calls", "portable calls"])
    def calls(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """Files are sent by the kernel, or copied where the system has no such call."""
        if request.param == "portable calls":
            monkeypatch.setattr(real_network, "sendfile", sendfile_by_copy)

    async def test_a_large_file_to_a_slow_reader(self, tmp_path: Path) -> None:
        content = os.urandom(1 << 20) * 32
        (tmp_path / "log").write_bytes(content)
        file = RealDisk().open(str(tmp_path / "log"), writable=False)
        full = 0

        async def send(client: Socket, start: int, end: int) -> None:
            nonlocal full
            assert 6 == client.send([b"header"], more=True)
            while start < end:
                sent = client.send_file(file, start, end - start)
                start += sent
                if sent == 0:
                    full += 1
                    await until(client.on_writable)

        async with connected_pair() as (client, server):
            sending = asyncio.create_task(send(client, 1000, len(content) - 1000))
            received = await receive(server, 6 + len(content) - 2000, step=20_000)
            await sending
            expected = hashlib.sha256(b"header" + content[1000:-1000])
            assert expected.hexdigest() == hashlib.sha256(received).hexdigest()
            assert full > 0, "the socket was never full, so the test proves nothing"

    async def test_a_header_waits_for_its_file(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_bytes(b"body")
        file = RealDisk().open(str(tmp_path / "log"))
        async with connected_pair() as (client, server):
            is_held = False
            for _ in range(TRIES):
                assert 6 == client.send([b"header"], more=True)
                try:
                    assert 6 == server.recv_into(memoryview(bytearray(10)))
                    # The kernel does not hold it for ever, and the machine may have paused here.
                except BlockingIOError:
                    is_held = True
                    break
            assert is_held
            assert 4 == client.send_file(file, 0, 4)
            assert b"headerbody" == await receive(server, 10)
            assert 0 == client.send_file(file, 0, 0)

    async def test_a_removed_file_is_sent_to_its_end(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_bytes(b"body")
        file: File = RealDisk().open(str(tmp_path / "log"))
        RealDisk().remove(str(tmp_path / "log"))
        async with connected_pair() as (client, server):
            assert 4 == client.send_file(file, 0, 4)
            assert b"body" == await receive(server, 4)

    async def test_a_file_shorter_than_promised_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_bytes(b"body")
        file = RealDisk().open(str(tmp_path / "log"))
        async with connected_pair() as (client, _server):
            assert 4 == client.send_file(file, 0, 100)
            with pytest.raises(OSError, match="ends before position 4, where 96 bytes") as caught:
                client.send_file(file, 4, 96)
            assert str(tmp_path / "log") == caught.value.filename

    async def test_a_simulated_file_is_refused(self) -> None:
        file = SimDisk().open("/a", create=True)
        async with connected_pair() as (client, _server):
            with pytest.raises(OSError, match="no descriptor"):
                client.send_file(file, 0, 4)


class TestErrors:
    async def test_nobody_listens(self) -> None:
        with socket.socket() as unused:
            unused.bind((HOST, 0))
            port = unused.getsockname()[1]
            with pytest.raises(ConnectionRefusedError, match=f"cannot connect to {HOST}:{port}: "):
                await RealNetwork().connect(HOST, port)

    async def test_an_unknown_name(self) -> None:
        with pytest.raises(UnresolvedHostError, match=r"'no\.such\.host\.invalid' cannot be resolved"):
            await RealNetwork().connect("no.such.host.invalid", 9092)

    async def test_a_port_in_use(self) -> None:
        listener = await RealNetwork().listen(HOST, 0, lambda _: None)
        with pytest.raises(OSError, match=f"cannot listen on {HOST}:{listener.port}: ") as caught:
            await RealNetwork().listen(HOST, listener.port, lambda _: None)
        assert errno.EADDRINUSE == caught.value.errno
        listener.close()
        (await RealNetwork().listen(HOST, listener.port, lambda _: None)).close()

    async def test_an_address_of_another_machine(self) -> None:
        with pytest.raises(OSError, match=r"cannot listen on 192\.0\.2\.1:0") as caught:
            await RealNetwork().listen("192.0.2.1", 0, lambda _: None)
        assert errno.EADDRNOTAVAIL == caught.value.errno

    async def test_a_cancelled_connect_leaves_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: asyncio.Queue[socket.socket] = asyncio.Queue()

        class RecordedSocket(socket.socket):
            def __init__(self, family: int, kind: int, protocol: int) -> None:
                super().__init__(family, kind, protocol)
                made.put_nowait(self)

        with socket.socket() as full:
            # A backlog that is never emptied keeps the later ones of these connections waiting.
            full.bind((HOST, 0))
            full.listen(0)
            monkeypatch.setattr(real_network, "socket", SimpleNamespace(**{**vars(socket), "socket": RecordedSocket}))
            connecting = [asyncio.create_task(RealNetwork().connect(*full.getsockname())) for _ in range(6)]
            sockets = [await made.get() for _ in connecting]
            for task in connecting:
                task.cancel()
            ended = await asyncio.gather(*connecting, return_exceptions=True)
            for each in ended:
                if isinstance(each, RealSocket):
                    each.close()
            assert any(isinstance(each, asyncio.CancelledError) for each in ended)
            assert [-1] * 6 == [each.fileno() for each in sockets]


class TestListener:
    async def test_localhost_and_everywhere(self) -> None:
        for host in ("localhost", ""):
            accepted: asyncio.Queue[Socket] = asyncio.Queue()
            listener = await RealNetwork().listen(host, 0, accepted.put_nowait)
            assert {listener.port} == {each.getsockname()[1] for each in listener._sockets}
            for name in ("localhost", HOST):
                client = await RealNetwork().connect(name, listener.port)
                (await accepted.get()).close()
                client.close()
            listener.close()

    async def test_a_failing_handler_loses_its_connection_only(self) -> None:
        reports: list[str] = []
        accepted: list[Socket] = []
        arrived = asyncio.Event()

        def on_accept(connection: Socket) -> None:
            accepted.append(connection)
            if len(accepted) == 1:
                raise RuntimeError("no thanks")
            arrived.set()

        asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["message"]))
        listener = await RealNetwork().listen(HOST, 0, on_accept)
        first = await RealNetwork().connect(HOST, listener.port)
        assert b"" == await receive(first, 1)
        second = await RealNetwork().connect(HOST, listener.port)
        await arrived.wait()
        assert 1 == len(reports)
        assert "no thanks" in reports[0]
        for each in (first, second, accepted[1], listener):
            each.close()

    async def test_out_of_descriptors_pauses_and_recovers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(real_network, "ACCEPT_PAUSE_SECONDS", 0.05)
        loop = asyncio.get_running_loop()
        reports: list[str] = []
        refused = asyncio.Event()
        accepted: asyncio.Future[Socket] = loop.create_future()

        def on_report(_: object, context: dict[str, str]) -> None:
            reports.append(context["message"])
            refused.set()

        loop.set_exception_handler(on_report)
        listener = await RealNetwork().listen(HOST, 0, accepted.set_result)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as client:
            client.setblocking(False)
            try:
                # The next descriptor would be the lowest free one: forbid it, and all above.
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
                client.connect_ex((HOST, listener.port))
                await refused.wait()
                seen = len(reports)
                await settle()
                assert seen <= len(reports) <= seen + 1
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert "could not be accepted" in reports[0]
            (await accepted).close()
        listener.close()

    async def test_after_close_nothing_is_accepted(self) -> None:
        listener = await RealNetwork().listen(HOST, 0, lambda _: None)
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await RealNetwork().connect(HOST, listener.port)
