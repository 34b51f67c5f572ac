"""One connection to one broker: versions negotiated, many requests in flight, every waiter answered or told why not.

Covers the bytes between a client and a broker. Which broker to ask, and whether to ask again, is `cluster.py`'s. A
connection that breaks, falls silent or answers nonsense is closed for good, and every waiter gets an error that names
the address.
"""

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, Self

from ottla.env.ports import Network, Socket
from ottla.model.buffer import Buffer
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, InvalidRequestError, MisuseError, RetriableError
from ottla.protocol.answer_errors import UnsupportedByBrokerError, answer_error
from ottla.protocol.apis import SERVED, ApiKey, Versions
from ottla.protocol.messages import read_response, write_request
from ottla.transport.addresses import Address
from ottla.transport.frame_buffer import FrameBuffer
from ottla.version import __version__

RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024
"""A fetch may answer one batch beyond its limits; more than this is no answer."""
RECEIVES_PER_TURN_MAX: Final = 16
RECEIVE_BYTES: Final = 256 * 1024
"""How much of a large answer is waited for at a time: waking up costs as much as copying some ten KiB, and what is
copied at once should still fit into the processor's cache."""
SEND_BUFFERS_MAX: Final = 64
SILENCE_SECONDS: Final = 1.0
"""How late an answer may be before the broker counts as silent."""
_SILENCE_SHARE: Final = 8
"""Repeated reports of a silent broker back off: the next comes after this share of the time that it has been silent."""

_HEADER: Final = Struct(">ihhi")
_SHORT: Final = Struct(">h")
_ID_MAX: Final = 2**31 - 1
_SOFTWARE: Final = "ottla"
_SOFTWARE_VERSION: Final = re.sub(r"[^a-zA-Z0-9.-]", "-", __version__)
_FLEXIBLE_FROM: Final = {ApiKey.PRODUCE: 9, ApiKey.FETCH: 12, ApiKey.DESCRIBE_TRANSACTIONS: 0}
"""From which version on the raw requests have a header with tagged fields."""


class CannotConnectError(RetriableError):
    """No broker can be reached, or what was reached does not speak the protocol."""


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


