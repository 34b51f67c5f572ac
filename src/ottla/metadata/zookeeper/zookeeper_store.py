"""The metadata store of several machines: a ZooKeeper ensemble behind the `MetadataStore` port.

Every broker has a copy of all keys (`key_replica.py`), updated from the log of commits in ZooKeeper (`commit_log.py`
has the layout). A commit is decided on that copy and made (`commits.py`) by one transaction that succeeds only if
nothing was committed in between.

A lease is a key whose entry in the log names its session. When a session is over, any other broker removes its keys
with a commit, so that the end of a lease is a change like any other. A session is over when the ensemble got no
heartbeat from it within its timeout, or when another process saw its process die (`local_sessions.py`). Nothing here
blocks the event loop: kazoo's threads talk to ZooKeeper (`session.py`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from ottla.env.ports import Clock
from ottla.metadata.session_lease import SessionLease
from ottla.metadata.store import (
    Change,
    ConflictError,
    Delete,
    Entry,
    Operation,
    Put,
    StoreUnavailableError,
    check_key,
    check_operations,
)
from ottla.metadata.zookeeper.commit_log import CommitLog, LogEntry
from ottla.metadata.zookeeper.commits import Commits
from ottla.metadata.zookeeper.key_replica import KeyReplica
from ottla.metadata.zookeeper.local_sessions import LocalSessions
from ottla.metadata.zookeeper.security import NO_SECURITY, ZooKeeperSecurity
from ottla.metadata.zookeeper.session import NoNodeError
from ottla.metadata.zookeeper.session_renewal import SessionRenewal, read_place
from ottla.model.errors import MisuseError, StorageError

T = TypeVar("T")

RELEASE_SECONDS: Final = 5.0
"""How long a closing store tries to release its leases; the others end with the session."""

_LOGGER: Final = logging.getLogger(__name__)


class ZooKeeperStore:
    """`MetadataStore` in ZooKeeper.

    `servers` is `host:port,host:port/path`: all keys are below that path, which is created if it is missing. A lease
    lives `session_timeout_ms` after its owner's last heartbeat, or as long as the ensemble grants. A call without an
    answer within `request_timeout_ms` raises StoreUnavailableError. A follower may be `changes_kept` revisions behind;
    a snapshot is written after every `snapshot_every` revisions.
    """

    def __init__(
        self,
        servers: str,
        clock: Clock,
        *,
        security: ZooKeeperSecurity = NO_SECURITY,
        session_timeout_ms: int = 9_000,
        request_timeout_ms: int = 30_000,
        changes_kept: int = 1_000,
        snapshot_every: int = 1_000,
    ) -> None:
        hosts, _, path = servers.partition("/")
        if not all(hosts.split(",")) or not (all(path.split("/")) or not path):
            raise MisuseError(f"{servers!r} is not a ZooKeeper address: use host:port,host:port/path")
        self._servers = servers
        self._request_seconds = request_timeout_ms / 1000
        self._log = CommitLog(f"/{path}" if path else "")
        self._sessions = SessionRenewal(
            hosts,
            clock,
            self._log,
            session_timeout_ms,
            security,
            on_connected=self._on_connected,
            on_over=self._end_own_leases,
        )
        self._local_sessions = LocalSessions(self._log, self._sessions)
        self._replica = KeyReplica(
            self._log,
            self._sessions,
            servers,
            changes_kept,
            on_entry=self._on_entry,
            on_loaded=self._on_loaded,
        )
        self._commits = Commits(
            self._log,
            self._sessions,
            self._replica,
            request_seconds=self._request_seconds,
            snapshot_every=snapshot_every,
            changes_kept=changes_kept,
            unavailable=self._unavailable,
        )
        self._is_open = False
        self._failure: StorageError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._leases: dict[str, SessionLease] = {}
        self._sessions_changed = asyncio.Event()

    async def open(self) -> None:
        """Connects and reads all keys. Raises StoreUnavailableError."""
        if self._is_open:
            raise MisuseError(f"the metadata store {self._servers} is already open")
        self._is_open = True
        self._failure = None
        loops = (
            self._sessions.run,
            self._replica.run,
            self._commits.run,
            self._local_sessions.run,
            self._end_leases_of_the_dead,
            self._watch_for_older_data,
        )
        self._tasks = [asyncio.create_task(loop()) for loop in loops]
        for task in self._tasks:
            task.add_done_callback(self._on_task_done)
        try:
            await self._limited(self._replica.refresh())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends this session: releases its leases, ends its followers. May be called twice."""
        if not self._is_open:
            return
        leases = [lease for lease in self._leases.values() if not lease.is_lost]
        self._end_own_leases()
        if leases:
            with suppress(TimeoutError, StoreUnavailableError, StorageError):
                async with asyncio.timeout(RELEASE_SECONDS):
                    await self._release(*leases)
        self._is_open = False
        self._replica.wake()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._commits.fail_all()
        await self._sessions.close()

    async def commit(self, operations: Sequence[Operation]) -> int:
        """Commits: see `MetadataStore.commit`."""
        check_operations(operations)
        self._check_usable()
        return (await self._commits.submit(tuple(operations)))[0]

    async def snapshot(self) -> tuple[int, list[Entry]]:
        """Reads all keys: see `MetadataStore.snapshot`."""
        await self._limited(self._replica.refresh())
        table = self._replica.table
        return table.revision, table.entries()

    async def follow(self, revision: int) -> AsyncIterator[list[Change]]:
        """Follows all changes: see `MetadataStore.follow`."""
        self._check_usable()
        if revision > self._replica.table.revision:
            await self._limited(self._replica.refresh())
        while self._is_open:
            if self._failure is not None:
                raise self._failure
            if revision == self._replica.table.revision:
                await self._replica.wait_after(revision)
                continue
            for changes in await self._replica.changes_after(revision):
                yield changes
                revision = changes[0].revision

    async def lease(self, key: str, value: bytes) -> SessionLease:
        """Takes a lease: see `MetadataStore.lease`. The leases of a session that is over are taken over at once."""
        check_key(key)
        while True:
            await self._limited(self._replica.refresh())
            held = self._replica.table.get(key)
            if held is not None:
                await self._limited(self._check_over(key, held.owner))
            expected = 0 if held is None else held.revision
            try:
                revision, owner = await self._commits.submit([Put(key, value, expected)], is_lease=True)
            except ConflictError:
                # Another broker was faster, perhaps only to remove the key of the dead session.
                continue
            lease = self._leases.get(key)
            if lease is not None and (revision, owner) == (lease.revision, lease.session.token):
                return lease
            # It ended before its owner was told. The owner is this caller, which tries again.

    async def _check_over(self, key: str, owner: str | None) -> None:
        """Raises ConflictError while the session that owns a key is alive."""
        if owner is None:
            raise ConflictError(f"{key!r} exists and is not a lease")
        path = self._log.session_path(owner)
        try:
            data, _ = await self._sessions.ask(lambda session: session.get(path))
        except NoNodeError:
            return
        place = read_place(data)
        raise ConflictError(f"{key!r} is held by {place}: stop that process, or wait until its session expires")

    async def _release(self, *leases: SessionLease) -> None:
        """Removes the keys of the leases that their sessions still own."""
        while True:
            owned = self._replica.table.owned_by({lease.session.token for lease in leases})
            keys = {lease.key for lease in leases}
            deletes = [Delete(key, revision) for key, revision in owned if key in keys]
            try:
                if deletes:
                    await self._commits.submit(deletes)
                return
            except ConflictError:
                continue

    # Events

    def _on_connected(self) -> None:
        self._replica.look()
        self._local_sessions.look()
        self._sessions_changed.set()

    def _on_entry(self, entry: LogEntry, revision: int) -> None:
        session = self._sessions.present
        for key, value in entry.written:
            if value is None or entry.owner is not None:
                lease = self._leases.pop(key, None)
                if lease is not None:
                    lease.on_ended()
            if entry.owner is not None and session is not None and session.token == entry.owner:
                self._leases[key] = SessionLease(key, revision, session, self._release)
        if entry.owner is not None:
            self._sessions_changed.set()
        self._commits.on_entry(entry, revision)

    def _on_loaded(self) -> None:
        for key, lease in list(self._leases.items()):
            held = self._replica.table.get(key)
            if held is None or held.owner != lease.session.token:
                self._leases.pop(key).on_ended()
        self._commits.on_skipped()
        self._sessions_changed.set()

    def _end_own_leases(self) -> None:
        for lease in self._leases.values():
            lease.on_ended()
        self._leases.clear()

    async def _end_leases_of_the_dead(self) -> None:
        while True:
            await self._sessions_changed.wait()
            self._sessions_changed.clear()
            # Collected before the sessions are listed: a session that is not listed then has ended for good.
            owners = self._replica.table.owners()
            living = await self._sessions.ask(
                lambda session: session.children(self._log.sessions_path, self._sessions_changed.set)
            )
            owned = self._replica.table.owned_by(owners - set(living))
            if owned:
                try:
                    await self._commits.submit([Delete(key, revision) for key, revision in owned])
                except (ConflictError, StoreUnavailableError):
                    self._sessions_changed.set()

    # Failures

    async def _watch_for_older_data(self) -> None:
        await self._sessions.probe(self._replica.check_not_replaced)

    async def _limited(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_usable()
            async with asyncio.timeout(self._request_seconds):
                return await work
        except TimeoutError:
            raise self._unavailable(StoreUnavailableError) from None
        finally:
            work.close()

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if not self._is_open:
            raise MisuseError(f"the metadata store {self._servers} is not open")

    def _unavailable(self, kind: type[StoreUnavailableError]) -> StoreUnavailableError:
        what = "did not answer" if kind is StoreUnavailableError else "did not confirm a commit"
        return kind(
            f"ZooKeeper at {self._servers} {what} within {self._request_seconds:g} s: check that a majority of its "
            "servers is running and reachable"
        )

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        """A background task failed: this store can no longer be trusted."""
        error = None if task.cancelled() else task.exception()
        if error is None or self._failure is not None:
            return
        _LOGGER.error("the metadata store %s failed: %s", self._servers, error, exc_info=error)
        self._failure = (
            error
            if isinstance(error, StorageError)
            else StorageError(f"the metadata store {self._servers} failed: {error!r}; restart the broker")
        )
        self._end_own_leases()
        self._commits.fail_all(self._failure)
        self._replica.wake()
