"""Connections of listeners with SASL: the login before any other request, and the end of a session after it.

A connection is created when the login is complete (`Logins`). Until then only ApiVersions, SaslHandshake and
SaslAuthenticate are read, in frames of at most sasl.server.max.receive.size bytes, with memory and numbers of
their own: clients that do not log in take nothing from those that did. What is accepted when is a table in
`ottla.security.sasl.session`. A session that expires is watched by a `SessionGuard`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from struct import pack
from typing import Final

from ottla.env.ports import Clock, Socket
from ottla.model.errors import InvalidRequestError
from ottla.protocol.apis import SERVED, ApiKey
from ottla.protocol.scan import BrokenRequest, Request, scan_requests
from ottla.security.connection_context import ClientSoftware, ConnectionContext
from ottla.security.sasl.authentication_error import AuthenticationError
from ottla.security.sasl.broker_mechanism import Identity
from ottla.security.sasl.session import LoginRules, LoginSession, LoginState, UnexpectedRequestError
from ottla.transport.connection import Serve, Slot
from ottla.transport.sasl_requests import (
    SaslAnswer,
    answer_authenticate,
    answer_handshake,
    illegal_state,
)

LOGIN_SECONDS: Final = 30.0
"""How long a login may take."""
LOGINS_MAX: Final = 1000
"""How many may be under way; with more, the oldest one of the address that has most of them ends."""
SMALL_FRAME_BYTES: Final = 16 * 1024
"""A frame of this size is always received. Larger ones share a memory."""
LARGE_FRAMES_BYTES_MAX: Final = 16 * 1024 * 1024
"""The memory for larger frames, for all logins together."""
_SIZE_BYTES: Final = 4
_LOGIN_APIS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLogin:
    """What a listener with SASL accepts."""

    rules: LoginRules
    answer_api_versions: Callable[[int, int, memoryview, ClientSoftware], bytes]
    """The response frame to an ApiVersions request: version, correlation id, body."""
    frame_bytes_max: int = 524_288
    """sasl.server.max.receive.size"""
    failure_delay_ms: int = 100
    """connection.failed.authentication.delay.ms"""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The names of the mechanisms that are enabled."""
        return tuple(self.rules.mechanisms)


class LoginCounts:
    """How many logins and re-authentications succeeded and failed, by listener and mechanism."""

    def __init__(self) -> None:
        self.succeeded: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()
        """The mechanism is empty if none was agreed on."""


class Logins:
    """All logins that are under way."""

    def __init__(
        self,
        clock: Clock,
        *,
        seconds: float = LOGIN_SECONDS,
        count_max: int = LOGINS_MAX,
        large_frames_bytes_max: int = LARGE_FRAMES_BYTES_MAX,
    ) -> None:
        self.counts: Final = LoginCounts()
        self.clock: Final = clock
        self.seconds: Final = seconds
        self._count_max = count_max
        self._large_bytes_left = large_frames_bytes_max
        self._under_way: dict[_Login, None] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self,
        socket: Socket,
        context: ConnectionContext,
        login: ListenerLogin,
        *,
        on_done: Callable[[Socket, ConnectionContext, LoginSession], None],
        on_failed: Callable[[str, bool], None],
    ) -> None:
        """Begins a login; one of the callbacks is called when it ends.

        A failure has its reason, and whether it is worth a line in the log: that a client disconnects is not.
        """
        if len(self._under_way) >= self._count_max:
            self._make_room()
        begun = _Login(self, socket, context, login, on_done, on_failed)
        self._under_way[begun] = None
        begun.start()

    def close(self, reason: str) -> None:
        """Ends all of them."""
        for each in list(self._under_way):
            each.end(reason, is_notable=False)

    def _make_room(self) -> None:
        busiest = Counter(each.host for each in self._under_way).most_common(1)[0][0]
        oldest = next(each for each in self._under_way if each.host == busiest)
        oldest.end(f"{self._count_max} logins are in progress, most of them from {busiest}", is_notable=True)

    def forget(self, login: "_Login") -> None:
        """A login has ended."""
        self._under_way.pop(login, None)

    def take_memory(self, size: int) -> bool:
        """Whether a frame of this size may be received; then `give_memory` must follow."""
        if size > SMALL_FRAME_BYTES:
            if size > self._large_bytes_left:
                return False
            self._large_bytes_left -= size
        return True

    def give_memory(self, size: int) -> None:
        """The frame is not needed any more."""
        if size > SMALL_FRAME_BYTES:
            self._large_bytes_left += size


