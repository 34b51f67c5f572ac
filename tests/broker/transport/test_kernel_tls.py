"""TLS on the descriptor: who encrypts, and what a client gets then. `test_tls.py` runs its exchanges on it as well.

On a kernel without TLS the last class is skipped; `make test-kernel-tls` runs it in a virtual machine that has it.
"""

import asyncio
import os
import resource
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from ottla.env.ports import Socket
from ottla.env.real_network import RealNetwork
from ottla.env.system_calls import has_kernel_tls
from ottla.transport.kernel_tls import ENABLE_KERNEL_TLS, KernelTlsSocket, accept_tls
from ottla.transport.listener_tls import ListenerTls, ListenerTlsSettings
from ottla.transport.tls import TlsSocket
from ottla.transport.tls_context import TlsSettings
from ottla.transport.tls_stream import RECORD_BYTES, RECORDS_AT_ONCE
from tests.unit.transport.certificates import Certificate
from tests.unit.transport.rig import HOST, file_of

pytestmark = pytest.mark.both_loops

MIB = 1024 * 1024


async def accepted_and_client(
    certificate: Certificate, client: ssl.SSLContext
) -> tuple[KernelTlsSocket, ssl.SSLSocket]:
    """The broker's side, and a client of Python's own after the handshake, which blocks."""
    context = certificate.broker_context()
    context.options |= ENABLE_KERNEL_TLS
    broker, connected = await shaken_hands(context, client)
    assert isinstance(broker, KernelTlsSocket)
    return broker, connected


async def shaken_hands(
    context: ssl.SSLContext, client: ssl.SSLContext
) -> tuple[TlsSocket | KernelTlsSocket, ssl.SSLSocket]:
    """The same on the descriptor or in memory, as the context says."""
    arrived: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()
    listener = await RealNetwork().listen(HOST, 0, arrived.set_result)

    def connect() -> ssl.SSLSocket:
        connected = socket.create_connection((HOST, listener.port), timeout=60)
        # An end without a close alert raises.
        return client.wrap_socket(connected, server_hostname="localhost", suppress_ragged_eofs=False)

    connecting = asyncio.ensure_future(asyncio.to_thread(connect))
    broker = accept_tls(await arrived, context)
    listener.close()
    done = asyncio.Event()

    def on_readable() -> None:
        if not done.is_set() and broker.shake_hands():
            done.set()

    broker.on_readable(on_readable)
    await done.wait()
    broker.on_readable(None)
    return broker, await connecting


async def writable(broker: KernelTlsSocket) -> None:
    """Returns once there is room to send."""
    room = asyncio.Event()
    broker.on_writable(room.set)
    await room.wait()
    broker.on_writable(None)


def read_whole(client: ssl.SSLSocket, size: int) -> bytes:
    """So many bytes, or fewer if the stream ends before."""
    received = bytearray()
    while len(received) < size and (piece := client.recv(1 << 16)):
        received += piece
    return bytes(received)


async def exchange(broker: KernelTlsSocket, client: ssl.SSLSocket, tmp_path: Path) -> None:
    """Bytes and ranges of a file, more than the socket takes at once, then an answer, then the end."""
    content = Random(1).randbytes(6 * MIB)
    file = file_of(tmp_path, content)
    parts = [content[:10], content[10:50_000], content[50_000 : 2 * MIB]]
    reading = asyncio.ensure_future(asyncio.to_thread(read_whole, client, len(content)))
    sent = 0
    while sent < 2 * MIB:
        rest, skipped = [], sent
        for part in parts:
            rest.append(part[skipped:])
            skipped = max(skipped - len(part), 0)
        sent += broker.send([part for part in rest if part], more=True)
        await writable(broker)
    while sent < len(content):
        sent += broker.send_file(file, sent, len(content) - sent)
        await writable(broker)
    assert content == await reading
    client.sendall(b"answer" * 10_000)
    received, buffer = bytearray(), memoryview(bytearray(1 << 16))
    while len(received) < 60_000:
        try:
            received += buffer[: broker.recv_into(buffer)]
        except BlockingIOError:
            await asyncio.sleep(0)
    assert b"answer" * 10_000 == received
    ending = asyncio.ensure_future(asyncio.to_thread(client.recv, 1))
    broker.close()
    # A close alert, not just the end of the stream, which Python would raise for.
    assert b"" == await ending
    client.close()