class Connection:
    """An open connection; make one with `open`. Answers come in the order of the requests, as the protocol promises."""

    def __init__(
        self,
        socket: Socket,
        address: Address,
        client_id: str,
        response_bytes_max: int,
        on_silence: "Callable[[Connection], None] | None" = None,
    ) -> None:
        self.address = address
        self.versions: dict[int, Versions] = {}
        """What the broker said it speaks, by API key; also keys that this client does not know."""
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
    ) -> Self:
        """Connects and asks what the broker speaks, both within the time given. Raises `CannotConnectError`.

        `on_silence` is called with the connection now and then while it is silent.
        """
        connection: Self | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                socket = await network.connect(*address)
                connection = cls(socket, address, client_id, response_bytes_max, on_silence)
                await connection._negotiate(timeout_ms)
                return connection
        except TimeoutError:
            what = "it accepts connections, but does not answer" if connection else "nothing answers"
            failure = CannotConnectError(f"{address}: {what} within {timeout_ms} ms")
        except OSError as error:
            failure = CannotConnectError(f"{address}: {_words(error)}")
        except (ConnectionLostError, InvalidRequestError, CorruptError) as error:
            failure = CannotConnectError(f"{address}: no Kafka broker answers there ({error})")
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
        return len(self._waiting)

    @property
    def is_silent(self) -> bool:
        """Whether an answer is late, and nothing else came for as long."""
        return self._silent_seconds() >= SILENCE_SECONDS

    def version_for(self, api_key: ApiKey, version_max: int | None = None) -> int:
        """The highest version that both sides speak, at most `version_max`; raises `UnsupportedByBrokerError`."""
        ours = SERVED[api_key]
        theirs = self.versions.get(api_key)
        if theirs is not None:
            highest = min(ours.highest, theirs.highest, ours.highest if version_max is None else version_max)
            if highest >= max(ours.lowest, theirs.lowest):
                return highest
        spoken = "not at all" if theirs is None else f"in versions {theirs.lowest} to {theirs.highest}"
        asked = f"{ours.lowest} to {ours.highest if version_max is None else version_max}"
        raise UnsupportedByBrokerError(
            f"{self.address} speaks {api_key.name} {spoken}, and this client in versions {asked}; use a newer broker"
        )

    async def request(
        self, api_key: ApiKey, message: Any, *, version_max: int | None = None, timeout_ms: int = 30_000
    ) -> Any:
        """Sends a message of the newest version's class and returns the answer in the newest version's class.

        Raises `ConnectionLostError` if no answer comes, and closes the connection if none comes in time.
        """
        version = self.version_for(api_key, version_max)
        try:
            frame = write_request(api_key, version, self._next_id, self._client_name, message)
        except (ValueError, TypeError, OverflowError, AttributeError) as error:
            raise MisuseError(f"{api_key.name} v{version} cannot hold {message!r}: {error}") from error
        answer = await self._send([frame], api_key.name, timeout_ms)
        try:
            return read_response(api_key, version, answer)[1]
        except InvalidRequestError as error:
            raise self._fail(f"its answer cannot be read: {error}") from error

    def request_bytes(
        self, api_key: ApiKey, version: int, body: Sequence[Buffer], *, timeout_ms: int = 30_000, wait_ms: int = 0
    ) -> asyncio.Future[memoryview]:
        """Sends a body made elsewhere, as Produce and Fetch are; the answer is the frame without its length.

        The request is under way when this returns, so requests leave in the order of the calls. The buffers must stay
        as they are until the answer is here. `wait_ms` of the time are what the broker was asked to wait.
        """
        return self._send(self._framed(api_key, version, body), api_key.name, timeout_ms, wait_ms)

    def send_unanswered(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> None:
        """Sends a request that has no answer: Produce with acks=0. `wait_sent` keeps memory bounded."""
        buffers = self._framed(api_key, version, body)
        if self._failure is not None:
            raise self._failure
        self._next_id = (self._next_id + 1) & _ID_MAX
        self._put(buffers)

    async def wait_sent(self) -> None:
        """Returns once the operating system has taken every byte; raises if the connection is closed."""
        await self._all_sent.wait()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Ends the connection; whoever still waits gets an error. Closing twice is harmless."""
        self._fail("the connection was closed")

    def give_up(self, why: str) -> None:
        """Ends the connection as `close` does, and says why to whoever still waits."""
        self._fail(why)

    def _framed(self, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> list[Buffer]:
        tags = b"\0" if version >= _FLEXIBLE_FROM[api_key] else b""
        name = _SHORT.pack(len(self._client_id)) + self._client_id + tags
        size = _HEADER.size - 4 + len(name) + sum(map(len, body))
        return [_HEADER.pack(size, api_key, version, self._next_id) + name, *body]

    async def _negotiate(self, timeout_ms: int) -> None:
        from kio.schema.api_versions.v4.request import ApiVersionsRequest

        ours = SERVED[ApiKey.API_VERSIONS]
        asked = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_SOFTWARE_VERSION)
        for version in (ours.highest, 0):
            frame = write_request(ApiKey.API_VERSIONS, version, self._next_id, self._client_name, asked)
            answer = await self._send([frame], "API_VERSIONS", timeout_ms)
            # An unknown version is answered in version 0, where the code comes first, as in every version.
            code = int.from_bytes(answer[4:6], "big", signed=True)
            if code == ErrorCode.UNSUPPORTED_VERSION and version > 0:
                continue
            if code:
                raise answer_error(code, f"{self.address} refuses to say what it speaks")
            listed = read_response(ApiKey.API_VERSIONS, version, answer)[1].api_keys
            self.versions = {each.api_key: Versions(each.min_version, each.max_version) for each in listed}
            return
        raise UnsupportedByBrokerError(f"{self.address} does not say what it speaks")

    def _send(
        self, buffers: Sequence[Buffer], name: str, timeout_ms: int, wait_ms: int = 0
    ) -> asyncio.Future[memoryview]:
        """The buffers carry `_next_id` as their correlation id."""
        if self._failure is not None:
            raise self._failure
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        now = self._loop.time()
        deadline, expected_at = now + timeout_ms / 1000, now + wait_ms / 1000
        self._waiting.append(_Waiting(self._next_id, answer, deadline, timeout_ms, name, expected_at))
        self._next_id = (self._next_id + 1) & _ID_MAX
        look_at = min(deadline, expected_at + SILENCE_SECONDS)
        if self._timer is not None and look_at < self._timer.when():
            # What was asked before had more time, such as the first question on a connection.
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(look_at, self._look_at_time)
        self._put(buffers)
        return answer

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
                    self._fail("the broker closed the connection")
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
        except OSError as error:
            self._fail(f"the connection broke: {error.strerror}")
        except CorruptError as error:
            self._fail(str(error))

    def _on_frame(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            expected = self._waiting[0].correlation_id if self._waiting else "none"
            self._fail(f"an answer to request {correlation_id} came, where {expected} is the next to be answered")
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
        self._timer = self._loop.call_at(min(first.deadline, now + pause), self._look_at_time)
        if is_silent and self._on_silence is not None:
            self._on_silence(self)

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
            waiting, self._waiting = self._waiting, deque()
            for each in waiting:
                if not each.answer.done():
                    each.answer.set_exception(ConnectionLostError(str(self._failure)))
                    # Whoever gave up on the answer must not be told about it by the event loop.
                    each.answer.exception()
        return self._failure


def _words(error: OSError) -> str:
    """Why a connection could not be made; the event loop's own words speak of calls and tuples."""
    told = error.strerror or str(error)
    if error.errno is None or "cannot be resolved" in told:
        return told
    return os.strerror(error.errno).lower()
