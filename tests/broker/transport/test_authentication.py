"""Logins of real sockets: what may be sent before a login, its bounds in size, number and time, failed logins that are
delayed, and sessions that expire."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from struct import pack, unpack
from types import MappingProxyType
from typing import Any, Self

import pytest

from ottla.env.ports import Clock
from ottla.env.real_clock import RealClock
from ottla.env.real_network import RealNetwork
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import MisuseError
from ottla.protocol.apis import ApiKey
from ottla.protocol.scan import Request
from ottla.security.connection_context import ClientSoftware
from ottla.security.principals import Principal
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import BrokerMechanism, Identity, Step
from ottla.security.sasl.plain import PlainLogin
from ottla.security.sasl.session import LoginRules
from ottla.security.security_protocol import SecurityProtocol
from ottla.sim.clock import SimClock
from ottla.transport import authentication
from ottla.transport.authentication import ListenerLogin, Logins
from ottla.transport.connection import Slot
from ottla.transport.listeners import Listener, ListenerLimits, Listeners
from ottla.transport.turn import Turn
from tests.unit.transport.rig import HOST, Client, request, response
from tests.waiting import until
from tests.wire.exchange import read_response, request_frame

PLAIN = b"\0alice\0secret"


def versions(version: int, number: int, body: memoryview, software: ClientSoftware) -> bytes:
    """An ApiVersions response with nothing but its code."""
    software.name = "known"
    code = ErrorCode.NONE if version <= 4 else ErrorCode.UNSUPPORTED_VERSION
    return pack(">iih", 6, number, code)


class Expiring:
    """A mechanism for tokens such as `alice 1000`: the user, and for how many milliseconds."""

    def step(self, message: bytes, now_ms: int) -> Step:
        name, _, lifetime_ms = message.decode().partition(" ")
        if name == "wrong":
            raise AuthenticationError("it is wrong")
        return Step(b"welcome", Identity(Principal("User", name), expires_ms=now_ms + int(lifetime_ms)))


class Server:
    """A listener with SASL whose requests are answered with the name of the principal."""

    def __init__(self, limits: ListenerLimits | None = None, *, clock: Clock | None = None, **login: Any) -> None:
        mechanisms: dict[str, Callable[[], BrokerMechanism]] = {
            "PLAIN": lambda: PlainLogin({"alice": "secret"}),
            "EXPIRING": Expiring,
        }
        rules = LoginRules(mechanisms=mechanisms, reauthentication_ms_max=MappingProxyType({}))
        self.login = ListenerLogin(**{"rules": rules, "answer_api_versions": versions, "failure_delay_ms": 0, **login})
        self._limits = limits or ListenerLimits()
        self._clock = clock or RealClock()
        self.served: list[int] = []
        self.software = ""
        """Of the client whose request was served last."""
        self.clients: list[Client] = []

    def serve(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
        self.served.append(request.api_key)
        self.software = slot.client.software.name
        slot.complete((response(request.correlation_id, str(slot.client.principal).encode()),))

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection(HOST, self.port))
        self.clients.append(client)
        return client

    @property
    def failed(self) -> int:
        return sum(self.listeners.logins.counts.failed.values())

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        self.listeners = Listeners(RealNetwork(), self._clock, Turn(), self.serve, self._limits)
        listener = Listener("IN", SecurityProtocol.SASL_PLAINTEXT, login=self.login)
        self.port = await self.listeners.open(HOST, 0, listener)
        try:
            async with asyncio.timeout(60):
                yield self
        finally:
            for client in self.clients:
                await client.close()
            await self.listeners.close(0.0)


async def ask(client: Client, api_key: ApiKey, version: int, **values: Any) -> Any:
    await client.send(request_frame(api_key, version, values, correlation_id=7))
    (size,) = unpack(">i", await client.reader.readexactly(4))
    return read_response(api_key, version, await client.reader.readexactly(size))[1]


async def handshake(client: Client, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return await ask(client, ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)


async def authenticate(client: Client, message: bytes, version: int = 2) -> Any:
    return await ask(client, ApiKey.SASL_AUTHENTICATE, version, auth_bytes=message)


async def log_in(client: Client, message: bytes = PLAIN, mechanism: str = "PLAIN") -> Any:
    assert ErrorCode.NONE == (await handshake(client, mechanism)).error_code
    return await authenticate(client, message)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_login(version: int) -> None:
    async with Server().serving() as server:
        client = await server.connect()
        found = await handshake(client)
        assert (ErrorCode.NONE, ("PLAIN", "EXPIRING")) == (found.error_code, found.mechanisms)
        answer = await authenticate(client, PLAIN, version)
        assert (ErrorCode.NONE, None, b"") == (answer.error_code, answer.error_message, answer.auth_bytes)
        assert (1, b"User:alice") == await client.ask(1)
        assert {("IN", "PLAIN"): 1} == server.listeners.logins.counts.succeeded


async def test_a_login_with_raw_tokens() -> None:
    """After SaslHandshake v0 the mechanism's messages have a length and no header."""
    async with Server().serving() as server:
        client = await server.connect()
        assert ErrorCode.NONE == (await handshake(client, version=0)).error_code
        await client.send(pack(">i", len(PLAIN)) + PLAIN)
        assert b"\0\0\0\0" == await client.reader.readexactly(4)
        assert (1, b"User:alice") == await client.ask(1)