class TestWho:
    """Who encrypts the connections of a listener."""

    @pytest.mark.parametrize("permits", [True, False])
    @pytest.mark.parametrize("has", [True, False])
    def test_the_kernel_if_it_can_and_may(
        self, certificate: Certificate, monkeypatch: pytest.MonkeyPatch, permits: bool, has: bool
    ) -> None:
        monkeypatch.setattr("ottla.transport.tls_context.has_kernel_tls", lambda: has)
        store = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": certificate.key.read_text(),
            "ssl.keystore.certificate.chain": certificate.certificate.read_text(),
        }
        settings = TlsSettings.parse({**store, "ssl.kernel.tls.enable": permits})
        context = ListenerTls("SSL", ListenerTlsSettings(tls=settings)).context
        assert (permits and has) == bool(context.options & ENABLE_KERNEL_TLS)

    async def test_a_socket_without_a_descriptor_in_memory(self, certificate: Certificate) -> None:
        arrived: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()
        listener = await RealNetwork().listen(HOST, 0, arrived.set_result)
        plain = await RealNetwork().connect(HOST, listener.port)
        context = certificate.broker_context()
        context.options |= ENABLE_KERNEL_TLS
        without = TlsSocket(await arrived, certificate.broker_context(), server_side=True)
        assert isinstance(accept_tls(without, context), TlsSocket)
        plain.close()
        without.close()
        listener.close()

    async def test_a_socket_for_which_there_is_no_second_descriptor_in_memory(self, certificate: Certificate) -> None:
        arrived: asyncio.Future[Socket] = asyncio.get_running_loop().create_future()
        listener = await RealNetwork().listen(HOST, 0, arrived.set_result)
        plain = await RealNetwork().connect(HOST, listener.port)
        accepted = await arrived
        context = certificate.broker_context()
        context.options |= ENABLE_KERNEL_TLS
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            broker = accept_tls(accepted, context)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert isinstance(broker, TlsSocket)
        plain.close()
        broker.close()
        listener.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_bytes_and_files(certificate: Certificate, tmp_path: Path, version: ssl.TLSVersion) -> None:
    context = certificate.client_context()
    context.minimum_version = context.maximum_version = version
    broker, client = await accepted_and_client(certificate, context)
    await exchange(broker, client, tmp_path)


async def test_a_cipher_that_kernels_do_not_have(certificate: Certificate, tmp_path: Path) -> None:
    context = certificate.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    broker, client = await accepted_and_client(certificate, context)
    assert not broker.is_sent_by_kernel
    await exchange(broker, client, tmp_path)


async def test_a_record_begun_is_finished_by_the_next_send(certificate: Certificate) -> None:
    """A client that does not read: nothing counts as sent that the socket does not have."""
    context = certificate.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    broker, client = await accepted_and_client(certificate, context)
    body = Random(2).randbytes(20 * MIB)
    sent = 0
    while count := broker.send([memoryview(body)[sent:]]):
        sent += count
    assert 0 < sent < len(body)
    reading = asyncio.ensure_future(asyncio.to_thread(read_whole, client, len(body)))
    while sent < len(body):
        await writable(broker)
        # In small pieces, one of them the byte alone that was kept back.
        sent += broker.send([memoryview(body)[sent : sent + 1]])
        sent += broker.send([memoryview(body)[sent : sent + 100_000]])
    assert body == await reading
    broker.close()
    client.close()


