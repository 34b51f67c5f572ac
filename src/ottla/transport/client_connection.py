"""One connection to one broker: encrypted, logged in, versions negotiated, many requests in flight.

Covers the bytes between a client and a broker. Each request is answered or fails with a reason. Which broker to ask,
and whether to ask again, is `cluster.py`'s. A connection that breaks, stops responding or sends an invalid response is
closed, and every waiter gets an error that names the address.
"""

import asyncio
import math
import os
import re
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Self

from ottla.env.ports import Network, Socket, UnresolvedHostError
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, InvalidRequestError, MisuseError, OttlaError, RetriableError
from ottla.protocol.answer_errors import UnsupportedByBrokerError, answer_error
from ottla.protocol.apis import SERVED, ApiKey, Versions
from ottla.protocol.messages import read_response, write_request
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.client import ClientMechanism
from ottla.transport.addresses import Address
from ottla.transport.client_security import ClientSecurity, TlsError, encrypted
from ottla.transport.frame_buffer import FrameBuffer
from ottla.transport.tls_errors import words_for_client
from ottla.version import __version__

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""A fetch may answer one batch beyond its limits; more than this is not a valid response."""
RECEIVES_PER_TURN_MAX: Final = 16
RECEIVE_BYTES: Final = 256 * 1024
"""How much of a large answer is waited for at a time: waking up costs as much as copying some ten KiB, and what is
copied at once should still fit into the processor's cache."""
SEND_BUFFERS_MAX: Final = 64
SILENCE_SECONDS: Final = 1.0
"""How late an answer may be before the broker counts as silent."""
_SILENCE_SHARE: Final = 8
"""Repeated reports of a silent broker back off: the next comes after this share of the time that it has been silent."""

_LOGIN_MESSAGES_MAX: Final = 10
"""More than any mechanism needs."""
_LIFETIME_SHARE: Final = 0.9
_LIFETIME_LEFT_SECONDS: Final = 2.0
_LOGIN_SECONDS_MIN: Final = 1.1
"""When the next request logs in again first: see `seconds_until_login`."""
_LOGIN_TIMEOUT_MS: Final = 30_000

_ENCRYPTED: Final = "if the listener uses TLS, set security_protocol (security.protocol) to SSL or SASL_SSL"
_NOT_ENCRYPTED: Final = (
    "if the listener does not use TLS, set security_protocol (security.protocol) to PLAINTEXT or SASL_PLAINTEXT"
)
_WITH_LOGIN: Final = (
    "if the listener uses SASL, set security_protocol (security.protocol) to SASL_SSL or SASL_PLAINTEXT, and"
    " sasl_mechanism, user name and password (sasl.mechanism, sasl.jaas.config)"
)

_HEADER: Final = Struct(">ihhi")
_SHORT: Final = Struct(">h")
_ID_MAX: Final = 2**31 - 1
_SOFTWARE: Final = "ottla"
_API_VERSIONS_ASKED: Final = 4
"""The version in which our clients ask: brokers that know only older ones must be asked twice."""
_SOFTWARE_VERSION: Final = re.sub(r"[^a-zA-Z0-9.-]", "-", __version__)
_FLEXIBLE_FROM: Final = {
    ApiKey.PRODUCE: 9,
    ApiKey.FETCH: 12,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.SHARE_FETCH: 0,
    ApiKey.SHARE_ACKNOWLEDGE: 0,
}
"""From which version on the raw requests have a header with tagged fields."""


class CannotConnectError(RetriableError):
    """No broker can be reached, or the address is not that of a Kafka broker."""


class ConnectionLostError(RetriableError):
    """The connection ended, or was silent for too long, before the answer came: whether it was done is unknown."""


class _Waiting(NamedTuple):
    correlation_id: int
    answer: asyncio.Future[memoryview]
    deadline: float
    timeout_ms: int
    name: str
    expected_at: float
    """From then on it is late."""


class _Held(NamedTuple):
    """A request that waits for a re-authentication."""

    buffers: Sequence[Buffer]
    waiting: _Waiting | None
    """None if it has no answer."""


