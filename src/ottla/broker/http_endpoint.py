"""Metrics and health over HTTP, for Prometheus and for process supervisors.

A small HTTP/1.1 service: GET and HEAD of a few fixed paths, bounded in size, time and number of connections. A new
connection is always accepted: if there are too many, the one that has waited longest is closed, so that slow clients
cannot keep a liveness probe out. Metrics are collected once for all clients that wait for them, with pauses, so that
scrapes can slow down neither the broker nor a probe. The numbers come from `metrics.py`, the health from `health.py`.
There is no authentication: bind it to an address that only operators can reach. On loopback it answers only
requests whose Host header names this machine: otherwise a web page could read it by DNS rebinding.
"""

import asyncio
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from errno import EIO
from socket import gaierror
from typing import Any, Final

import h11

from ottla.broker.health import Health
from ottla.broker.metrics import Metrics
from ottla.env.ports import Clock
from ottla.transport.http_hosts import HostNames
from ottla.version import __version__

_LOGGER: Final = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 16 * 1024
"""The size limit of a request line and its headers."""
CONNECTIONS_MAX: Final = 64
CONNECTIONS_PER_HOST_MAX: Final = 16
"""Of one client address."""
REQUEST_SECONDS: Final = 10.0
"""How long a connection may take to send a request, be idle, or receive a response."""

_PAUSE_PER_COLLECTION: Final = 9
"""The pause after a collection of metrics, as a multiple of its duration: they take a tenth of the time at most."""

_JSON: Final = "application/json"
_PATHS: Final = {
    "/": "this index",
    "/metrics": "everything that is counted, in Prometheus's text format",
    "/health/live": "200 while the event loop runs",
    "/health/ready": "200 while every partition assigned to the broker is served, else 503 with the reasons",
}


@dataclass(slots=True, eq=False)
class _Conversation:
    """One connection. `waits_since` is when it began to wait, for its client or for metrics."""

    host: str
    task: "asyncio.Task[None]"
    writer: asyncio.StreamWriter
    waits_since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    body: bytes
    content_type: str = _JSON
    allow: str | None = None


