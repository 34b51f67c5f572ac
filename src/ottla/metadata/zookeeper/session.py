"""One session with a ZooKeeper ensemble, for an event loop: requests, watches, and how long it certainly lives.

kazoo implements the protocol, finds servers and reconnects, in its own threads; this module passes its results to the
event loop. A session is used once: when it is over, `session_renewal.py` starts another. It is over when the ensemble
says so, when the store ends it, or when its time is up by this process's clock.

That time is counted from before the last answered request, and is two thirds of the granted timeout: a server answers
by itself, and reports living sessions to the ensemble's leader only every half tick, so that the leader may count from
a little earlier. A session's timeout is at least two ticks, so that a third of it is more than that.
"""

import asyncio
import logging
import ssl
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from ottla.env.ports import Clock
from ottla.env.wait_first import wait_first
from ottla.metadata.zookeeper.security import ZooKeeperSecurity

SURE_SHARE: Final = 2 / 3
"""The part of a session's timeout for which it certainly lives after an answered request."""
ASKS_PER_LIFE: Final = 5
"""How many heartbeats a session sends during that time."""
RECONNECT_DELAY_MAX: Final = 0.5

_LOGGER: Final = logging.getLogger(__name__)
_UNANSWERED: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    SessionExpiredError,
    SessionMovedError,
    OperationTimeoutError,
)

__all__ = ["BadVersionError", "DisconnectedError", "KazooException", "NoNodeError", "NodeExistsError"]


