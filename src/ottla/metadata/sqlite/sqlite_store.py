"""The metadata store of one machine: a SQLite file behind the `MetadataStore` port.

With `shared=False` this process has the file to itself: its leases need no heartbeat, and leases that it finds when it
opens the file belong to a dead process. If the file is shared by several brokers of the machine, leases are renewed and
expire by the machine's monotonic clock, and those of a dead process are ended at once. A commit wakes the other
processes (`change_signal.py`), and so does a process that dies (`owner_watch.py`); in case a signal is lost, they poll
the file every `poll_ms`. Followers in this process see its own commits at once. `sqlite_file.py` has the SQL. All of it
runs off the event loop, one call at a time, in order.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ottla.env.ports import Clock
from ottla.env.wait_first import wait_first
from ottla.metadata.lease_owner import LeaseOwner, this_process, with_new_token
from ottla.metadata.owner_watch import OwnerWatch
from ottla.metadata.sqlite.change_signal import ChangeSignal
from ottla.metadata.sqlite.sqlite_file import SqliteFile
from ottla.metadata.store import Change, Entry, Operation, check_key, check_operations
from ottla.model.errors import MisuseError, StorageError

T = TypeVar("T")
InBackground = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments off the event loop, as `Disk.in_background` does."""

LOOKS_PER_CLEARING = 10
"""After this many polls of a shared file, leases are checked for dead owners."""
SURE_SHARE = 0.9
"""The part of its timeout for which the owner may act on a lease; requests in flight can end in the rest."""


class SqliteLease:
    """A key held by this process; made by `SqliteStore.lease`. `sure_until` is None if it does not expire."""

    __slots__ = ("_ended", "_store", "_sure_until", "key", "revision", "token")

    def __init__(self, store: "SqliteStore", key: str, revision: int, token: str, sure_until: float | None) -> None:
        self.key = key
        self.revision = revision
        self.token = token
        self._store = store
        self._sure_until = sure_until
        self._ended = asyncio.Event()

    @property
    def is_lost(self) -> bool:
        """Whether it ended, or may have: a lease that was not renewed in time is lost, whatever the file says."""
        if self._sure_until is not None and self._sure_until <= self._store.clock.monotonic():
            self._ended.set()
        return self._ended.is_set()

    async def wait_lost(self) -> None:
        """Returns as soon as `is_lost`."""
        while not self.is_lost:
            if self._sure_until is None:
                await self._ended.wait()
            else:
                seconds = self._sure_until - self._store.clock.monotonic()
                await wait_first(self._ended.wait(), self._store.clock.sleep(seconds))

    async def release(self) -> None:
        """Removes the key; does nothing if the lease is lost."""
        if not self.is_lost:
            await self._store.release([self])

    def on_renewed(self, sure_until: float) -> None:
        """The store wrote a new expiry time. A lease that was lost in the meantime stays lost: its owner may have seen
        it."""
        if not self.is_lost:
            self._sure_until = sure_until

    def on_ended(self) -> None:
        """The store found that another process holds the key, or the session ended."""
        self._ended.set()