async def test_what_counts_as_sent_arrives_even_if_the_connection_breaks_then(certificate: Certificate) -> None:
    context = certificate.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    broker, client = await accepted_and_client(certificate, context)
    sent, piece = 0, bytes(RECORD_BYTES)
    while broker.send([piece]) == len(piece):
        sent += len(piece)
    assert sent
    # Without a flush or a close alert, as if the process were killed.
    broker._tls.close()
    broker._socket.close()
    received = 0
    with suppress(ssl.SSLEOFError):
        while count := len(await asyncio.to_thread(client.recv, 1 << 16)):
            received += count
    assert received >= sent
    client.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_rest_of_a_record_is_told_although_the_kernel_has_nothing(
    certificate: Certificate, version: ssl.TLSVersion
) -> None:
    context = certificate.client_context()
    context.minimum_version = context.maximum_version = version
    broker, client = await accepted_and_client(certificate, context)
    received, small, done = bytearray(), memoryview(bytearray(1000)), asyncio.Event()

    def on_readable() -> None:
        with suppress(BlockingIOError):
            received.extend(small[: broker.recv_into(small)])
        if len(received) == RECORD_BYTES:
            done.set()

    body = Random(3).randbytes(RECORD_BYTES)
    client.sendall(body)
    broker.on_readable(on_readable)
    await done.wait()
    assert body == received
    broker.close()
    client.close()


@pytest.mark.parametrize("options", [0, ENABLE_KERNEL_TLS], ids=["memory", "descriptor"])
class TestOthersHaveTheirTurn:
    """A client that sends as fast as it is read from, or faster, does not keep the event loop from everything else."""

    @staticmethod
    async def filled(
        certificate: Certificate, options: int, record: bytes
    ) -> tuple[TlsSocket | KernelTlsSocket, ssl.SSLSocket, int]:
        """The broker's side, the client, and how many of these records wait in the sockets: as many as fit."""
        context = certificate.broker_context()
        context.options |= options
        broker, client = await shaken_hands(context, certificate.client_context())
        client.setblocking(False)
        count = 0
        with suppress(ssl.SSLWantWriteError):
            while count < 20_000:
                client.send(record)
                count += 1
        return broker, client, count

    # The buffer ends amid a record.
    @pytest.mark.parametrize("size", [10_000, RECORD_BYTES])
    async def test_between_two_buffers(self, certificate: Certificate, options: int, size: int) -> None:
        broker, client, count = await self.filled(certificate, options, bytes(size))
        buffer, received, rounds = memoryview(bytearray(65_000)), 0, [0]
        everything = asyncio.Event()

        def on_readable() -> None:
            nonlocal received
            with suppress(BlockingIOError):
                received += broker.recv_into(buffer)
                rounds[-1] += 1
            if received == count * size:
                everything.set()

        def on_round() -> None:
            if not everything.is_set():
                rounds.append(0)
                asyncio.get_running_loop().call_soon(on_round)

        on_round()
        broker.on_readable(on_readable)
        await everything.wait()
        assert sum(rounds) >= count * size // len(buffer) > 10
        # Because the kernel has more, and because of what is left of the last read.
        assert max(rounds) <= 2
        broker.close()
        client.close()

    async def test_amid_tiny_records(self, certificate: Certificate, options: int) -> None:
        broker, client, count = await self.filled(certificate, options, b"x")
        assert count > 2 * RECORDS_AT_ONCE
        buffer, received = memoryview(bytearray(MIB)), [0]
        everything = asyncio.Event()

        def on_readable() -> None:
            with suppress(BlockingIOError):
                received.append(broker.recv_into(buffer))
            if sum(received) == count:
                everything.set()

        broker.on_readable(on_readable)
        await everything.wait()
        assert RECORDS_AT_ONCE == max(received)
        broker.close()
        client.close()


@pytest.mark.skipif(not has_kernel_tls(), reason="this kernel has no TLS (CONFIG_TLS, module tls)")
class TestInTheKernel:
    @pytest.mark.parametrize(
        ("version", "cipher"),
        [
            (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
            (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384"),
            (ssl.TLSVersion.TLSv1_3, None),
        ],
    )
    async def test_the_kernel_encrypts(
        self, certificate: Certificate, tmp_path: Path, version: ssl.TLSVersion, cipher: str | None
    ) -> None:
        context = certificate.client_context()
        context.minimum_version = context.maximum_version = version
        if cipher is not None:
            context.set_ciphers(cipher)
        broker, client = await accepted_and_client(certificate, context)
        assert broker.is_sent_by_kernel
        await exchange(broker, client, tmp_path)
