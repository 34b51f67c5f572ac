"""One ZooKeeper session after another: when one is over, the next begins, without what the last one held.

`zookeeper_session.py` is one session; here is who makes them, and how the rest of the store asks whichever lives.
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
from ottla.metadata.zookeeper_log import ZooKeeperLog
from ottla.metadata.zookeeper_session import (
    DisconnectedError,
    NodeExistsError,
    NoNodeError,
    ZooKeeperSession,
)

T = TypeVar("T")

CLOSE_SECONDS: Final = 5.0


class ZooKeeperSessions:
    """`run` until cancelled. `on_connected` is called at each connection, `on_over` when a session has ended."""

    def __init__(
        self,
        hosts: str,
        clock: Clock,
        log: ZooKeeperLog,
        timeout_ms: int,
        *,
        on_connected: Callable[[], None],
        on_over: Callable[[], None],
    ) -> None:
        self._hosts = hosts
        self._clock = clock
        self._log = log
        self._timeout_ms = timeout_ms
        self._on_connected = on_connected
        self._on_over = on_over
        self._has_session = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        self._left: set[str] = set()
        self._seen_zxid = 0
        self.present: ZooKeeperSession | None = None
        """The session that is shown to the others; it may be over already."""

    async def run(self) -> None:
        """Keeps a session."""
        while True:
            session = ZooKeeperSession(
                self._hosts,
                self._clock,
                self._timeout_ms,
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
                # It was over before it was shown.
                pass
            finally:
                self._retire(session)

    def _retire(self, session: ZooKeeperSession) -> None:
        session.end("the store is done with it", logging.DEBUG)
        self.present = None
        self._has_session.clear()
        self._seen_zxid = max(self._seen_zxid, session.seen_zxid)
        self._left.add(session.token)
        self._on_over()
        closing = asyncio.create_task(session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _show(self, session: ZooKeeperSession) -> None:
        """Makes the session's node, and removes those that this process left behind: what they held is lost here, and
        nobody should have to wait until the ensemble sees that too."""
        path = self._log.session_path(session.token)
        while True:
            await session.wait_connected()
            try:
                await self._log.prepare(session)
                # It exists where it was made before, and the answer lost.
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
        """Asks until there is an answer, of this session or a later one. Only for what may be done twice."""
        while True:
            await self._has_session.wait()
            session = self.present
            try:
                if session is not None:
                    await session.wait_connected()
                    return await ask(session)
            except DisconnectedError:
                # Whoever has to see that the session is over, or the connection lost, sees it now.
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Waits until the sessions that ended have said so to the ensemble, but not for a server that hangs."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_SECONDS)


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's node says: who holds it, for people and for `zookeeper_neighbours.py`."""

    host: str
    process: LeaseOwner


def _this_holder(token: str) -> _Holder:
    return _Holder(host=socket.gethostname(), process=msgspec.structs.replace(this_process(), token=token))


def read_owner(data: bytes) -> LeaseOwner:
    """The process that a session's node names. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=_Holder).process


def read_place(data: bytes) -> str:
    """The same, with its machine, for people."""
    try:
        holder = msgspec.json.decode(data, type=_Holder)
    except msgspec.DecodeError:
        return "an unknown process"
    return f"process {holder.process.pid} on {holder.host}"