class Connection:
    """An open connection; make one with `open`. Answers come in the order of the requests, as the protocol promises."""

    def __init__(
        self,
        socket: Socket,
        address: Address,
        client_id: str,
        response_bytes_max: int,
        on_silence: "Callable[[Connection], None] | None" = None,
        security: ClientSecurity | None = None,
    ) -> None:
        self.address = address
        self._security = security
        self._refusal: TlsError | None = None
        """Why the broker refuses the client's certificate, which in TLS 1.3 comes after the handshake."""
        self._login_at = math.inf
        """From then on, the next request logs in again first."""
        self._held: list[_Held] = []
        self._login: asyncio.Task[None] | None = None
        self.versions: dict[int, Versions] = {}
        """The versions that the broker supports, by API key; also keys that this client does not know."""
        self._socket = socket
        self._client_id = client_id.encode()
        self._client_name = client_id
        self._received = FrameBuffer(response_bytes_max)
        self._expected = 1
        self._waiting: deque[_Waiting] = deque()
        self._unsent: deque[memoryview] = deque()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._next_id = 0
        self._failure: ConnectionLostError | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        """When the timer goes off. Kept here: for a time that has passed, uvloop's timers do not know it."""
        self._on_silence = on_silence
        self._heard_at = 0.0
        """When bytes came last."""
        socket.on_readable(self._receive)

    @classmethod
    async def open(
        cls,
        network: Network,
        address: Address,
        *,
        client_id: str,
        timeout_ms: int,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        on_silence: "Callable[[Connection], None] | None" = None,
        security: ClientSecurity | None = None,
    ) -> Self:
        """Connects, negotiates versions and logs in, all within the timeout. Raises `CannotConnectError`, `TlsError` if
        one side does not accept the certificate of the other, or `AuthenticationError` if the login fails.

        `on_silence` is called with the connection now and then while it is silent.
        """
        connection: Self | None = None
        is_connected = False
        failure: OttlaError
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                socket: Socket = await network.connect(*address)
                is_connected = True
                if security is not None and security.ssl_context is not None:
                    socket = await encrypted(socket, security.ssl_context, security.server_name or address.host)
                connection = cls(socket, address, client_id, response_bytes_max, on_silence, security)
                await connection._negotiate(timeout_ms)
                if security is not None and security.sasl is not None:
                    await connection._log_in(security.sasl(), timeout_ms)
                return connection
        except TimeoutError:
            what = "it accepts connections, but does not answer" if is_connected else "nothing answers"
            failure = CannotConnectError(f"{address}: {what} within {timeout_ms} ms")
        except ssl.SSLError as error:
            failure = TlsError(f"{address}: {words_for_client(error, _host(address, security))}")
        except OSError as error:
            # What follows the handshake raises ConnectionLostError.
            when = f" during the TLS handshake; {_NOT_ENCRYPTED}" if is_connected else ""
            failure = CannotConnectError(f"{address}: {_words(error)}{when}")
        except (ConnectionLostError, InvalidRequestError, CorruptError) as error:
            refusal = connection._refusal if connection is not None else None
            hint = f"; {_ENCRYPTED}" if security is None else ""
            failure = refusal or CannotConnectError(f"{address}: no valid response from a Kafka broker ({error}){hint}")
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if connection is not None:
            connection.close()
        raise failure

    @property
    def is_closed(self) -> bool:
        """Whether every request would fail."""
        return self._failure is not None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answer."""
        return len(self._waiting) + len(self._held)

    @property
    def is_silent(self) -> bool:
        """Whether an answer is late, and nothing else came for as long."""
        return self._silent_seconds() >= SILENCE_SECONDS

    def version_for(self, api_key: ApiKey, version_max: int | None = None) -> int:
        """The highest version that both sides support, at most `version_max`; raises `UnsupportedByBrokerError`."""
        ours = SERVED[api_key]
        theirs = self.versions.get(api_key)
        if theirs is not None:
            highest = min(ours.highest, theirs.highest, ours.highest if version_max is None else version_max)
            if highest >= max(ours.lowest, theirs.lowest):
                return highest
        if theirs is None:
            raise UnsupportedByBrokerError(f"{self.address} does not support {api_key.name}; use a newer broker")
        raise UnsupportedByBrokerError(
            f"{self.address} supports {api_key.name} v{theirs.lowest} to v{theirs.highest}, but this client needs"
            f" v{ours.lowest} to v{ours.highest if version_max is None else version_max}; use a newer broker"
        )

    async def request(
        self, api_key: ApiKey, message: Any, *, version_max: int | None = None, timeout_ms: int = 30_000
    ) -> Any:
        """Sends a message of the newest version's class and returns the answer in the newest version's class.

        Raises `ConnectionLostError` if no answer comes, and closes the connection if none comes in time.
        """
        return await self._request(self._send, api_key, message, version_max, timeout_ms)

    async def _request(
        self,
        send: "Callable[[Sequence[Buffer], str, int], asyncio.Future[memoryview]]",
        api_key: ApiKey,
        message: Any,
        version_max: int | None,
        timeout_ms: int,
    ) -> Any:
        version = self.version_for(api_key, version_max)
        try:
            frame = write_request(api_key, version, self._next_id, self._client_name, message)
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise MisuseError(f"{api_key.name} v{version} cannot hold {message!r}: {error}") from error
        answer = await send([frame], api_key.name, timeout_ms)
        try:
            return read_response(api_key, version, answer)[1]
        except InvalidRequestError as error:
            raise self._fail(f"its response cannot be read: {error}") from error

    def request_bytes(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer], *, timeout_ms: int = 30_000, wait_ms: int = 0
    ) -> asyncio.Future[memoryview]:
        """Sends a body made elsewhere, as Produce and Fetch are; the answer is the frame without its length.

        The request is in flight when this returns, so requests are sent in the order of the calls. The buffers must
        stay as they are until the answer is here. `wait_ms` of the time are what the broker was asked to wait.
        """
        return self._send(self._framed(api_key, version, body), api_key.name, timeout_ms, wait_ms)

    def send_unanswered(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> None:
        """Sends a request that has no answer: Produce with acks=0. `wait_sent` keeps memory bounded."""
        buffers = self._framed(api_key, version, body)
        if self._failure is not None:
            raise self._failure
        self._next_id = (self._next_id + 1) & _ID_MAX
        if self._login_at != math.inf and self._loop.time() >= self._login_at:
            self._hold(_Held(buffers, None))
            return
        self._put(buffers)

    async def wait_sent(self) -> None:
        """Returns once the operating system has taken every byte; raises if the connection is closed."""
        await self._all_sent.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Closes the connection; requests in flight get an error. Closing twice is harmless."""
        self._fail("the connection was closed")

    def give_up(self, why: str) -> None:
        """Closes the connection as `close` does; requests in flight get this reason."""
        self._fail(why)

    def _framed(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> list[Buffer]:
        tags = b"\0" if version >= _FLEXIBLE_FROM[api_key] else b""
        name = _SHORT.pack(len(self._client_id)) + self._client_id + tags
        size = _HEADER.size - 4 + len(name) + sum(map(len, body))
        return [_HEADER.pack(size, api_key, version, self._next_id) + name, *body]

    async def _negotiate(self, timeout_ms: int) -> None:
        from kio.schema.api_versions.v4.request import ApiVersionsRequest

        asked = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_SOFTWARE_VERSION)
        for version in (_API_VERSIONS_ASKED, 0):
            frame = write_request(ApiKey.API_VERSIONS, version, self._next_id, self._client_name, asked)
            answer = await self._send([frame], "API_VERSIONS", timeout_ms)
            # An unknown version is answered in version 0, where the code comes first, as in every version.
            code = int.from_bytes(answer[4:6], "big", signed=True)
            if code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                continue
            if code:
                raise answer_error(code, f"{self.address} refused the ApiVersions request")
            listed = read_response(ApiKey.API_VERSIONS, version, answer)[1].api_keys
            self.versions = {each.api_key: Versions(each.min_version, each.max_version) for each in listed}
            return
        raise UnsupportedByBrokerError(f"{self.address} does not support ApiVersions")

    def _send(
        self, buffers: Sequence[Buffer], name: str, timeout_ms: int, wait_ms: int = 0, *, is_login: bool = False
    ) -> asyncio.Future[memoryview]:
        """The buffers carry `_next_id` as their correlation id."""
        if self._failure is not None:
            raise self._failure
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        now = self._loop.time()
        waiting = _Waiting(self._next_id, answer, now + timeout_ms / 1000, timeout_ms, name, now + wait_ms / 1000)
        self._next_id = (self._next_id + 1) & _ID_MAX
        if now >= self._login_at and not is_login:
            self._hold(_Held(buffers, waiting))
        else:
            self._send_now(buffers, waiting)
        return answer

    def _send_now(self, buffers: Sequence[Buffer], waiting: _Waiting) -> None:
        self._waiting.append(waiting)
        look_at = min(waiting.deadline, waiting.expected_at + SILENCE_SECONDS)
        if self._timer is not None and look_at < self._timer_at:
            # What was asked before had more time, such as the first question on a connection.
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._look_again_at(look_at)
        self._put(buffers)

    # Logins

    async def _log_in(self, mechanism: ClientMechanism, timeout_ms: int) -> None:
        """Raises `AuthenticationError` if the broker refuses."""
        from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
        from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

        def send(buffers: Sequence[Buffer], name: str, timeout_ms: int) -> asyncio.Future[memoryview]:
            return self._send(buffers, name, timeout_ms, is_login=True)

        await mechanism.prepare()
        asked = SaslHandshakeRequest(mechanism=mechanism.name)
        answer = await self._request(send, ApiKey.SASL_HANDSHAKE, asked, None, timeout_ms)
        if answer.error_code:
            raise self._login_refused(mechanism.name, int(answer.error_code), answer.mechanisms)
        message: bytes | None = mechanism.first()
        for _ in range(_LOGIN_MESSAGES_MAX):
            if message is None:
                lifetime = answer.session_lifetime.total_seconds()
                self._login_at = self._loop.time() + seconds_until_login(lifetime) if lifetime > 0 else math.inf
                return
            answer = await self._request(
                send, ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=message), None, timeout_ms
            )
            if answer.error_code:
                why = answer.error_message or ErrorCode(int(answer.error_code)).name
                raise AuthenticationError(
                    f"{self.address}: the broker refused the {mechanism.name} login: {why}; check the user name and the"
                    " password or token"
                )
            try:
                message = mechanism.next(bytes(answer.auth_bytes))
            except AuthenticationError as error:
                raise AuthenticationError(f"{self.address}: {error}") from None
        raise AuthenticationError(f"{self.address}: the broker did not complete the {mechanism.name} login")

    def _login_refused(self, mechanism: str, code: int, enabled: Sequence[str]) -> AuthenticationError:
        if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            listed = ", ".join(enabled) or "none"
            return AuthenticationError(
                f"{self.address}: the broker does not enable the SASL mechanism {mechanism}; set sasl_mechanism to one"
                f" that it enables: {listed}"
            )
        if code == ErrorCode.ILLEGAL_SASL_STATE:
            return AuthenticationError(
                f"{self.address}: the listener does not use SASL; set security_protocol (security.protocol) to"
                " PLAINTEXT or SSL, or use the port of a listener with SASL"
            )
        return AuthenticationError(f"{self.address}: the broker refused the login ({ErrorCode(code).name})")

    def _hold(self, held: _Held) -> None:
        """Keeps a request until the client has logged in again, which begins now unless it is under way."""
        self._held.append(held)
        self._all_sent.clear()
        if self._login is None:
            self._login = self._loop.create_task(self._log_in_again())

    async def _log_in_again(self) -> None:
        """A re-authentication: requests in flight are answered first, later ones wait for its end."""
        try:
            if self._security is None or self._security.sasl is None:
                return
            await self._log_in(self._security.sasl(), _LOGIN_TIMEOUT_MS)
        except Exception as error:  # A token provider may raise anything.
            self._fail(f"the re-authentication failed: {error}")
            return
        finally:
            self._login = None
        held, self._held = self._held, []
        for each in held:
            if each.waiting is None:
                self._put(each.buffers)
            else:
                self._send_now(each.buffers, each.waiting)
        if not self._unsent:
            self._all_sent.set()

    def _put(self, buffers: Sequence[Buffer]) -> None:
        was_empty = not self._unsent
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            if view:
                self._unsent.append(view)
        if was_empty:
            self._flush()

    def _flush(self) -> None:
        """Sends what fits now; the rest follows when the socket has room."""
        unsent = self._unsent
        try:
            while unsent:
                some = [unsent[at] for at in range(min(len(unsent), SEND_BUFFERS_MAX))]
                sent = self._socket.send(some, more=len(unsent) > len(some))
                if sent == 0:
                    break
                while unsent and sent >= len(unsent[0]):
                    sent -= len(unsent.popleft())
                if sent:
                    unsent[0] = unsent[0][sent:]
        except OSError as error:
            self._fail(f"the connection broke: {error.strerror}")
            return
        if unsent:
            self._all_sent.clear()
            self._socket.on_writable(self._flush)
        elif not self._all_sent.is_set():
            self._all_sent.set()
            self._socket.on_writable(None)

    def _receive(self) -> None:
        self._heard_at = self._loop.time()
        try:
            for _ in range(RECEIVES_PER_TURN_MAX):
                room = self._received.room()
                size = self._socket.recv_into(room)
                asked = len(room)
                del room
                if size == 0:
                    self._fail(f"the broker closed the connection{self._closing_hint()}")
                    return
                self._received.received(size)
                while (frame := self._received.next_frame()) is not None:
                    self._on_frame(frame)
                if self._failure is not None:
                    return
                expected = min(self._received.missing, RECEIVE_BYTES) or 1
                if expected != self._expected:
                    self._socket.expect(expected)
                    self._expected = expected
                if size < asked:
                    return
        except BlockingIOError:
            return
        except ssl.SSLError as error:
            words = words_for_client(error, _host(self.address, self._security))
            self._refusal = TlsError(f"{self.address}: {words}")
            self._fail(words)
        except OSError as error:
            self._fail(f"the connection broke: {error.strerror}")
        except CorruptError as error:
            self._fail(str(error))

    def _closing_hint(self) -> str:
        """What is likely if the broker disconnects at the first request after ApiVersions."""
        is_first = bool(self._waiting) and self._waiting[0].correlation_id in (1, 2)
        if is_first and (self._security is None or self._security.sasl is None):
            return f"; {_WITH_LOGIN}"
        return ""

    def _on_frame(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            expected = self._waiting[0].correlation_id if self._waiting else "none"
            self._fail(f"received a response to request {correlation_id}, expected {expected}")
            return
        waiting = self._waiting.popleft()
        if not waiting.answer.done():
            waiting.answer.set_result(frame)

    def _look_at_time(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        first, now = self._waiting[0], self._loop.time()
        if first.deadline <= now:
            self._fail(f"{first.name} was not answered within {first.timeout_ms} ms")
            return
        silent = self._silent_seconds()
        is_silent = silent >= SILENCE_SECONDS
        pause = max(SILENCE_SECONDS, silent / _SILENCE_SHARE) if is_silent else SILENCE_SECONDS - silent
        self._look_again_at(min(first.deadline, now + pause))
        if is_silent and self._on_silence is not None:
            self._on_silence(self)

    def _look_again_at(self, when: float) -> None:
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._look_at_time)

    def _silent_seconds(self) -> float:
        """For how long an answer has been late and nothing came; negative as long as none is late."""
        if not self._waiting:
            return -SILENCE_SECONDS
        return self._loop.time() - max(self._waiting[0].expected_at, self._heard_at)

    def _fail(self, why: str) -> ConnectionLostError:
        """Closes for good, with the first reason there was."""
        if self._failure is None:
            self._failure = ConnectionLostError(f"{self.address}: {why}")
            self._socket.close()
            if self._timer is not None:
                self._timer.cancel()
            self._unsent.clear()
            self._all_sent.set()
            if self._login is not None:
                self._login.cancel()
            waiting, self._waiting = self._waiting, deque()
            waiting.extend(each.waiting for each in self._held if each.waiting is not None)
            self._held.clear()
            for each in waiting:
                if not each.answer.done():
                    each.answer.set_exception(ConnectionLostError(str(self._failure)))
                    # A caller that gave up on the response must not cause a warning of the event loop.
                    each.answer.exception()
        return self._failure


def seconds_until_login(lifetime: float) -> float:
    """After how much of a session's lifetime the next request logs in again first.

    A request that is sent before that may wait in buffers on both sides, and the broker closes the connection if it is
    served after the lifetime: so there is a tenth left, and two seconds if the lifetime is short. Brokers refuse more
    than one re-authentication a second.
    """
    return min(_LIFETIME_SHARE * lifetime, max(lifetime - _LIFETIME_LEFT_SECONDS, _LOGIN_SECONDS_MIN))


def _host(address: Address, security: ClientSecurity | None) -> str:
    """The host name that the broker's certificate must have."""
    return (security.server_name if security is not None else None) or address.host


def _words(error: OSError) -> str:
    """Why a connection could not be made; the event loop's own messages name calls and tuples."""
    if error.errno is None or isinstance(error, UnresolvedHostError):
        return error.strerror or str(error)
    return os.strerror(error.errno).lower()