async def test_a_failed_login_with_raw_tokens_closes_without_an_answer() -> None:
    async with Server().serving() as server:
        client = await server.connect()
        await handshake(client, version=0)
        await client.send(pack(">i", 5) + b"wrong")
        assert b"" == await client.rest()
        assert 1 == server.failed


async def test_a_tls_client_is_disconnected_without_a_reset() -> None:
    """So it can tell that the listener does not use TLS: Node.js reports a reset as such."""
    hello = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="broker").do_handshake()
    async with Server().serving() as server:
        client = await server.connect()
        await client.send(hello.read())
        assert b"" == await client.reader.read(-1)


async def test_versions_are_answered_before_a_login_but_only_once() -> None:
    async with Server().serving() as server:
        client = await server.connect()
        await client.send(request_frame(ApiKey.API_VERSIONS, 0, {}, correlation_id=1))
        assert (1, pack(">h", 0)) == await client.receive()
        await log_in(client)
        await client.ask(1)
        assert "known" == server.software
        again = await server.connect()
        for _ in range(2):
            await again.send(request_frame(ApiKey.API_VERSIONS, 0, {}, correlation_id=1))
        assert (1, pack(">h", 0)) == await again.receive()
        assert b"" == await again.rest()


async def test_an_unknown_version_of_api_versions_may_be_followed_by_another() -> None:
    async with Server().serving() as server:
        client = await server.connect()
        await client.send(pack(">ihhih", 10, ApiKey.API_VERSIONS, 99, 1, -1))
        assert (1, pack(">h", 35)) == await client.receive()
        await client.send(request_frame(ApiKey.API_VERSIONS, 0, {}, correlation_id=2))
        assert (2, pack(">h", 0)) == await client.receive()