class _Login:
    """One connection before it has logged in. Never receives more than the frame that it waits for."""

    __slots__ = (
        "_arrived",
        "_context",
        "_deadline",
        "_delayed",
        "_frame",
        "_is_reading",
        "_is_sent_last",
        "_is_writing",
        "_login",
        "_logins",
        "_on_done",
        "_on_failed",
        "_session",
        "_socket",
        "_unsent",
        "host",
    )

    def __init__(
        self,
        logins: Logins,
        socket: Socket,
        context: ConnectionContext,
        login: ListenerLogin,
        on_done: Callable[[Socket, ConnectionContext, LoginSession], None],
        on_failed: Callable[[str, bool], None],
    ) -> None:
        self.host = context.address.rpartition(":")[0]
        self._logins = logins
        self._socket = socket
        self._context = context
        self._login = login
        self._on_done = on_done
        self._on_failed = on_failed
        self._session = LoginSession(login.rules)
        self._frame = bytearray(_SIZE_BYTES)
        """The frame's length; once that has arrived, with room for the frame behind it."""
        self._arrived = 0
        self._unsent = memoryview(b"")
        self._is_sent_last: str | None = None
        """Why the connection closes once everything is sent; None if it does not."""
        self._is_reading = True
        """Whether the socket is watched for the next frame."""
        self._is_writing = False
        """Whether the socket is watched for room to send."""
        self._deadline: asyncio.TimerHandle | None = None
        self._delayed: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._deadline = asyncio.get_running_loop().call_later(self._logins.seconds, self._on_timeout)
        self._socket.on_readable(self._on_readable)

    # Reading

    def _on_readable(self) -> None:
        # A frame has mostly arrived with its length. A login is a few frames; a client that sends more of them than the
        # one that is awaited waits for the next turn.
        if not self._receive():
            return
        if len(self._frame) == _SIZE_BYTES:
            size = int.from_bytes(self._frame, "big", signed=True)
            if not self._make_frame(size) or not self._receive():
                return
        frame, self._frame, self._arrived = self._frame, bytearray(_SIZE_BYTES), 0
        self._logins.give_memory(len(frame))
        self._on_frame(frame)

    def _receive(self) -> bool:
        """Receives what the frame lacks; whether it lacks nothing more."""
        try:
            room = memoryview(self._frame)
            count = self._socket.recv_into(room[self._arrived :] if self._arrived else room)
        except BlockingIOError:
            return False
        except OSError as error:
            self.end(error.strerror or str(error), is_notable=False)
            return False
        if count == 0:
            self.end("the client closed it", is_notable=False)
            return False
        self._arrived += count
        return self._arrived == len(self._frame)

    def _make_frame(self, size: int) -> bool:
        """Makes room for a frame whose length has arrived; False if the connection ends instead."""
        if not 0 < size <= self._login.frame_bytes_max:
            self.end(
                f"received a frame of {size} bytes before the login was complete; sasl.server.max.receive.size is"
                f" {self._login.frame_bytes_max}",
                is_notable=True,
            )
            return False
        if not self._logins.take_memory(_SIZE_BYTES + size):
            self.end("the memory for large requests of clients that have not logged in is used up", is_notable=True)
            return False
        frame = bytearray(_SIZE_BYTES + size)
        frame[:_SIZE_BYTES] = self._frame
        self._frame = frame
        return True

    def _on_frame(self, frame: bytearray) -> None:
        session, clock = self._session, self._logins.clock
        try:
            if session.state is LoginState.RAW_TOKENS:
                answer = session.on_message(
                    bytes(memoryview(frame)[_SIZE_BYTES:]), clock.monotonic(), clock.now_ms(), is_raw=True
                )
                self._send(SaslAnswer(pack(">i", len(answer.reply)) + answer.reply))
            else:
                self._send(self._answer(frame))
        except (AuthenticationError, InvalidRequestError) as error:
            # No response is possible: raw tokens have none for errors, and other requests are not answered at all.
            session.fail()
            self._send(SaslAnswer(b"", str(error)))

    def _answer(self, frame: bytearray) -> SaslAnswer:
        session, clock = self._session, self._logins.clock
        api_key = int.from_bytes(frame[_SIZE_BYTES : _SIZE_BYTES + 2], "big", signed=True)
        if api_key not in _LOGIN_APIS:
            # Looked at before anything else is read: the requests of other APIs may have large arrays.
            raise UnexpectedRequestError(f"received a request with API key {api_key} before the login was complete")
        requests, _, _ = scan_requests(frame, 0, len(frame), self._login.frame_bytes_max)
        if not requests or isinstance(request := requests[0], BrokenRequest):
            raise InvalidRequestError("received an unreadable request before the login was complete")
        body = memoryview(frame)[request.body_start : request.end]
        version, number = request.version, request.correlation_id
        if session.state is LoginState.TOKENS and api_key != ApiKey.SASL_AUTHENTICATE:
            session.fail()
            return illegal_state(api_key, version, number, f"received API key {api_key} during the SASL exchange")
        if api_key == ApiKey.API_VERSIONS:
            session.expect_api_versions()
            response = self._login.answer_api_versions(version, number, body, self._context.software)
            if version in SERVED[ApiKey.API_VERSIONS] and _error_code(response) == 0:
                session.on_api_versions()
            return SaslAnswer(response)
        if api_key == ApiKey.SASL_HANDSHAKE:
            return answer_handshake(session, version, number, body, self._login.mechanisms, clock.monotonic())
        return answer_authenticate(session, version, number, body, clock.monotonic(), clock.now_ms())

    # Writing

    def _send(self, answer: SaslAnswer) -> None:
        """Sends at once; the answer of a failed login is delayed, so that passwords cannot be tried fast."""
        self._unsent = memoryview(answer.frame)
        if answer.failure is None:
            self._flush()
            return
        self._pause_reading()
        self._logins.counts.failed[self._context.listener, self._session.mechanism or ""] += 1
        self._is_sent_last = answer.failure
        self._delayed = asyncio.get_running_loop().call_later(self._login.failure_delay_ms / 1000, self._flush)

    def _pause_reading(self) -> None:
        """No further request is read before this one is answered."""
        if self._is_reading:
            self._is_reading = False
            self._socket.on_readable(None)

    def _flush(self) -> None:
        try:
            while self._unsent and (sent := self._socket.send([self._unsent])):
                self._unsent = self._unsent[sent:]
        except OSError as error:
            self.end(self._failure() or error.strerror or str(error), is_notable=self._is_sent_last is not None)
            return
        if self._unsent:
            self._pause_reading()
            self._is_writing = True
            self._socket.on_writable(self._flush)
            return
        if self._is_writing:
            self._is_writing = False
            self._socket.on_writable(None)
        if self._is_sent_last is not None:
            self.end(self._failure() or "", is_notable=True)
        elif self._session.state is LoginState.AUTHENTICATED:
            self._complete()
        elif not self._is_reading:
            self._is_reading = True
            self._socket.on_readable(self._on_readable)

    def _failure(self) -> str | None:
        if self._is_sent_last is None:
            return None
        mechanism = self._session.mechanism
        with_mechanism = f" with {mechanism}" if mechanism else ""
        return f"login{with_mechanism} failed: {self._is_sent_last}"

    # Ending

    def _complete(self) -> None:
        session = self._session
        if session.identity is None:
            raise AuthenticationError("a login without an identity cannot be complete")
        self._stop()
        # The connection watches the socket from now on, in place of this login.
        self._logins.counts.succeeded[self._context.listener, session.mechanism or ""] += 1
        self._on_done(self._socket, with_identity(self._context, session.identity), session)

    def _on_timeout(self) -> None:
        self.end(f"the login was not complete within {self._logins.seconds:g} s", is_notable=self._arrived > 0)

    def end(self, reason: str, *, is_notable: bool) -> None:
        self._stop()
        self._socket.close()
        self._on_failed(reason, is_notable)

    def _stop(self) -> None:
        self._logins.forget(self)
        if len(self._frame) > _SIZE_BYTES:
            self._logins.give_memory(len(self._frame))
        self._frame = bytearray()
        for timer in (self._deadline, self._delayed):
            if timer is not None:
                timer.cancel()
        if self._is_writing:
            self._socket.on_writable(None)


