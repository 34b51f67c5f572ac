"""Keeps a ZooKeeper session: when one is over, the next begins, without the leases of the last one.

`session.py` is one session. The rest of the store sends its requests through here, to the current session.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from ottla.env.ports import Clock
from ottla.metadata.lease_owner import LeaseOwner, this_process
from ottla.metadata.zookeeper.commit_log import CommitLog
from ottla.metadata.zookeeper.security import ZooKeeperSecurity
from ottla.metadata.zookeeper.session import (
    DisconnectedError,
    NodeExistsError,
    NoNodeError,
    ZooKeeperSession,
)

T = TypeVar("T")

CLOSE_SECONDS: Final = 5.0


class SessionRenewal:
    """`run` until cancelled. `on_connected` is called at each connection, `on_over` when a session has ended."""

    def __init__(
        self,
        hosts: str,
        clock: Clock,
        log: CommitLog,
        timeout_ms: int,
        security: ZooKeeperSecurity,
        *,
        on_connected: Callable[[], None],
        on_over: Callable[[], None],
    ) -> None:
        self._hosts = hosts
        self._clock = clock
        self._log = log
        self._timeout_ms = timeout_ms
        self._security = security
        self._on_connected = on_connected
        self._on_over = on_over
        self._has_session = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._left: set[str] = set()
        self._seen_zxid = 0
        self.present: ZooKeeperSession | None = None
        """The current session; it may be over already."""

    async def run(self) -> None:
        """Keeps a session until cancelled."""
        while True:
            session = ZooKeeperSession(
                self._hosts,
                self._clock,
                self._timeout_ms,
                security=self._security,
                seen_zxid=self._seen_zxid,
                on_connected=self._on_connected,
            )
            try:
                session.start()
                await self._show(session)
                self.present = session
                self._has_session.set()
                await session.run(self._log.session_path(session.token))
            except DisconnectedError:
                # It was over before it was published.
                pass
            finally:
                self._retire(session)

    def _retire(self, session: ZooKeeperSession) -> None:
        self._end(session)
        self.present = None
        self._has_session.clear()
        self._seen_zxid = max(self._seen_zxid, session.seen_zxid)
        self._left.add(session.token)
        self._on_over()

    def _end(self, session: ZooKeeperSession) -> None:
        session.end("the store closed it", logging.DEBUG)
        closing = asyncio.create_task(session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def probe(self, ask: Callable[[ZooKeeperSession], Awaitable[None]]) -> None:
        """Runs until cancelled. While the store is disconnected, opens a new session once per timeout and calls `ask`.

        A server closes the connection of a session that has seen newer data than the server has, and gives no reason. A
        new session has seen nothing.
        """
        seconds = self._timeout_ms / 1000
        while True:
            await self._clock.sleep(seconds)
            session = self.present
            if session is not None and session.is_connected:
                continue
            unknown = ZooKeeperSession(self._hosts, self._clock, self._timeout_ms, security=self._security)
            unknown.start()
            try:
                async with asyncio.timeout(seconds):
                    await unknown.wait_connected()
                    await ask(unknown)
            except (TimeoutError, DisconnectedError):
                continue
            finally:
                self._end(unknown)

    async def _show(self, session: ZooKeeperSession) -> None:
        """Creates the session's node, and removes those of earlier sessions of this process: their leases are lost, and
        others should not have to wait until the ensemble notices."""
        path = self._log.session_path(session.token)
        while True:
            await session.wait_connected()
            try:
                await self._log.prepare(session)
                # It exists if it was created before and the answer was lost.
                with suppress(NodeExistsError):
                    await session.create(path, msgspec.json.encode(_this_holder(session.token)), ephemeral=True)
                for token in sorted(self._left):
                    with suppress(NoNodeError):
                        await session.delete(self._log.session_path(token))
                self._left.clear()
                return
            except DisconnectedError:
                continue

    async def ask(self, ask: Callable[[ZooKeeperSession], Awaitable[T]]) -> T:
        """Repeats a request until there is an answer, from this session or a later one. Only for idempotent
        requests."""
        while True:
            await self._has_session.wait()
            session = self.present
            try:
                if session is not None:
                    await session.wait_connected()
                    return await ask(session)
            except DisconnectedError:
                # Lets the tasks that wait for the end of the session, or the loss of the connection, run first.
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Waits until ended sessions have been reported to the ensemble, but not for a server that hangs."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_SECONDS)


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a session's node: its holder, for operators and for `local_sessions.py`."""

    host: str
    process: LeaseOwner


def _this_holder(token: str) -> _Holder:
    return _Holder(host=socket.gethostname(), process=msgspec.structs.replace(this_process(), token=token))


def read_owner(data: bytes) -> LeaseOwner:
    """The process in a session's node. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=_Holder).process


def read_place(data: bytes) -> str:
    """The process in a session's node with its machine, for operators."""
    try:
        holder = msgspec.json.decode(data, type=_Holder)
    except msgspec.DecodeError:
        return "an unknown process"
    return f"process {holder.process.pid} on {holder.host}"