class SqliteStore:
    """`MetadataStore` in one file.

    `in_background` runs the blocking work on the file; without it the store has its own thread. A lease lasts
    `lease_timeout_ms` after its last renewal. A follower may be `changes_kept` revisions behind.
    """

    def __init__(
        self,
        path: str,
        clock: Clock,
        *,
        in_background: InBackground | None = None,
        shared: bool = False,
        lease_timeout_ms: int = 9_000,
        poll_ms: int = 100,
        busy_timeout_ms: int = 5_000,
        changes_kept: int = 5_000,
    ) -> None:
        self.clock = clock
        self._path = path
        self._wake = ChangeSignal(f"{path}-wake")
        self._file = SqliteFile(
            path,
            exclusive=not shared,
            busy_timeout_ms=busy_timeout_ms,
            changes_kept=changes_kept,
            on_committed=self._wake.touch if shared else lambda: None,
        )
        self._in_background = in_background
        self._shared = shared
        self._lease_seconds = lease_timeout_ms / 1000
        self._poll_seconds = poll_ms / 1000
        self._thread: ThreadPoolExecutor | None = None
        self._owner: LeaseOwner | None = None
        self._turn = asyncio.Lock()
        self._jobs: set[asyncio.Task[Any]] = set()
        self._loops: list[asyncio.Task[None]] = []
        self._leases: dict[str, SqliteLease] = {}
        self._others = OwnerWatch(self._on_other_gone)
        self._has_touch = asyncio.Event()
        self._has_dead = False
        self._revision = 0
        self._news = asyncio.Event()
        self._is_open = False

    async def open(self) -> None:
        """Opens or creates the file, and ends the leases of dead processes. Raises StorageError."""
        if self._is_open:
            raise MisuseError(f"the metadata store {self._path} is already open")
        self._owner = this_process()
        # The previous event was set for good, to end the followers.
        self._news = asyncio.Event()
        self._is_open = True
        try:
            await self._run(self._file.open)
            if self._shared:
                await self._run(self._file.end_dead_leases, self.clock.monotonic())
            else:
                await self._run(self._file.end_all_leases)
        except BaseException:
            await self.close()
            raise
        if self._shared:
            self._wake.watch(self._has_touch.set)
            self._has_touch.set()
            self._loops = [asyncio.create_task(self._renew_leases()), asyncio.create_task(self._watch_others())]

    async def close(self) -> None:
        """Ends this session: releases its leases, ends its followers, closes the file. May be called twice."""
        if not self._is_open:
            return
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        self._wake.close()
        self._others.close()
        # A failing disk must not keep the broker from stopping: then the leases end with the process.
        with suppress(StorageError, MisuseError):
            await self.release(list(self._leases.values()))
        self._is_open = False
        self._news.set()
        is_idle = False
        try:
            await self._in_turn(self._file.close)
            is_idle = True
        finally:
            if self._thread is not None:
                # An idle thread ends at once; one that still works for a cancelled call is not waited for.
                self._thread.shutdown(wait=is_idle)
                self._thread = None

    async def commit(self, operations: Sequence[Operation]) -> int:
        """Commits: see `MetadataStore.commit`."""
        check_operations(operations)
        return await self._run(self._file.commit, tuple(operations))

    async def snapshot(self) -> tuple[int, list[Entry]]:
        """Reads all keys: see `MetadataStore.snapshot`."""
        return await self._run(self._file.snapshot)

    async def follow(self, revision: int) -> AsyncIterator[list[Change]]:
        """Follows all changes: see `MetadataStore.follow`."""
        if not self._is_open:
            raise MisuseError(f"the metadata store {self._path} is not open")
        while self._is_open:
            news = self._news
            if revision == self._revision:
                await news.wait()
                continue
            for changes in await self._run(self._file.changes_after, revision):
                yield changes
                revision = changes[0].revision

    async def lease(self, key: str, value: bytes) -> SqliteLease:
        """Takes a lease: see `MetadataStore.lease`. The lease of a dead process is taken over at once, others once they
        expire."""
        check_key(key)
        await self._end_lost()
        now = self.clock.monotonic()
        owner = with_new_token(self._owner or this_process())
        expires = now + self._lease_seconds if self._shared else None
        try:
            revision = await self._run(self._file.take_lease, key, value, owner, now, expires)
        except asyncio.CancelledError:
            # It may be taken all the same, and nothing would renew or release it.
            self._start(self._file.release_leases, [owner.token])
            raise
        lease = SqliteLease(self, key, revision, owner.token, self._sure_until(now))
        self._leases[owner.token] = lease
        return lease

    def _sure_until(self, now: float) -> float | None:
        return now + self._lease_seconds * SURE_SHARE if self._shared else None

    async def release(self, leases: Sequence[SqliteLease]) -> None:
        """Ends leases of this session."""
        held = [lease.token for lease in leases if self._leases.pop(lease.token, None) is not None]
        for lease in leases:
            lease.on_ended()
        if held:
            await self._run(self._file.release_leases, held)

    async def _end_lost(self) -> None:
        """Removes lost leases from the file, so that no process, including this one, waits for them."""
        await self.release([lease for lease in self._leases.values() if lease.is_lost])

    async def _renew_leases(self) -> None:
        while True:
            await self.clock.sleep(self._lease_seconds / 3)
            # A lease that could not be renewed now may be renewed the next time; if not, it is lost by the clock.
            with suppress(StorageError):
                await self._end_lost()
                await self._renew(list(self._leases.values()))

    async def _renew(self, leases: Sequence[SqliteLease]) -> None:
        now = self.clock.monotonic()
        if not leases:
            return
        tokens = [lease.token for lease in leases]
        kept = await self._run(self._file.renew_leases, tokens, now, now + self._lease_seconds)
        sure_until = self._sure_until(now)
        for lease in leases:
            if lease.token not in kept or sure_until is None:
                lease.on_ended()
            else:
                lease.on_renewed(sure_until)
        await self._end_lost()

    async def _watch_others(self) -> None:
        looks = 0
        watched_at = -1
        while True:
            await wait_first(self._has_touch.wait(), self.clock.sleep(self._poll_seconds))
            self._has_touch.clear()
            looks += 1
            # The file may be readable again at the next poll; commits in the meantime raise the error.
            with suppress(StorageError):
                await self._run(self._file.look)
                if self._has_dead or looks % LOOKS_PER_CLEARING == 0:
                    self._has_dead = False
                    await self._run(self._file.end_dead_leases, self.clock.monotonic())
                if watched_at != self._revision:
                    watched_at = self._revision
                    await self._look_at_leases()

    async def _look_at_leases(self) -> None:
        """Ends leases of this session whose keys are gone, and watches the processes that hold others."""
        held = list(self._leases.values())
        owners = await self._run(self._file.lease_owners)
        tokens = {owner.token for owner in owners}
        for lease in held:
            if lease.token not in tokens:
                self._leases.pop(lease.token, None)
                lease.on_ended()
        self._others.watch(owners)

    def _on_other_gone(self) -> None:
        self._has_dead = True
        self._has_touch.set()

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        """Runs one call on the file in its turn, to its end even if the caller is cancelled."""
        if not self._is_open:
            raise MisuseError(f"the metadata store {self._path} is not open")
        return await asyncio.shield(self._start(function, *args))

    def _start(self, function: Callable[..., T], *args: Any) -> asyncio.Task[T]:
        """One call on the file, behind those that were started before."""
        job = asyncio.create_task(self._in_turn(function, *args))
        self._jobs.add(job)
        job.add_done_callback(self._on_done)
        return job

    async def _in_turn(self, function: Callable[..., T], *args: Any) -> T:
        async with self._turn:
            try:
                if self._in_background is not None:
                    answer: T = await self._in_background(function, *args)
                    return answer
                if self._thread is None:
                    if not self._is_open:
                        # It waited for its turn behind close(): a new thread would stay.
                        raise MisuseError(f"the metadata store {self._path} is not open")
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-metadata")
                return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args))
            finally:
                self._announce()

    def _announce(self) -> None:
        """Wakes the followers if the revision has changed."""
        if self._file.revision != self._revision:
            self._revision = self._file.revision
            self._news.set()
            self._news = asyncio.Event()

    def _on_done(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        # Retrieved, so that the failure of a job whose caller was cancelled is not reported as never retrieved.
        if not job.cancelled():
            job.exception()