def with_identity(context: ConnectionContext, identity: Identity) -> ConnectionContext:
    """The context of a connection after a login."""
    return ConnectionContext(
        listener=context.listener,
        security_protocol=context.security_protocol,
        address=context.address,
        principal=identity.principal,
        is_token_login=identity.is_token_login,
        software=context.software,
    )


def _error_code(response: bytes) -> int:
    """Of an ApiVersions response: it follows the length and the correlation id."""
    return int.from_bytes(response[8:10], "big", signed=True)


class SessionGuard:
    """Serves the requests of a connection until its session expires, and re-authenticates its client."""

    __slots__ = ("_clock", "_counts", "_login", "_serve", "_session")

    def __init__(
        self, serve: Serve, session: LoginSession, login: ListenerLogin, clock: Clock, counts: LoginCounts
    ) -> None:
        self._serve = serve
        self._session = session
        self._login = login
        self._clock = clock
        self._counts = counts

    def is_expired(self, now: float) -> bool:
        """Whether the session has ended, and the client has not logged in again."""
        return self._session.is_expired(now)

    def serve(self, request: Request, buffer: bytearray, slot: Slot, /) -> bool | None:
        """As `Serve`: a request that is not allowed now fails its slot, which closes the connection."""
        session, api_key = self._session, request.api_key
        if session.state is LoginState.AUTHENTICATED:
            if api_key != ApiKey.SASL_HANDSHAKE:
                if session.is_expired(self._clock.monotonic()):
                    session.fail()
                    slot.fail("the session has expired, and the client did not re-authenticate")
                    return True
                return self._serve(request, buffer, slot)
        elif session.state is LoginState.FAILED:
            slot.fail("the client's re-authentication failed, or came too late")
            return True
        try:
            answer = self._answer(request, buffer)
        except InvalidRequestError as error:
            session.fail()
            answer = SaslAnswer(b"", str(error))
        self._complete(slot, answer, api_key)
        return True

    def _answer(self, request: Request, buffer: bytearray) -> SaslAnswer:
        session, now = self._session, self._clock.monotonic()
        version, number = request.version, request.correlation_id
        with memoryview(buffer) as view, view[request.body_start : request.end] as body:
            if session.state is LoginState.AUTHENTICATED:
                was_expired = session.is_expired(now)
                answer = answer_handshake(session, version, number, body, self._login.mechanisms, now)
                if was_expired and session.state is LoginState.AUTHENTICATED:
                    raise InvalidRequestError("the session has expired, and the client re-authenticates too often")
                return answer
            if request.api_key != ApiKey.SASL_AUTHENTICATE:
                session.fail()
                why = f"received API key {request.api_key} during the SASL exchange"
                return illegal_state(request.api_key, version, number, why)
            return answer_authenticate(session, version, number, body, now, self._clock.now_ms())

    def _complete(self, slot: Slot, answer: SaslAnswer, api_key: int) -> None:
        session, key = self._session, (slot.client.listener, self._session.mechanism or "")
        if answer.failure is not None:
            self._counts.failed[key] += 1
            reason = f"re-authentication of {slot.client.principal} with {session.mechanism} failed: {answer.failure}"
            delay = self._login.failure_delay_ms / 1000
            asyncio.get_running_loop().call_later(delay, _fail_with, slot, answer.frame, reason)
            return
        if api_key == ApiKey.SASL_AUTHENTICATE and session.state is LoginState.AUTHENTICATED and session.identity:
            self._counts.succeeded[key] += 1
            slot.connection.context = with_identity(slot.connection.context, session.identity)
        slot.complete((answer.frame,))


def _fail_with(slot: Slot, frame: bytes, reason: str) -> None:
    """Answers, and closes the connection once that is sent."""
    if not slot.is_abandoned:
        slot.failure = reason
        slot.complete((frame,) if frame else ())
