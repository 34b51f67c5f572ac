"""This broker's copy of the keys in ZooKeeper, updated from the log of commits.

`refresh` updates it to everything that was committed before the call; otherwise it follows the log with one watch. The
last commits are kept in memory for followers. `commits.py` writes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from ottla.metadata.key_table import KeyTable
from ottla.metadata.store import Change, RevisionGoneError
from ottla.metadata.zookeeper.commit_log import READS_AT_ONCE, CommitLog, LogEntry, LogGoneError
from ottla.metadata.zookeeper.session import NoNodeError, ZooKeeperSession
from ottla.metadata.zookeeper.session_renewal import SessionRenewal
from ottla.model.errors import OlderMetadataError, StorageError


class KeyReplica:
    """`on_entry` is called with each commit and its revision as it is applied, `on_loaded` when a snapshot has replaced
    the table, so that commits were skipped."""

    def __init__(
        self,
        log: CommitLog,
        sessions: SessionRenewal,
        servers: str,
        changes_kept: int,
        *,
        on_entry: Callable[[LogEntry, int], None],
        on_loaded: Callable[[], None],
    ) -> None:
        self.table = KeyTable()
        self._log = log
        self._sessions = sessions
        self._servers = servers
        self._on_entry = on_entry
        self._on_loaded = on_loaded
        self._is_loaded = False
        self._advancing = asyncio.Lock()
        self._history: deque[list[Change]] = deque(maxlen=changes_kept)
        self._news = asyncio.Event()
        self._may_have_changed = asyncio.Event()

    async def run(self) -> None:
        """Follows the store until cancelled."""

        async def read(session: ZooKeeperSession) -> None:
            self._may_have_changed.clear()
            data, stat = await session.get(self._log.position_path, self.look)
            if self._is_loaded and stat.version < self.table.revision:
                # A server that lags behind, or an ensemble that was restored from a backup: `_refresh` finds out.
                await self._refresh(session)
            else:
                await self._advance(session, stat.version, data)

        while True:
            await self._sessions.ask(read)
            await self._may_have_changed.wait()

    def look(self) -> None:
        """There may be news: a watch has fired, or there is a new connection, on which no watch is set."""
        self._may_have_changed.set()

    async def refresh(self) -> None:
        """Updates the table to everything that was committed before the call. Raises StorageError if that is less than
        has been seen before."""
        await self._sessions.ask(self._refresh)

    async def _refresh(self, session: ZooKeeperSession) -> None:
        before = self.table.revision
        # Both requests are sent at once; they are answered in this order.
        _, (data, stat) = await asyncio.gather(
            session.sync(self._log.position_path), session.get(self._log.position_path)
        )
        self._check_not_before(before, stat.version)
        await self._advance(session, stat.version, data)

    async def check_not_replaced(self, session: ZooKeeperSession) -> None:
        """Raises OlderMetadataError if the ensemble has less than has been seen before."""
        before = self.table.revision
        try:
            await session.sync(self._log.position_path)
            _, stat = await session.get(self._log.position_path)
        except NoNodeError:
            self._check_not_before(before, 0)
        else:
            self._check_not_before(before, stat.version)

    def _check_not_before(self, before: int, revision: int) -> None:
        if self._is_loaded and revision < before:
            raise OlderMetadataError(
                f"the metadata store {self._servers} went back from revision {before} to {revision}: its data was "
                "replaced; stop all brokers and restore the newest backup of ZooKeeper's data"
            )

    async def _advance(self, session: ZooKeeperSession, head: int, head_data: bytes) -> None:
        """Applies the commits up to `head`; the data of the newest one may be given."""
        async with self._advancing:
            if not self._is_loaded:
                await self._load(session)
            while self.table.revision < head:
                first = self.table.revision + 1
                try:
                    if first == head and head_data:
                        entries = [await self._log.decode_entry(session, head, head_data)]
                    else:
                        entries = await self._log.read(session, first, min(head, first + READS_AT_ONCE - 1))
                except LogGoneError:
                    await self._load(session)
                    continue
                self._apply(entries)

    async def on_committed(self, session: ZooKeeperSession, base: int, entries: Sequence[LogEntry]) -> None:
        """Commits of this process were made after revision `base`."""
        async with self._advancing:
            # The watch may have been faster, with some or all of them.
            self._apply(entries[self.table.revision - base :])

    def _apply(self, entries: Sequence[LogEntry]) -> None:
        for entry in entries:
            self._history.append(self.table.apply(entry.written, entry.owner))
            self._on_entry(entry, self.table.revision)
        self._announce()

    async def _load(self, session: ZooKeeperSession) -> None:
        table = await self._log.load(session)
        if self._is_loaded and table.revision <= self.table.revision:
            raise StorageError(
                f"the metadata store {self._servers} lacks commits after revision {self.table.revision}: stop all "
                "brokers and restore the newest backup of ZooKeeper's data"
            )
        self.table = table
        self._is_loaded = True
        self._history.clear()
        self._on_loaded()
        self._announce()

    def _announce(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    # For followers

    async def wait_after(self, revision: int) -> None:
        """Returns when the table is at another revision, or after `wake`."""
        if revision == self.table.revision:
            await self._news.wait()

    def wake(self) -> None:
        """Makes waiting followers check again."""
        self._announce()

    async def changes_after(self, revision: int) -> list[list[Change]]:
        """The commits after a revision, in order, some or all of them. Raises RevisionGoneError."""
        newest = self.table.revision
        oldest = newest - len(self._history)
        if oldest <= revision < newest:
            return [self._history[place] for place in range(revision - oldest, len(self._history))]
        if revision < newest:
            last = min(revision + READS_AT_ONCE, newest)
            with suppress(LogGoneError):
                entries = await self._sessions.ask(lambda session: self._log.read(session, revision + 1, last))
                return [
                    [Change(at, key, value) for key, value in entry.written]
                    for at, entry in enumerate(entries, revision + 1)
                ]
        raise RevisionGoneError(
            f"the metadata store {self._servers} is at revision {newest} and does not have all changes after "
            f"{revision}: take a snapshot and follow from there"
        )
