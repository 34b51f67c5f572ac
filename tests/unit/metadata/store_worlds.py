"""The places that a metadata store can be in, each behind the same few calls, so that one suite tests all stores.

ZooKeeper's is in `tests/cluster/zookeeper_world.py`, since it needs Java.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol, Self

from ottla.metadata.sqlite.sqlite_store import SqliteStore
from ottla.metadata.store import MetadataStore
from ottla.model.errors import MisuseError, StorageError
from ottla.sim.clock import SimClock
from ottla.sim.random import SimRandom
from ottla.sim.store import SimMetadata, SimStore, StoreFaults


class StoreWorld(Protocol):
    """One store, and any number of clients of it, each with a session of its own."""

    def running(self) -> AbstractAsyncContextManager[Self]:
        """Its time passes meanwhile, if that is not the machine's."""

    async def open_client(self) -> MetadataStore:
        """Another client, open."""

    async def expire(self, client: MetadataStore) -> None:
        """Ends a client's session behind its back, or sees to it that it ends by itself soon."""


@asynccontextmanager
async def clients(world: StoreWorld, count: int) -> AsyncIterator[list[Any]]:
    """So many clients, closed in the end."""
    opened = [await world.open_client() for _ in range(count)]
    try:
        yield opened
    finally:
        for client in opened:
            await client.close()


class SqliteWorld:
    """A shared file, with a clock that does not advance, so that no lease ends because the machine is busy. A session
    ends by its leases' timeout, when its renewals fail."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "metadata.db")
        self._clock = SimClock()
        self._opened: list[SqliteStore] = []
        self._stalled: list[MetadataStore] = []

    def running(self) -> AbstractAsyncContextManager[Self]:
        return nullcontext(self)

    async def open_client(self) -> MetadataStore:
        async def in_background(function: Callable[..., Any], *args: Any) -> Any:
            if store in self._stalled and function.__name__ == "renew_leases":
                raise StorageError("the disk hangs")
            return await asyncio.to_thread(function, *args)

        store = SqliteStore(self._path, self._clock, shared=True, in_background=in_background, busy_timeout_ms=30_000)
        await store.open()
        self._opened.append(store)
        return store

    async def expire(self, client: MetadataStore) -> None:
        self._stalled.append(client)
        for _ in range(12):
            self._clock.advance(0.9)
            for store in self._opened:
                # It works in the order asked: then it has renewed what it holds, and looked for the dead.
                for _ in range(4):
                    await asyncio.sleep(0)
                    with suppress(MisuseError):
                        await store.snapshot()
        self._stalled.remove(client)


class SimWorld:
    """The simulated store, with a clock that advances when nothing else happens."""

    def __init__(self, seed: int = 0, faults: StoreFaults | None = None, step_seconds: float = 0.001) -> None:
        self._step_seconds = step_seconds
        self.clock = SimClock()
        self.ensemble = SimMetadata(self.clock, SimRandom(seed), faults=faults)
        self._count = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        advancing = asyncio.ensure_future(self._advance_forever())
        try:
            yield self
        finally:
            advancing.cancel()

    async def _advance_forever(self) -> None:
        while True:
            for _ in range(10):
                await asyncio.sleep(0)
            self.clock.advance(self._step_seconds)

    async def open_client(self) -> SimStore:
        self._count += 1
        store = SimStore(self.ensemble, self.clock, f"client {self._count}")
        await store.open()
        return store

    async def expire(self, client: MetadataStore) -> None:
        assert isinstance(client, SimStore)
        if client.session is not None:
            self.ensemble.expire(client.session.token)
