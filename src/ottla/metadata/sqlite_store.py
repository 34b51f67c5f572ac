"""The metadata store of one machine: an SQLite file behind the `MetadataStore` port.

Alone (`shared=False`) the store holds the file for itself: no other process opens it meanwhile, so its leases need no
heartbeat, and what leases it finds when it opens are a dead process's. Shared, several brokers of the machine have the
file open: leases are renewed and expire by the machine's monotonic clock, a dead process's are ended at once, and other
processes' commits are seen by a look at the file every `poll_ms`. Followers of this process hear of its own commits
without delay either way. What happens in the file is in `sqlite_file.py`; all of it runs off the event loop, one call
at a time, in the order asked.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from ottla.env.ports import Clock
from ottla.metadata.lease_owner import LeaseOwner, this_process
from ottla.metadata.sqlite_file import SqliteFile
from ottla.metadata.store import Change, Entry, Operation, check_key, check_operations
from ottla.model.errors import MisuseError, StorageError

T = TypeVar("T")
InBackground = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments off the event loop, as `Disk.in_background` does."""

LOOKS_PER_CLEARING = 10
"""After so many looks at a shared file, leases are looked through for dead ones."""


class SqliteLease:
    """A key held by this process; made by `SqliteStore.lease`."""

    __slots__ = ("_ended", "_expires", "_key", "_revision", "_store")

    def __init__(self, store: "SqliteStore", key: str, revision: int, expires: float | None) -> None:
        self._store = store
        self._key = key
        self._revision = revision
        self._expires = expires
        self._ended = False

    @property
    def revision(self) -> int:
        """Where its key was written."""
        return self._revision

    @property
    def is_lost(self) -> bool:
        """Whether it ended, or may have: a lease that could not be renewed in time is lost, whatever the file says."""
        return self._ended or (self._expires is not None and self._expires <= self._store.clock.monotonic())

    async def release(self) -> None:
        """Removes the key; nothing happens if the lease is lost."""
        if not self._ended:
            self._ended = True
            await self._store.release([self._key])

    def on_renewed(self, expires: float) -> None:
        """The store wrote a new moment of expiry."""
        self._expires = expires

    def on_ended(self) -> None:
        """The store found that the key is not this process's any more, or the session ended."""
        self._ended = True


class SqliteStore:
    """`MetadataStore` in one file; see the module's docstring.

    `in_background` runs the file's work where it may block; without it the store has a thread of its own. A lease
    lasts `lease_timeout_ms` after its last renewal. A follower may be `changes_kept` revisions behind.
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
        self._file = SqliteFile(path, exclusive=not shared, busy_timeout_ms=busy_timeout_ms, changes_kept=changes_kept)
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
        self._revision = 0
        self._news = asyncio.Event()
        self._is_open = False

    async def open(self) -> None:
        """Opens the file, makes it if it is missing, and ends the leases of the dead. Raises StorageError."""
        if self._is_open:
            raise MisuseError(f"the metadata store {self._path} is open already")
        self._owner = this_process()
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
            self._loops = [asyncio.create_task(self._renew_leases()), asyncio.create_task(self._watch_others())]

    async def close(self) -> None:
        """Ends this session: releases its leases, ends its followers, closes the file. Twice is no error."""
        if not self._is_open:
            return
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        # A disk that refuses must not keep the broker from ending: the leases end with the process then.
        with suppress(StorageError, MisuseError):
            await self.release(list(self._leases))
        self._is_open = False
        self._news.set()
        try:
            await self._in_turn(self._file.close)
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=False)
                self._thread = None

    async def commit(self, operations: Sequence[Operation]) -> int:
        """See `MetadataStore.commit`."""
        check_operations(operations)
        return await self._run(self._file.commit, tuple(operations))

    async def snapshot(self) -> tuple[int, list[Entry]]:
        """See `MetadataStore.snapshot`."""
        return await self._run(self._file.snapshot)

    async def follow(self, revision: int) -> AsyncIterator[list[Change]]:
        """See `MetadataStore.follow`."""
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
        """See `MetadataStore.lease`. A dead process's lease is taken over at once, a live one's after it expired."""
        check_key(key)
        now = self.clock.monotonic()
        expires = now + self._lease_seconds if self._shared else None
        revision = await self._run(self._file.take_lease, key, value, self._owner, now, expires)
        lease = self._leases[key] = SqliteLease(self, key, revision, expires)
        return lease

    async def release(self, keys: Sequence[str]) -> None:
        """Ends leases of this session."""
        held = [lease for lease in (self._leases.pop(key, None) for key in keys) if lease is not None]
        for lease in held:
            lease.on_ended()
        if held and self._owner is not None:
            await self._run(self._file.release_leases, tuple(keys), self._owner.token)

    async def _renew_leases(self) -> None:
        while True:
            await self.clock.sleep(self._lease_seconds / 3)
            keys = tuple(self._leases)
            if not keys or self._owner is None:
                continue
            now = self.clock.monotonic()
            expires = now + self._lease_seconds
            # What could not be renewed now may be the next time; if not, the lease is lost by the clock.
            with suppress(StorageError):
                kept = await self._run(self._file.renew_leases, keys, self._owner.token, now, expires)
                for key in keys:
                    lease = self._leases.get(key)
                    # One that was lost while the file was waited for stays lost: its owner may have seen it.
                    if lease is not None and key in kept and not lease.is_lost:
                        lease.on_renewed(expires)
                    elif lease is not None:
                        self._leases.pop(key).on_ended()

    async def _watch_others(self) -> None:
        looks = 0
        while True:
            await self.clock.sleep(self._poll_seconds)
            looks += 1
            # The file may be readable again at the next look; whoever commits meanwhile is told what is wrong with it.
            with suppress(StorageError):
                await self._run(self._file.look)
                if looks % LOOKS_PER_CLEARING == 0:
                    await self._run(self._file.end_dead_leases, self.clock.monotonic())

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        """Runs one call on the file when its turn comes, to its end even if the caller is cancelled."""
        if not self._is_open:
            raise MisuseError(f"the metadata store {self._path} is not open")
        job = asyncio.create_task(self._in_turn(function, *args))
        self._jobs.add(job)
        job.add_done_callback(self._on_done)
        return await asyncio.shield(job)

    async def _in_turn(self, function: Callable[..., T], *args: Any) -> T:
        async with self._turn:
            try:
                if self._in_background is not None:
                    answer: T = await self._in_background(function, *args)
                    return answer
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="ottla-metadata")
                return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args))
            finally:
                self._announce()

    def _announce(self) -> None:
        """Wakes the followers if the file went on."""
        if self._file.revision > self._revision:
            self._revision = self._file.revision
            self._news.set()
            self._news = asyncio.Event()

    def _on_done(self, job: asyncio.Task[Any]) -> None:
        self._jobs.discard(job)
        # Asked for, so that the failure of a job whose caller was cancelled is not reported as forgotten.
        if not job.cancelled():
            job.exception()
