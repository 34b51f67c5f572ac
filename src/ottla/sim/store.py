"""A metadata store in memory, on virtual time, with a precise and repeatable fault model.

# The fault model
`SimMetadata` (in `store_ensemble.py`) is the ensemble: it holds the keys, and never loses or reorders a commit. Each
broker has a `SimStore` on it, the `MetadataStore` port, with a clock of its own. Between them:
- **Delay.** Each request and each answer takes up to `delay_max_ms`, as the given randomness decides.
- **Loss.** A request may be lost on its way, or its answer, with the probabilities given. The client sees a broken
  connection, connects again and finds out: a commit that was made is reported as made. It is not made twice.
- **Cut** (one client) and **outage** (all of them). Nothing passes. Calls wait; when `request_timeout_ms` is over they
  raise StoreUnavailableError, or CommitUnknownError if the request may have arrived. Followers wait, and catch up.
- **Expiry.** A session that was not heard of for `session_timeout_ms` by the ensemble's clock ends, and with it its
  leases; `expire` ends one at once. During an outage no session expires, and afterwards every session has a full
  timeout again, as after the election of a new leader of the ensemble. The client trusts its session for two thirds of
  the timeout by its own clock, from before its last answered request; then it ends its leases and begins another one.
- **Crash.** `crash` is the end of the client's process: nothing that it waits for comes, and its session expires.
- **Skipped history.** With `changes_kept`, a follower that is further behind gets RevisionGoneError.
- **An older store.** While no client is connected, `restore` replaces everything by a `backup` of some earlier moment,
  or by an empty store, as an operator does by mistake. A later `restore` undoes it.
Not modelled: an ensemble that forgets while clients are connected, and clocks that run at different speeds by more than
the third that is spared.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from ottla.env.ports import Clock
from ottla.env.wait_first import wait_first
from ottla.metadata.session_lease import SessionLease
from ottla.metadata.store import (
    Change,
    CommitUnknownError,
    ConflictError,
    Delete,
    Entry,
    Operation,
    Put,
    RevisionGoneError,
    StoreUnavailableError,
    check_key,
    check_operations,
)
from ottla.model.errors import MisuseError
from ottla.sim.store_ensemble import LostError, SessionOverError, SimMetadata, StoreFaults

T = TypeVar("T")

__all__ = ["SimMetadata", "SimSession", "SimStore", "StoreFaults"]

SURE_SHARE: Final = 2 / 3
"""The part of a session's timeout for which its client believes in it."""
ASKS_PER_LIFE: Final = 5
"""How many times a session shows that it lives while that time runs."""


class SimSession:
    """What a client believes of its session."""

    __slots__ = ("_clock", "_over", "_sure_until", "token")

    def __init__(self, token: str, clock: Clock, sure_until: float) -> None:
        self.token = token
        self._over = asyncio.Event()
        self._clock = clock
        self._sure_until = sure_until

    @property
    def is_over(self) -> bool:
        """Whether it has ended, or may have by the client's clock."""
        if self._sure_until <= self._clock.monotonic():
            self._over.set()
        return self._over.is_set()

    def end(self) -> None:
        """The client has heard that it ended, or ends it."""
        self._over.set()

    async def wait_over(self, seconds: float) -> None:
        """Returns when it is over, or after that long."""
        sure = max(0.0, self._sure_until - self._clock.monotonic())
        await wait_first(self._over.wait(), self._clock.sleep(min(seconds, sure)))

    def on_answer(self, sure_until: float) -> None:
        """The ensemble has heard of it; what is over stays so."""
        if not self.is_over:
            self._sure_until = max(self._sure_until, sure_until)