class HttpEndpoint:
    """Serves the metrics and health of one broker; may be started before the broker, and stopped after it."""

    def __init__(
        self, health: Health, metrics: Metrics, clock: Clock, *, request_seconds: float = REQUEST_SECONDS
    ) -> None:
        self._health = health
        self._metrics = metrics
        self._clock = clock
        self._request_seconds = request_seconds
        self._service: asyncio.Server | None = None
        self._hosts = HostNames("")
        self._measuring: asyncio.Task[None] | None = None
        self._has_closed = False
        self._conversations: list[_Conversation] = []
        self._next_scrape: asyncio.Task[tuple[bytes, str]] | None = None
        """The collection of metrics that has not begun; requests that arrive until then share it."""
        self._scrapes: set[asyncio.Task[tuple[bytes, str]]] = set()
        self._collecting = asyncio.Lock()
        self._collects_from = 0.0
        """When the pause after the last collection is over."""

    async def start(self, host: str, port: int) -> int:
        """Opens the port and returns it; 0 chooses a free one. Raises OSError if it is in use."""
        self._hosts = HostNames(host)
        self._metrics.load()
        try:
            self._service = await asyncio.start_server(self._on_connection, host, port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            # asyncio's own text repeats the address as a Python tuple. Failures of name resolution have other numbers.
            reason = (error.strerror or str(error)) if isinstance(error, gaierror) else os.strerror(error.errno or EIO)
            raise OSError(error.errno, f"cannot serve HTTP on {host}:{port}: {reason}") from error
        self._measuring = asyncio.get_running_loop().create_task(self._metrics.lag.run())
        chosen: int = self._service.sockets[0].getsockname()[1]
        return chosen

    async def stop(self) -> None:
        """Closes every connection at once. May be called twice, and without `start`."""
        if self._service is not None:
            self._service.close()
        ending: list[asyncio.Task[Any]] = [*(each.task for each in self._conversations), *self._scrapes]
        if self._measuring is not None:
            ending.append(self._measuring)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        if self._service is not None:
            await self._service.wait_closed()
        self._service = self._measuring = None

    # Connections

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            writer.close()
            return
        host = str((writer.get_extra_info("peername") or ("",))[0])
        conversation = _Conversation(host, task, writer, self._clock.monotonic())
        self._make_room(host)
        self._conversations.append(conversation)
        try:
            await self._converse(reader, conversation)
        except (OSError, TimeoutError):
            pass  # The client left, or is too slow.
        except asyncio.CancelledError:
            pass  # The endpoint stops; asyncio would report a cancelled task of the stream server as a failure.
        except Exception as error:
            _LOGGER.error("a request to the HTTP endpoint failed unexpectedly: %s", error, exc_info=error)
        finally:
            if conversation in self._conversations:
                self._conversations.remove(conversation)
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _make_room(self, host: str) -> None:
        """Closes the connection that has waited longest for its client, where a new one would be too many."""
        same = [each for each in self._conversations if each.host == host]
        if len(same) >= CONNECTIONS_PER_HOST_MAX:
            crowd = same
        elif len(self._conversations) >= CONNECTIONS_MAX:
            crowd = self._conversations
        else:
            return
        oldest = min(crowd, key=lambda each: each.waits_since)
        self._conversations.remove(oldest)
        if not self._has_closed:
            self._has_closed = True
            _LOGGER.warning(
                "HTTP endpoint: closed the connection from %s that was idle for longest, at the limit of %d connections"
                " or %d from one address; this is logged once",
                oldest.host,
                CONNECTIONS_MAX,
                CONNECTIONS_PER_HOST_MAX,
            )
        oldest.writer.transport.abort()
        oldest.task.cancel()

    async def _converse(self, reader: asyncio.StreamReader, conversation: _Conversation) -> None:
        """Answers requests one after the other, until one side closes."""
        writer = conversation.writer
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        while True:
            is_head = False
            try:
                async with asyncio.timeout(self._request_seconds):
                    request = await _read_request(connection, reader)
                if request is None:
                    return
                is_head = request.method == b"HEAD"
                conversation.waits_since = self._clock.monotonic()
                answer = await self._answer(request)
            except h11.RemoteProtocolError as error:
                if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                    return
                answer = _refusal(error.error_status_hint, str(error))
            if writer.transport.is_closing():
                return  # The client left meanwhile.
            conversation.waits_since = self._clock.monotonic()
            async with asyncio.timeout(self._request_seconds):
                await _write_answer(connection, writer, answer, is_head=is_head)
            if connection.our_state is h11.MUST_CLOSE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    # Answers

    async def _answer(self, request: h11.Request) -> _Answer:
        host = next((value.decode("latin-1") for name, value in request.headers if name == b"host"), None)
        refusal = None if host is None else self._hosts.host_refusal(host)
        if refusal is not None:
            return _refusal(421, refusal)
        path = request.target.decode("ascii", "replace").partition("?")[0]
        if path not in _PATHS:
            return _refusal(404, f"{path[:100]} does not exist; the paths are {', '.join(_PATHS)}")
        if request.method not in (b"GET", b"HEAD"):
            return _Answer(status=405, body=_as_json({"error": "only GET and HEAD are answered"}), allow="GET, HEAD")
        if path == "/metrics":
            body, content_type = await self._scraped()
            return _Answer(status=200, body=body, content_type=content_type)
        if path == "/health/live":
            return _Answer(status=200, body=_as_json({"status": "live"}))
        if path == "/health/ready":
            reasons = self._health.unready_reasons()
            status: dict[str, object] = {"status": "unready", "reasons": reasons} if reasons else {"status": "ready"}
            if warnings := self._health.warnings():
                status["warnings"] = warnings
            return _Answer(status=503 if reasons else 200, body=_as_json(status))
        return _Answer(status=200, body=_as_json({"name": "ottla", "version": __version__, "paths": _PATHS}))

    async def _scraped(self) -> tuple[bytes, str]:
        """Metrics collected after this call. A client that leaves does not cancel the collection for others."""
        if self._next_scrape is None:
            self._next_scrape = asyncio.get_running_loop().create_task(self._collect())
            self._scrapes.add(self._next_scrape)
            self._next_scrape.add_done_callback(self._scrapes.discard)
        return await asyncio.shield(self._next_scrape)

    async def _collect(self) -> tuple[bytes, str]:
        clock = self._clock
        async with self._collecting:
            await clock.sleep(max(self._collects_from - clock.monotonic(), 0.0))
            self._next_scrape = None
            begun = clock.monotonic()
            try:
                return await self._metrics.text()
            finally:
                ended = clock.monotonic()
                self._collects_from = ended + _PAUSE_PER_COLLECTION * (ended - begun)


async def _read_request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request's head, and its body passed over; None if the other side is done."""
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            if request is not None and connection.they_are_waiting_for_100_continue:
                return request  # Its body is not wanted, and need not be waited for.
            connection.receive_data(await reader.read(HEAD_BYTES_MAX))
        elif isinstance(event, h11.Request):
            request = event
            if _has_body(event):
                return request  # The connection ends with the answer, so that the body need not be read.
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
            return None


def _has_body(request: h11.Request) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in request.headers
    )


async def _write_answer(
    connection: h11.Connection, writer: asyncio.StreamWriter, answer: _Answer, *, is_head: bool
) -> None:
    headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
    if answer.allow is not None:
        headers.append(("Allow", answer.allow))
    if connection.their_state is not h11.DONE:
        headers.append(("Connection", "close"))
    parts = [connection.send(h11.Response(status_code=answer.status, headers=headers))]
    if not is_head:
        parts.append(connection.send(h11.Data(data=answer.body)))
    parts.append(connection.send(h11.EndOfMessage()))
    writer.write(b"".join(part for part in parts if part))
    await writer.drain()


def _refusal(status: int, reason: str) -> _Answer:
    return _Answer(status=status, body=_as_json({"error": reason}))


def _as_json(content: object) -> bytes:
    return json.dumps(content).encode() + b"\n"
