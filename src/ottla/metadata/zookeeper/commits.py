"""How commits are made in ZooKeeper: tried on the replica, then written in one transaction, if the replica was current.

If another broker was faster, the replica catches up and they are tried again. Every commit has a token that is written
to the log. If an answer is lost, the token is looked up there: a commit found in the log was made; one that is missing
when the replica has caught up was not made, and is tried again. Only a commit that timed out, or whose part of the log
is no longer kept, ends with CommitUnknownError.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from ottla.metadata.key_table import KeyDraft
from ottla.metadata.store import CommitUnknownError, ConflictError, Operation, StoreUnavailableError
from ottla.metadata.zookeeper.commit_log import TRANSACTION_BYTES_MAX, CommitLog, LogEntry, first_failure
from ottla.metadata.zookeeper.key_replica import KeyReplica
from ottla.metadata.zookeeper.session import BadVersionError, DisconnectedError, KazooException, ZooKeeperSession
from ottla.metadata.zookeeper.session_renewal import SessionRenewal
from ottla.model.errors import OttlaError, StorageError

COMMITS_AT_ONCE: Final = 50
"""At most this many waiting commits are written in one transaction."""


class _Pending:
    """A requested commit. Its future gets the revision, and the session that leases the keys it wrote."""

    __slots__ = ("attempts", "future", "is_lease", "operations", "token")

    def __init__(self, operations: Sequence[Operation], *, is_lease: bool) -> None:
        self.operations = operations
        self.is_lease = is_lease
        self.token = ""
        self.attempts = 0
        self.future: asyncio.Future[tuple[int, str | None]] = asyncio.get_running_loop().create_future()

    def fail(self, error: OttlaError) -> None:
        """Resolves the future, if it is not done."""
        if not self.future.done():
            self.future.set_exception(error)
            # Retrieved, so that it is not reported as never retrieved if the caller was cancelled.
            self.future.exception()


class Commits:
    """`run` until cancelled. `unavailable` makes the error for a store that does not answer."""

    def __init__(
        self,
        log: CommitLog,
        sessions: SessionRenewal,
        replica: KeyReplica,
        *,
        request_seconds: float,
        snapshot_every: int,
        changes_kept: int,
        unavailable: Callable[[type[StoreUnavailableError]], StoreUnavailableError],
    ) -> None:
        self._log = log
        self._sessions = sessions
        self._replica = replica
        self._request_seconds = request_seconds
        self._snapshot_every = snapshot_every
        self._changes_kept = changes_kept
        self._unavailable = unavailable
        self._waiting: deque[_Pending] = deque()
        self._has_work = asyncio.Event()
        self._in_doubt: dict[str, _Pending] = {}
        self._count = 0
        self._saving: asyncio.Task[None] | None = None
        self._looked_at_snapshot = 0

    async def submit(self, operations: Sequence[Operation], *, is_lease: bool = False) -> tuple[int, str | None]:
        """Makes a commit, with `is_lease` as a lease of the session; returns its revision and that session's token."""
        pending = _Pending(operations, is_lease=is_lease)
        self._waiting.append(pending)
        self._has_work.set()
        try:
            async with asyncio.timeout(self._request_seconds):
                return await asyncio.shield(pending.future)
        except TimeoutError:
            if not pending.future.done():
                # The caller is gone; but a transaction that was sent may still succeed.
                pending.fail(self._unavailable(CommitUnknownError if pending.attempts else StoreUnavailableError))
            return pending.future.result()

    async def run(self) -> None:
        """Makes the submitted commits."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(COMMITS_AT_ONCE, len(self._waiting)))]
                is_fresh = False
                while batch := [pending for pending in batch if not pending.future.done()]:
                    is_fresh = await self._sessions.ask(partial(self._attempt, batch=batch, is_fresh=is_fresh))

    def on_entry(self, entry: LogEntry, revision: int) -> None:
        """A commit was made, perhaps one of these."""
        pending = self._in_doubt.pop(entry.token, None)
        if pending is not None and not pending.future.done():
            pending.future.set_result((revision, entry.owner))

    def on_skipped(self) -> None:
        """Commits were made that the replica has not seen, perhaps some of these."""
        for pending in self._in_doubt.values():
            pending.fail(self._unavailable(CommitUnknownError))
        self._in_doubt.clear()

    def fail_all(self, error: StorageError | None = None) -> None:
        """Fails all waiting commits, with this error or because the store closes."""
        for pending in self._waiting:
            pending.fail(error or self._unavailable(StoreUnavailableError))
        self._waiting.clear()
        for pending in self._in_doubt.values():
            pending.fail(error or self._unavailable(CommitUnknownError))
        self._in_doubt.clear()
        if self._saving is not None:
            self._saving.cancel()

    async def _attempt(self, session: ZooKeeperSession, batch: list[_Pending], is_fresh: bool) -> bool:
        """Tries to make these commits; those whose future is not done are to be tried again. `is_fresh`, also as the
        result, means that the table has been updated since they were requested."""
        # Callers that were told, before there was a connection, that nothing was written must be right.
        batch = [pending for pending in batch if not pending.future.done()]
        if not is_fresh and any(pending.attempts for pending in batch):
            # A commit that was made after all is found now.
            await self._replica.refresh()
            return True
        table = self._replica.table
        base = table.revision
        draft = KeyDraft(table)
        staged: list[tuple[_Pending, LogEntry]] = []
        for pending in batch:
            owner = session.token if pending.is_lease else None
            conflict = None
            try:
                written = draft.commit(pending.operations, owner)
            except ConflictError as error:
                conflict, written = error, ()
            if written:
                self._count += not pending.token
                pending.token = pending.token or f"{session.token}-{self._count}"
                staged.append((pending, LogEntry(pending.token, owner, list(written))))
            elif is_fresh and not staged:
                # Decided on the current keys, not on those that the commits before it would write.
                if conflict is not None:
                    self._in_doubt.pop(pending.token, None)
                    pending.fail(conflict)
                else:
                    pending.future.set_result((base, None))
        if staged:
            await self._write(session, base, staged)
            return False
        if not is_fresh:
            await self._replica.refresh()
        return True

    async def _write(self, session: ZooKeeperSession, base: int, staged: list[tuple[_Pending, LogEntry]]) -> None:
        entries: list[LogEntry] = []
        packed: list[bytes] = []
        for pending, entry in staged:
            # Counted first: from here on, a caller that gives up cannot say that nothing was written.
            attempt, pending.attempts = pending.attempts, pending.attempts + 1
            data = await self._log.encode_entry(session, entry, attempt)
            if packed and sum(map(len, packed)) + len(data) > TRANSACTION_BYTES_MAX:
                break
            entries.append(entry)
            packed.append(data)
        for pending, entry in staged[: len(entries)]:
            self._in_doubt[entry.token] = pending
        results = await session.transaction(
            lambda transaction: self._log.fill(transaction, session.token, base, packed)
        )
        failure = first_failure(results)
        if failure is None:
            await self._replica.on_committed(session, base, entries)
            self._save_if_due(session)
            return
        place, error = failure
        if place == 0:
            session.end("its znode was removed")
            raise DisconnectedError
        if not isinstance(error, BadVersionError):
            raise StorageError(
                f"ZooKeeper refused commit {base + 1} of the metadata store: {error!r}; check that nothing else writes "
                "below its path"
            )
        # Another broker was faster: its commit comes first.

    def _save_if_due(self, session: ZooKeeperSession) -> None:
        revision = self._replica.table.revision
        is_saving = self._saving is not None and not self._saving.done()
        if not is_saving and revision - self._looked_at_snapshot >= self._snapshot_every:
            self._looked_at_snapshot = revision
            self._saving = asyncio.create_task(self._save(session))

    async def _save(self, session: ZooKeeperSession) -> None:
        # If it fails, a later commit finds that it is still due.
        with suppress(DisconnectedError, KazooException):
            await self._log.save(
                session, lambda: self._replica.table, every=self._snapshot_every, kept=self._changes_kept
            )