class SimStore:
    """`MetadataStore` of one broker on a `SimMetadata`."""

    def __init__(self, ensemble: SimMetadata, clock: Clock, name: str, *, request_timeout_ms: int = 30_000) -> None:
        self.session: SimSession | None = None
        self._ensemble = ensemble
        self._clock = clock
        self._name = name
        self._request_seconds = request_timeout_ms / 1000
        self._is_open = False
        self._keeping: asyncio.Task[None] | None = None
        self._before: str | None = None
        self._has_session = asyncio.Event()
        # In the order they began: a set would cancel them in another order each time.
        self._jobs: dict[asyncio.Task[Any], None] = {}
        self._leases: dict[str, SessionLease] = {}
        self._count = 0
        self._closed = asyncio.Event()

    async def open(self) -> None:
        """Begins a session. Raises StoreUnavailableError."""
        if self._is_open:
            raise MisuseError(f"the metadata store of {self._name} is already open")
        self._is_open = True
        self._closed = asyncio.Event()
        self._keeping = asyncio.create_task(self._keep_session())
        try:
            await self._limited(self._has_session.wait())
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Ends the session with its leases, where the ensemble can be reached. Calling it twice is not an error."""
        if not self._is_open:
            return
        session = self.session
        await self._stop()
        if session is not None and self._ensemble.is_reachable(self):
            self._ensemble.end_session(session.token)
            self._before = None

    def crash(self) -> None:
        """The client's process ends: its session is left to expire. The object is not used any more."""
        self._is_open = False
        self._closed.set()
        for task in (self._keeping, *self._jobs):
            if task is not None:
                task.cancel()
        self._end_leases()

    async def _stop(self) -> None:
        self.crash()
        await asyncio.gather(*[task for task in (self._keeping, *self._jobs) if task], return_exceptions=True)
        self._keeping = None
        self._ensemble.announce()

    # The port

    async def commit(self, operations: Sequence[Operation]) -> int:
        """See `MetadataStore.commit`."""
        check_operations(operations)
        return await self._commit(tuple(operations))

    async def snapshot(self) -> tuple[int, list[Entry]]:
        """See `MetadataStore.snapshot`."""
        return await self._run(self._ask(self._ensemble.snapshot))

    async def follow(self, revision: int) -> AsyncIterator[list[Change]]:
        """See `MetadataStore.follow`."""
        self._check_open()
        while self._is_open:
            try:
                commits = await self._answer(partial(self._ensemble.changes_after, revision))
            except LostError:
                await self._wait_reachable()
                continue
            for changes in commits:
                yield changes
                revision = changes[0].revision
            if not commits:
                await wait_first(self._ensemble.wait_changed(), self._closed.wait())

    async def lease(self, key: str, value: bytes) -> SessionLease:
        """See `MetadataStore.lease`."""
        check_key(key)
        while True:
            revision, holder = await self._run(self._ask(lambda: self._ensemble.held_by(key)))
            if revision and holder is None:
                raise ConflictError(f"{key!r} exists and is not a lease")
            if revision:
                raise ConflictError(f"{key!r} is held by {holder}: wait until its session expires")
            await self._limited(self._has_session.wait())
            session = self.session
            if session is None or session.is_over:
                continue
            try:
                at = await self._commit([Put(key, value, 0)], session.token)
            except ConflictError:
                continue
            except SessionOverError:
                self._end_session(session)
                continue
            lease = SessionLease(key, at, session, self._release)
            if not lease.is_lost:
                self._leases[key] = lease
                self._start(self._watch(lease))
                return lease
            # It ended before its owner was informed; the owner tries again.

    async def _release(self, lease: SessionLease) -> None:
        while True:
            revision, owner = await self._run(self._ask(lambda: self._ensemble.held_by(lease.key)))
            if owner != lease.session.token:
                return
            try:
                await self._commit([Delete(lease.key, revision)])
                return
            except ConflictError:
                continue

    async def _watch(self, lease: SessionLease) -> None:
        """Ends the lease when its key goes, as soon as the client can see that."""
        while not lease.is_lost:
            held = self._ensemble.table.get(lease.key)
            if self._ensemble.is_reachable(self) and (held is None or held.owner != lease.session.token):
                lease.on_ended()
            else:
                await self._ensemble.wait_changed()

    async def _commit(self, operations: Sequence[Operation], owner: str | None = None) -> int:
        self._count += 1
        name = f"{self._name} {self._count}"
        return await self._run(self._ask(lambda: self._ensemble.commit(name, operations, owner), is_commit=True))

    # The session

    async def _keep_session(self) -> None:
        while True:
            asked_at = self._clock.monotonic()
            try:
                token = await self._answer(lambda: self._ensemble.begin_session(self._before))
            except LostError:
                await self._wait_reachable()
                continue
            self._before = token
            session = SimSession(token, self._clock, asked_at + self._ensemble.session_seconds * SURE_SHARE)
            if not session.is_over:
                self.session = session
                self._has_session.set()
                await self._keep_alive(session)
            self._end_session(session)

    def _end_session(self, session: SimSession) -> None:
        session.end()
        if self.session is session:
            self.session = None
            self._has_session.clear()
            self._end_leases()

    async def _keep_alive(self, session: SimSession) -> None:
        life = self._ensemble.session_seconds * SURE_SHARE

        async def show() -> None:
            asked_at = self._clock.monotonic()
            try:
                if await self._answer(lambda: self._ensemble.touch(session.token)):
                    session.on_answer(asked_at + life)
                else:
                    session.end()
            except LostError:
                # The next one may arrive.
                return

        while not session.is_over:
            # One that takes long must not keep the next from being asked, nor the session from being over in time.
            self._start(show())
            await session.wait_over(life / ASKS_PER_LIFE)

    def _end_leases(self) -> None:
        for lease in self._leases.values():
            lease.on_ended()
        self._leases.clear()

    # Between the client and the ensemble

    async def _answer(self, work: Callable[[], T]) -> T:
        """Carries a request there and its answer back. Raises LostError."""
        faults = self._ensemble.faults
        await self._delay()
        self._drop_if(faults.lost_request_share, "lost requests", may_have_arrived=False)
        try:
            answer: T | Exception = work()
        except (ConflictError, RevisionGoneError, SessionOverError) as error:
            answer = error
        await self._delay()
        self._drop_if(faults.lost_answer_share, "lost answers", may_have_arrived=True)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _drop_if(self, share: float, kind: str, *, may_have_arrived: bool) -> None:
        if not self._ensemble.is_reachable(self):
            raise LostError(may_have_arrived)
        if share and self._ensemble.random.random() < share:
            self._ensemble.fault_counts[kind] += 1
            raise LostError(may_have_arrived)

    async def _delay(self) -> None:
        await self._clock.sleep(self._ensemble.random.random() * self._ensemble.faults.delay_max_ms / 1000)

    async def _wait_reachable(self) -> None:
        await self._delay()
        while not self._ensemble.is_reachable(self):
            await self._ensemble.wait_changed()

    async def _ask(self, work: Callable[[], T], *, is_commit: bool = False) -> T:
        """Asks until there is an answer or the time is over. A commit has a name, so that it is made once only."""
        deadline = self._clock.monotonic() + self._request_seconds
        is_unknown = False
        while self._clock.monotonic() < deadline:
            try:
                return await self._answer(work)
            except LostError as lost:
                is_unknown |= lost.may_have_arrived and is_commit
                left = max(0.0, deadline - self._clock.monotonic())
                await wait_first(self._wait_reachable(), self._clock.sleep(left))
        kind = CommitUnknownError if is_unknown else StoreUnavailableError
        raise kind(f"the metadata store did not answer {self._name} within {self._request_seconds:g} s")

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """To its end, even if the caller is cancelled."""
        try:
            self._check_open()
            job = self._start(work)
        except MisuseError:
            work.close()
            raise
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            if job.cancelled():
                raise CommitUnknownError(f"the metadata store of {self._name} was closed meanwhile") from None
            raise

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        job = asyncio.create_task(work)
        self._jobs[job] = None
        job.add_done_callback(self._on_done)
        return job

    def _on_done(self, job: asyncio.Task[Any]) -> None:
        self._jobs.pop(job, None)
        if not job.cancelled():
            job.exception()

    async def _limited(self, work: Coroutine[Any, Any, Any]) -> None:
        waiting = self._start(work)
        await wait_first(asyncio.wait([waiting]), self._clock.sleep(self._request_seconds))
        if not waiting.done():
            waiting.cancel()
            raise StoreUnavailableError(
                f"the metadata store did not answer {self._name} within {self._request_seconds:g} s"
            )

    def _check_open(self) -> None:
        if not self._is_open:
            raise MisuseError(f"the metadata store of {self._name} is not open")