class DisconnectedError(Exception):
    """The connection was lost before the answer arrived: the request may have been executed."""


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads, with less patience for a server that does not accept connections: another one may.

    A TLS handshake has as much time as kazoo gives the first request. A server that was just elected is slow at it, and
    to give up and try again only makes it slower.
    """

    def __init__(self, connect_seconds: float, handshake_seconds: float, ssl_context: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_seconds = connect_seconds
        self._handshake_seconds = handshake_seconds
        self._ssl_context = ssl_context

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """Connects to one server; TLS is ours, so that only the configured authorities are trusted."""
        seconds = min(self._connect_seconds, options.get("timeout") or self._connect_seconds)
        options["timeout"] = seconds
        if self._ssl_context is None:
            return super().create_connection(*args, **options)
        connected = super().create_connection(*args, **{**options, "use_ssl": False})
        try:
            connected.settimeout(self._handshake_seconds)
            return self._ssl_context.wrap_socket(connected, server_hostname=options.get("hostname"))
        except BaseException:
            connected.close()
            raise


class ZooKeeperSession:
    """A session. `on_connected` is called at each connection, the first one and later ones: watches that were set
    before are gone then. `token` names the session, in this process and in the store."""

    def __init__(
        self,
        servers: str,
        clock: Clock,
        timeout_ms: int,
        *,
        security: ZooKeeperSecurity,
        seen_zxid: int = 0,
        on_connected: Callable[[], None] = lambda: None,
    ) -> None:
        self.token = uuid.uuid4().hex
        self._clock = clock
        self._on_connected = on_connected
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._connected = asyncio.Event()
        self._over = asyncio.Event()
        self._sure_until: float | None = None
        self._timeout_ms = timeout_ms
        share = timeout_ms / 1000 / (servers.count(",") + 1)
        self._client = KazooClient(
            hosts=servers,
            timeout=timeout_ms / 1000,
            handler=_Handler(share / 3, share, security.ssl_context),
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=RECONNECT_DELAY_MAX),
            logger=_LOGGER,
            use_ssl=security.ssl_context is not None,
            **security.client_options(),
        )
        # A server that has not seen what the last session saw would show an older state.
        self._client.last_zxid = seen_zxid
        self._client.add_listener(self._on_state)
        self._learn_timeout()

    def _learn_timeout(self) -> None:
        """The ensemble may grant a shorter timeout than requested, and kazoo does not report it."""
        connection = self._client._connection
        connect = connection._connect

        def connect_and_learn(*args: Any) -> Any:
            read_timeout, connect_timeout = connect(*args)
            # kazoo waits for an answer for two thirds of the granted timeout.
            self._timeout_ms = read_timeout * 3 / 2
            return read_timeout, connect_timeout

        connection._connect = connect_and_learn

    @property
    def seen_zxid(self) -> int:
        """The newest transaction that the session has seen."""
        return int(self._client.last_zxid)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as known."""
        return self._connected.is_set()

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, or may have; never goes back to False."""
        if not self._over.is_set() and self._sure_until is not None and self._sure_until <= self._clock.monotonic():
            self.end("no response from ZooKeeper for most of the session timeout")
        return self._over.is_set()

    def start(self) -> None:
        """Starts to connect; returns at once."""
        self._client.start_async()

    async def run(self, path: str) -> None:
        """Sends heartbeats by reading the session's node; returns when the session is over."""
        while not self.is_over:
            if self.is_connected:
                self.exists(path).add_done_callback(self._on_alive)
            await self._sleep(self._timeout_ms / 1000 * SURE_SHARE / ASKS_PER_LIFE)

    def _on_alive(self, answer: asyncio.Future[Any]) -> None:
        if answer.exception() is None and answer.result() is None:
            self.end("its znode was removed")

    async def _sleep(self, seconds: float) -> None:
        """Waits until this time, until the session's certain time is up, or until it is over."""
        if self._sure_until is not None:
            seconds = min(seconds, max(0.0, self._sure_until - self._clock.monotonic()))
        await wait_first(self._clock.sleep(seconds), self._over.wait())

    async def wait_over(self) -> None:
        """Returns when the session is over."""
        await self._over.wait()

    async def wait_connected(self) -> None:
        """Returns when there is a connection. Raises DisconnectedError when the session is over."""
        while not self.is_connected:
            if self.is_over:
                raise DisconnectedError
            await wait_first(self._connected.wait(), self._over.wait())

    def end(self, why: str, level: int = logging.WARNING) -> None:
        """The session is over: nothing it waits for will arrive."""
        if self._over.is_set():
            return
        _LOGGER.log(level, "ZooKeeper session %s ended: %s", self.token, why)
        self._over.set()
        self._connected.clear()
        for future in self._waiting:
            if not future.done():
                future.set_exception(DisconnectedError())
        self._waiting.clear()

    async def close(self) -> None:
        """Tells the ensemble that the session ends, if it can be reached, and ends the threads."""
        self.end("closed", logging.DEBUG)

        stopped: asyncio.Future[None] = self._loop.create_future()

        def stop() -> None:
            # kazoo raises if a server hangs; there is nothing left to do about it.
            with suppress(Exception):
                self._client.stop()
                self._client.close()
            self._in_loop(_finish, stopped)

        # In its own thread, since a thread of the loop would keep the process from ending while a server hangs.
        threading.Thread(target=stop, name="ottla-zookeeper-close", daemon=True).start()
        await stopped

    # Requests

    def get(self, path: str, watch: Callable[[], None] | None = None) -> asyncio.Future[Any]:
        """A node's data and stat; `watch` is called once when it changes."""
        return self._ask(self._client.get_async, path, self._watcher(watch))

    def exists(self, path: str) -> asyncio.Future[Any]:
        """A node's stat, or None."""
        return self._ask(self._client.exists_async, path)

    def children(self, path: str, watch: Callable[[], None] | None = None) -> asyncio.Future[Any]:
        """The names below a node; `watch` is called once when they change."""
        return self._ask(self._client.get_children_async, path, self._watcher(watch))

    def sync(self, path: str) -> asyncio.Future[Any]:
        """Returns when the server has caught up with the ensemble's leader."""
        return self._ask(self._client.sync_async, path)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> asyncio.Future[Any]:
        """Creates a node. Raises NodeExistsError, or NoNodeError if its parent is missing."""
        return self._ask(self._client.create_async, path, data, None, ephemeral)

    def set(self, path: str, data: bytes, version: int) -> asyncio.Future[Any]:
        """Writes a node at this version. Raises BadVersionError."""
        return self._ask(self._client.set_async, path, data, version)

    def delete(self, path: str) -> asyncio.Future[Any]:
        """Removes a node. Raises NoNodeError."""
        return self._ask(self._client.delete_async, path)

    def transaction(self, fill: Callable[[Any], None]) -> asyncio.Future[Any]:
        """Executes all operations that `fill` adds, or none: a result for each, exceptions if none was executed."""

        def commit() -> Any:
            transaction = TransactionRequest(self._client)
            fill(transaction)
            return transaction.commit_async()

        return self._ask(commit)

    # Between kazoo's threads and the event loop

    def _ask(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        if self.is_over:
            future.set_exception(DisconnectedError())
            return future
        self._waiting.add(future)
        asked_at = self._clock.monotonic()
        answer = call(*args)
        answer.rawlink(lambda done: self._in_loop(self._on_answer, future, done, asked_at))
        return future

    def _on_answer(self, future: asyncio.Future[Any], answer: Any, asked_at: float) -> None:
        self._waiting.discard(future)
        error = answer.exception
        if isinstance(error, _UNANSWERED):
            error = DisconnectedError()
        elif not self.is_over:
            # Not earlier: time that is up does not come back, since another broker may have acted on it.
            sure_until = asked_at + self._timeout_ms / 1000 * SURE_SHARE
            self._sure_until = max(sure_until, self._sure_until or sure_until)
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(answer.value)

    def _watcher(self, watch: Callable[[], None] | None) -> Callable[[Any], None] | None:
        return None if watch is None else lambda _: self._in_loop(watch)

    def _on_state(self, state: Any) -> None:
        """Called by kazoo's connection thread, which must not block."""
        self._in_loop(self._on_state_in_loop, state)

    def _on_state_in_loop(self, state: Any) -> None:
        if state == KazooState.LOST:
            self.end("expired by the ensemble")
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
        elif not self.is_over:
            self._connected.set()
            self._on_connected()

    def _in_loop(self, function: Callable[..., None], *args: Any) -> None:
        # The loop may have ended before kazoo's threads.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
