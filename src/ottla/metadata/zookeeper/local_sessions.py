"""Ends the sessions of processes that died on this machine at once, instead of when they time out.

ZooKeeper only sees that a process is silent. Another process on the same machine can see that it is dead, and so can a
restarted broker of its previous run. It removes the dead session's node, which ends the session for all other brokers
(`zookeeper_store.py` ends its leases). Sessions of processes on other machines or in other containers must expire.
"""

import asyncio
import logging
from contextlib import suppress
from typing import Final

import msgspec

from ottla.metadata.lease_owner import LeaseOwner, can_be_seen, is_gone
from ottla.metadata.owner_watch import OwnerWatch
from ottla.metadata.zookeeper.commit_log import CommitLog
from ottla.metadata.zookeeper.session import NoNodeError
from ottla.metadata.zookeeper.session_renewal import SessionRenewal, read_owner

_LOGGER: Final = logging.getLogger(__name__)


class LocalSessions:
    """`run` until cancelled."""

    def __init__(self, log: CommitLog, sessions: SessionRenewal) -> None:
        self._log = log
        self._sessions = sessions
        self._owners: dict[str, LeaseOwner | None] = {}
        """The owners of the sessions at the last check; None if they cannot be seen from here."""
        self._changed = asyncio.Event()

    def look(self) -> None:
        """Sessions may have come and gone unnoticed."""
        self._changed.set()

    async def run(self) -> None:
        """Ends the sessions of processes as they die."""
        watch = OwnerWatch(self.look)
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                await self._learn_owners()
                seen = {token: owner for token, owner in self._owners.items() if owner is not None}
                # Watched before they are checked, so that a process that dies in between is noticed.
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
        _LOGGER.warning("process %d died; ended its ZooKeeper session %s", owner.pid, token)
        path = self._log.session_path(token)
        with suppress(NoNodeError):
            await self._sessions.ask(lambda session: session.delete(path))