@pytest.mark.parametrize("api_key", [key for key in range(-1, 95) if key not in (17, 18)])
async def test_every_other_request_before_a_login_closes_the_connection(api_key: int) -> None:
    async with Server().serving() as server:
        client = await server.connect()
        await client.send(pack(">ihhih", 10, api_key, 0, 1, -1))
        await client.rest()
        assert [] == server.served
        assert {} == server.listeners.connections


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.CREATE_TOPICS])
async def test_array_counts_before_a_login_are_not_read(api_key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request with an array of two billion elements is refused by its API, before anything in it is looked at."""

    def scan(*_: object) -> None:
        raise AssertionError("the request was read")

    monkeypatch.setattr(authentication, "scan_requests", scan)
    async with Server().serving() as server:
        client = await server.connect()
        body = b"\x7f\xff\xff\xff" * 100
        await client.send(pack(">ihhih", 10 + len(body), api_key, 4, 1, -1) + body)
        assert b"" == await client.rest()


async def test_a_count_bomb_in_the_requests_of_a_login_closes_the_connection() -> None:
    """Tagged fields, and a mechanism's name, of two billion bytes."""
    async with Server().serving() as server:
        for content in (
            pack(">hhih", ApiKey.API_VERSIONS, 3, 1, -1) + b"\xff\xff\xff\xff\x07" * 3,
            pack(">hhih", ApiKey.SASL_HANDSHAKE, 1, 1, -1) + b"\x7f\xff",
            pack(">hhih", ApiKey.SASL_AUTHENTICATE, 0, 1, -1) + b"\x7f\xff\xff\xff",
        ):
            client = await server.connect()
            await client.send(pack(">i", len(content)) + content)
            await client.rest()
        assert [] == server.served


@pytest.mark.parametrize("size", [-1, 0, 1001, 2**31 - 1])
async def test_frames_before_a_login_are_bounded(size: int) -> None:
    async with Server(frame_bytes_max=1000).serving() as server:
        client = await server.connect()
        await client.send(pack(">i", size))
        assert b"" == await client.rest()


async def test_after_a_login_larger_requests_are_served() -> None:
    async with Server(frame_bytes_max=1000).serving() as server:
        client = await server.connect()
        await log_in(client)
        assert (1, b"User:alice") == await client.ask(1, b"x" * 10_000)


async def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled() -> None:
    async with Server().serving() as server:
        client = await server.connect()
        found = await handshake(client, "GSSAPI")
        assert (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ("PLAIN", "EXPIRING")) == (found.error_code, found.mechanisms)
        assert b"" == await client.rest()


async def test_another_request_amid_a_mechanism_is_an_illegal_state() -> None:
    async with Server().serving() as server:
        client = await server.connect()
        await handshake(client)
        assert ErrorCode.ILLEGAL_SASL_STATE == (await handshake(client)).error_code
        assert b"" == await client.rest()
        other = await server.connect()
        assert ErrorCode.ILLEGAL_SASL_STATE == (await authenticate(other, PLAIN)).error_code
        assert b"" == await other.rest()


async def test_a_failed_login_is_delayed_counted_and_logged_without_the_secret(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with Server(failure_delay_ms=200).serving() as server:
        client = await server.connect()
        await handshake(client)
        began = asyncio.get_running_loop().time()
        answer = await authenticate(client, b"\0alice\0hunter2")
        assert asyncio.get_running_loop().time() - began >= 0.2
        assert ErrorCode.SASL_AUTHENTICATION_FAILED == answer.error_code
        assert "Authentication failed: Invalid username or password" == answer.error_message
        assert b"" == await client.rest()
        assert {("IN", "PLAIN"): 1} == server.listeners.logins.counts.failed
        assert [] == server.served
    (line,) = (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    assert "127.0.0.1" in line
    assert "PLAIN" in line
    assert "hunter2" not in caplog.text


async def test_requests_sent_before_the_login_is_complete_are_not_served_as_anonymous() -> None:
    """They wait in the socket, and are served as the user that logs in."""
    async with Server().serving() as server:
        client = await server.connect()
        await client.send(
            request_frame(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=1)
            + request_frame(ApiKey.SASL_AUTHENTICATE, 0, {"auth_bytes": PLAIN}, correlation_id=2)
            + request(3)
        )
        numbers = [await client.receive() for _ in range(3)]
        assert (3, b"User:alice") == numbers[2]


async def test_requests_behind_a_failed_login_are_not_served() -> None:
    async with Server().serving() as server:
        client = await server.connect()
        await client.send(
            request_frame(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=1)
            + request_frame(ApiKey.SASL_AUTHENTICATE, 0, {"auth_bytes": b"\0alice\0wrong"}, correlation_id=2)
            + request(3)
        )
        await client.rest()
        assert [] == server.served


async def test_a_login_must_be_complete_in_time() -> None:
    async with Server().serving() as server:
        server.listeners.logins = Logins(RealClock(), seconds=0.05)  # type: ignore[misc]
        client = await server.connect()
        await client.send(b"\0\0")
        assert b"" == await client.rest()
        assert 0 == len(server.listeners.logins)


async def test_logins_under_way_are_bounded() -> None:
    """The oldest one of the address with most of them makes room."""
    async with Server().serving() as server:
        server.listeners.logins = Logins(RealClock(), count_max=3)  # type: ignore[misc]
        clients = [await server.connect() for _ in range(4)]
        assert b"" == await clients[0].rest()
        for client in clients[1:]:
            await log_in(client)


async def test_memory_for_large_frames_is_bounded_and_given_back() -> None:
    async with Server().serving() as server:
        server.listeners.logins = Logins(RealClock(), large_frames_bytes_max=60_000)  # type: ignore[misc]
        first, second = await server.connect(), await server.connect()
        await first.send(pack(">i", 50_000) + b"x")
        await until(lambda: server.listeners.logins._large_bytes_left < 20_000)
        await second.send(pack(">i", 50_000))
        assert b"" == await second.rest()
        await first.close()
        await until(lambda: server.listeners.logins._large_bytes_left == 60_000)


async def test_connections_that_log_in_count_for_max_connections_per_ip() -> None:
    async with Server(ListenerLimits(connections_per_ip_max=1)).serving() as server:
        first = await server.connect()
        await until(lambda: len(server.listeners.logins) == 1)
        assert b"" == await (await server.connect()).rest()
        await first.close()
        await until(lambda: len(server.listeners.logins) == 0)
        await log_in(await server.connect())


async def test_a_listener_with_sasl_cannot_be_opened_without_a_login() -> None:
    listeners = Listeners(RealNetwork(), RealClock(), Turn(), lambda *_: None, ListenerLimits())
    with pytest.raises(MisuseError):
        await listeners.open(HOST, 0, Listener("IN", SecurityProtocol.SASL_PLAINTEXT))


class TestSessions:
    """Sessions whose credential expires, by a clock that the tests move: a session must not end because the machine
    stalls."""

    async def test_the_lifetime_is_told_and_an_expired_session_ends(self) -> None:
        clock = SimClock()
        async with Server(clock=clock).serving() as server:
            client = await server.connect()
            answer = await log_in(client, b"alice 100", "EXPIRING")
            assert 100 == answer.session_lifetime.total_seconds() * 1000
            assert (1, b"User:alice") == await client.ask(1)
            clock.advance(0.09)
            assert (2, b"User:alice") == await client.ask(2)
            clock.advance(0.02)
            await client.send(request(3))
            assert b"" == await client.rest()

    async def test_what_waits_when_a_session_ends_is_answered_then(self) -> None:
        """A fetch may wait for weeks: with one that was sent in time, a client would go on to receive."""

        class Patient(Server):
            def serve(self, request: Request, buffer: bytearray, slot: Slot, /) -> None:
                slot.on_abandoned = lambda: slot.complete((response(request.correlation_id, b"nothing yet"),))

        clock = SimClock()
        async with Patient(ListenerLimits(stall_seconds=0.15), clock=clock).serving() as server:
            sweeping = asyncio.create_task(server.listeners.close_stalled_forever())
            expiring, lasting = await server.connect(), await server.connect()
            await log_in(expiring, b"alice 100", "EXPIRING")
            await log_in(lasting, b"alice 60000", "EXPIRING")
            await lasting.send(request(1))
            await expiring.send(request(2))
            await until(lambda: [1, 1] == [len(each._slots) for each in server.listeners.connections])
            clock.advance(0.15)
            assert (2, b"nothing yet") == await expiring.receive()
            assert {1, 0} == {len(each._slots) for each in server.listeners.connections}
            sweeping.cancel()

    async def test_a_client_reauthenticates_while_requests_are_in_flight(self) -> None:
        clock = SimClock()
        async with Server(clock=clock).serving() as server:
            client = await server.connect()
            await log_in(client, b"alice 150", "EXPIRING")
            assert (1, b"User:alice") == await client.ask(1)
            answer = await log_in(client, b"alice 60000", "EXPIRING")
            assert 60 == answer.session_lifetime.total_seconds()
            clock.advance(0.2)  # The first session would have expired.
            assert (2, b"User:alice") == await client.ask(2)
            assert {("IN", "EXPIRING"): 2} == server.listeners.logins.counts.succeeded

    async def test_another_principal_is_refused(self) -> None:
        async with Server().serving() as server:
            client = await server.connect()
            await log_in(client, b"alice 60000", "EXPIRING")
            answer = await log_in(client, b"bob 60000", "EXPIRING")
            assert ErrorCode.SASL_AUTHENTICATION_FAILED == answer.error_code
            assert b"" == await client.rest()

    async def test_another_mechanism_is_refused(self) -> None:
        async with Server().serving() as server:
            client = await server.connect()
            await log_in(client, b"alice 60000", "EXPIRING")
            assert ErrorCode.SASL_AUTHENTICATION_FAILED == (await handshake(client, "PLAIN")).error_code
            assert b"" == await client.rest()

    async def test_a_failed_reauthentication_ends_the_connection(self) -> None:
        async with Server().serving() as server:
            client = await server.connect()
            await log_in(client, b"alice 60000", "EXPIRING")
            answer = await log_in(client, b"wrong 1", "EXPIRING")
            assert ErrorCode.SASL_AUTHENTICATION_FAILED == answer.error_code
            assert b"" == await client.rest()
            assert 1 == server.failed

    async def test_only_the_login_is_served_meanwhile(self) -> None:
        async with Server().serving() as server:
            client = await server.connect()
            await log_in(client, b"alice 60000", "EXPIRING")
            await handshake(client, "EXPIRING")
            await client.send(request(5))
            assert b"" == await client.rest()
            assert [] == server.served

    async def test_not_more_often_than_once_a_second(self) -> None:
        clock = SimClock()
        async with Server(clock=clock).serving() as server:
            client = await server.connect()
            await log_in(client, b"alice 60000", "EXPIRING")
            await log_in(client, b"alice 60000", "EXPIRING")
            clock.advance(0.9)
            assert ErrorCode.ILLEGAL_SASL_STATE == (await handshake(client, "EXPIRING")).error_code
            assert (1, b"User:alice") == await client.ask(1)
            clock.advance(0.1)
            await log_in(client, b"alice 60000", "EXPIRING")
