"""Handshakes with a listener: who the client is, what is logged, and how much a silent or hostile client can hold."""

import asyncio
import logging
import socket
import ssl
import struct
from contextlib import suppress

import pytest
import trustme

from ottla.env.real_network import RealNetwork
from ottla.security.principal_mapping import PrincipalMapping
from ottla.security.principals import ANONYMOUS, Principal
from ottla.transport.listener_tls import ListenerTls, ListenerTlsSettings
from ottla.transport.listeners import ListenerLimits
from ottla.transport.tls import TlsSocket
from ottla.transport.tls_context import TlsSettings
from ottla.transport.tls_errors import words_for_client
from ottla.transport.tls_handshakes import Handshakes
from tests.unit.transport.rig import HOST, Echo, ServedListener, request
from tests.waiting import until

pytestmark = pytest.mark.both_loops

pytestmark = pytest.mark.usefixtures("tls_on")

AUTHORITY = trustme.CA(organization_name="Example")
BROKER = AUTHORITY.issue_cert("localhost", HOST, common_name="broker-0")
TRUST = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.cert_pem.bytes().decode()}


def listener_tls(rules: str = "DEFAULT", **configs: str) -> ListenerTls:
    store = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": BROKER.private_key_pem.bytes().decode(),
        "ssl.keystore.certificate.chain": "".join(each.bytes().decode() for each in BROKER.cert_chain_pems),
    }
    named = {name.replace("_", "."): value for name, value in configs.items()}
    settings = TlsSettings.parse({**store, **TRUST, **named})
    return ListenerTls("SSL", ListenerTlsSettings(tls=settings, mapping=PrincipalMapping.parse(rules)))


