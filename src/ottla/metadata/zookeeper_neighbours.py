"""Sessions of processes that died on this machine: they are ended at once, instead of at the end of their timeout.

ZooKeeper sees only that a process is silent. Another process of the same machine can see that it is dead, and a broker
that is started again can see it of its own former life. Whoever sees it removes the dead session's node, which is all
that makes a session live for the others (`zookeeper_store.py` ends its leases). What cannot be seen from here, as a
process of another machine or in another container, has to expire.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

import msgspec

from ottla.metadata.lease_owner import LeaseOwner, can_be_seen, is_gone
from ottla.metadata.owner_watch import OwnerWatch
from ottla.metadata.zookeeper_log import ZooKeeperLog
from ottla.metadata.zookeeper_session import NoNodeError
from ottla.metadata.zookeeper_sessions import ZooKeeperSessions, read_owner

_LOGGER: Final = logging.getLogger(__name__)


class ZooKeeperNeighbours:
    """`run` until cancelled."""

    def __init__(self, log: ZooKeeperLog, sessions: ZooKeeperSessions) -> None:
        self._log = log
        self._sessions = sessions
        self._owners: dict[str, LeaseOwner | None] = {}
        """Of the sessions that were there at the last look; None where nobody here can tell."""
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Sessions may have come and gone unseen."""
        self._changed.set()

    async def run(self) -> None:
        """Ends the sessions of the dead as they die."""
        watch = OwnerWatch(self.look)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._learn_owners()
                seen = {token: owner for token, owner in self._owners.items() if owner is not None}
                # Watched before they are looked at: who dies in between is noticed by either.
                watch.watch(seen.values())
                for token, owner in seen.items():
                    if is_gone(owner):
                        await self._end(token, owner)
        finally:
            watch.close()

    async def _learn_owners(self) -> None:
        names = await self._sessions.ask(lambda session: session.children(self._log.sessions_path, self.look))
        known, self._owners = self._owners, {}
        for token in sorted(names):
            self._owners[token] = known[token] if token in known else await self._owner_of(token)

    async def _owner_of(self, token: str) -> LeaseOwner | None:
        path = self._log.session_path(token)
        try:
            data, _ = await self._sessions.ask(lambda session: session.get(path))
            owner = read_owner(data)
        except (NoNodeError, msgspec.DecodeError):
            return None
        return owner if can_be_seen(owner) else None

    async def _end(self, token: str, owner: LeaseOwner) -> None:
        _LOGGER.warning("process %d is gone; its ZooKeeper session %s ends now", owner.pid, token)
        path = self._log.session_path(token)
        with suppress(NoNodeError):
            await self._sessions.ask(lambda session: session.delete(path))