def trusting(certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def rig(tls: ListenerTls, client: ssl.SSLContext | None = None, limits: ListenerLimits | None = None) -> ServedListener:
    return ServedListener(lambda turn: Echo(), tls=tls, client_tls=client, limits=limits)


class TestPrincipals:
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    async def test_principal_is_known_before_the_first_request(self, version: ssl.TLSVersion) -> None:
        client = trusting(AUTHORITY.issue_cert("alice.example", common_name="alice"))
        client.maximum_version = version
        async with rig(listener_tls(ssl_client_auth="required"), client) as it:
            asker = await it.connect()
            await until(lambda: len(it.listener.connections) == 1)
            name = it.only_connection.context.principal.name
            assert name.startswith("CN=alice,OU=Testing cert")
            assert (1, b"") == await asker.ask(1)

    async def test_rules_map_the_name(self) -> None:
        client = trusting(AUTHORITY.issue_cert("x.example", common_name="Alice"))
        async with rig(listener_tls("RULE:^CN=(.*?),.*$/$1/L", ssl_client_auth="requested"), client) as it:
            await (await it.connect()).ask(1)
            assert Principal("User", "alice") == it.only_connection.context.principal

    async def test_requested_certificate_may_be_missing(self) -> None:
        async with rig(listener_tls(ssl_client_auth="requested"), trusting()) as it:
            await (await it.connect()).ask(1)
            assert ANONYMOUS == it.only_connection.context.principal

    async def test_certificate_is_ignored_if_not_asked_for(self) -> None:
        client = trusting(AUTHORITY.issue_cert("x.example", common_name="alice"))
        async with rig(listener_tls(), client) as it:
            await (await it.connect()).ask(1)
            assert ANONYMOUS == it.only_connection.context.principal


class TestRefusals:
    @pytest.mark.parametrize(
        ("client", "rules", "words"),
        [
            (trusting(), "DEFAULT", "the client has no certificate, and ssl.client.auth=required"),
            (trusting(trustme.CA().issue_cert("a.example")), "DEFAULT", "the client's certificate is not accepted"),
            (trusting(AUTHORITY.issue_cert("a.example")), "RULE:CN=x/x/", "no rule of ssl.principal.mapping.rules"),
        ],
    )
    async def test_clients_that_do_not_authenticate(
        self, caplog: pytest.LogCaptureFixture, client: ssl.SSLContext, rules: str, words: str
    ) -> None:
        with caplog.at_level(logging.WARNING):
            async with rig(listener_tls(rules, ssl_client_auth="required"), client) as it:
                try:
                    asker = await it.connect()
                    asker.writer.write(request(1))
                    assert b"" == await asker.reader.read()
                except (OSError, asyncio.IncompleteReadError):
                    pass  # As is the refusal of TLS 1.3 that comes after its handshake.
                await until(lambda: it.listener.failed_handshakes == 1)
                assert not it.listener.connections
                assert 0 == len(it.listener.handshakes)
        (line,) = [each.getMessage() for each in caplog.records]
        assert words in line
        assert "listener SSL" in line

    @pytest.mark.parametrize(
        "sent", [request(1), b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\xff" * 2000], ids=["kafka", "http", "nul", "ff"]
    )
    async def test_bytes_that_are_not_tls(self, caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
        with caplog.at_level(logging.WARNING):
            async with rig(listener_tls()) as it:
                for _ in range(3):
                    client = await it.connect()
                    await client.send(sent)
                    with suppress(ConnectionError):
                        await client.reader.read()
                await until(lambda: it.listener.failed_handshakes == 3)
        (line,) = [each.getMessage() for each in caplog.records]
        assert "the client sent bytes that are not TLS; set security.protocol=" in line

    async def test_client_that_does_not_trust_the_broker(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            async with rig(listener_tls()) as it:
                connected = await RealNetwork().connect(HOST, it.port)
                client = TlsSocket(connected, ssl.create_default_context(), server_side=False, host="localhost")
                failed: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()

                def on_readable() -> None:
                    try:
                        client.shake_hands()
                    except OSError as error:
                        failed.set_result(error)
                        client.close()

                client.on_readable(on_readable)
                error = await failed
                assert "the broker's certificate is not trusted" in words_for_client(error, "localhost")
                await until(lambda: it.listener.failed_handshakes == 1)
        assert "the client does not accept this broker's certificate (tlsv1 alert unknown ca)" in caplog.text

    async def test_client_that_leaves_without_a_word(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            async with rig(listener_tls(), ssl.create_default_context()) as it:
                with pytest.raises(ssl.SSLCertVerificationError):
                    await it.connect()
                await until(lambda: it.listener.failed_handshakes == 1)
        assert "perhaps the client does not trust this broker's certificate" in caplog.text

    async def test_client_that_disconnects_is_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            async with rig(listener_tls()) as it:
                client = await it.connect()
                client.writer.close()
                await until(lambda: it.listener.failed_handshakes == 1)
        assert not caplog.records

    @pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x00\xff"], ids=["silent", "begun"])
    async def test_client_that_resets_before_it_is_accepted_is_not_logged(
        self, caplog: pytest.LogCaptureFixture, sent: bytes
    ) -> None:
        """As health checks of load balancers do."""
        with caplog.at_level(logging.WARNING):
            async with rig(listener_tls(), trusting()) as it:
                # The event loop accepts none of them before the last one is gone.
                for _ in range(3):
                    with socket.create_connection((HOST, it.port)) as client:
                        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        client.send(sent)
                await until(lambda: it.listener.failed_handshakes == 3)
                assert (1, b"") == await (await it.connect()).ask(1)
        assert not caplog.records


class TestBounds:
    async def test_silent_handshakes_end(self) -> None:
        async with rig(listener_tls()) as it:
            it.listener.handshakes = Handshakes(seconds=0.05)  # type: ignore[misc]  # Shorter, for the test.
            silent, slow = await it.connect(), await it.connect()
            await slow.send(b"\x16\x03\x01")
            assert b"" == await silent.reader.read()
            assert b"" == await slow.reader.read()
            assert 2 == it.listener.failed_handshakes

    async def test_number_of_handshakes_is_bounded(self) -> None:
        async with rig(listener_tls(), trusting()) as it:
            it.listener.handshakes = Handshakes(count_max=3)  # type: ignore[misc]  # Fewer, for the test.
            silent = [await asyncio.open_connection(HOST, it.port) for _ in range(5)]
            # The oldest ones end, and a client that completes its handshake is served.
            assert (1, b"") == await (await it.connect()).ask(1)
            assert b"" == await silent[0][0].read()
            assert b"" == await silent[1][0].read()
            assert len(it.listener.handshakes) <= 3
            for _, writer in silent:
                writer.close()

    async def test_handshakes_count_as_connections(self) -> None:
        async with rig(listener_tls(), trusting(), ListenerLimits(connections_per_ip_max=2)) as it:
            silent = [await asyncio.open_connection(HOST, it.port) for _ in range(2)]
            await until(lambda: len(it.listener.handshakes) == 2)
            with pytest.raises(OSError):  # noqa: PT011  # Which one depends on the moment.
                await it.connect()
            assert 1 == it.listener.refused
            silent[0][1].close()
            await until(lambda: len(it.listener.handshakes) == 1)
            assert (1, b"") == await (await it.connect()).ask(1)
            silent[1][1].close()

    async def test_handshakes_end_with_the_listener(self) -> None:
        async with rig(listener_tls()) as it:
            client = await it.connect()
            await until(lambda: len(it.listener.handshakes) == 1)
            it.listener.drain()
            assert b"" == await client.reader.read()


async def test_tls_on_a_listener_without_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with ServedListener(lambda turn: Echo(), client_tls=trusting()) as it:
            with pytest.raises(OSError):  # noqa: PT011  # Which one depends on the moment.
                await it.connect()
            await until(lambda: not it.listener.connections)
    assert "the client uses TLS, but this listener does not" in caplog.text
