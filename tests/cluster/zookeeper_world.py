"""ZooKeeper as a place that a metadata store can be in: a path of its own for each test, on one ensemble."""

import asyncio
import itertools
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Self

from kazoo.client import KazooClient

from ottla.env.real_clock import RealClock
from ottla.env.wait_first import wait_first
from ottla.metadata.store import MetadataStore
from ottla.metadata.zookeeper.zookeeper_store import ZooKeeperStore

_numbers = itertools.count()


class ZooKeeperWorld:
    """`servers` without a path."""

    def __init__(self, servers: str, **options: Any) -> None:
        self.servers = servers
        self.path = f"/tests/{next(_numbers)}"
        # So long that no session ends by itself, also on a machine that stalls for a while.
        self.options: dict[str, Any] = {"session_timeout_ms": 30_000, **options}

    def running(self) -> AbstractAsyncContextManager[Self]:
        return nullcontext(self)

    async def open_client(self, **options: Any) -> ZooKeeperStore:
        servers = options.pop("servers", self.servers)
        store = ZooKeeperStore(servers + self.path, RealClock(), **{**self.options, **options})
        await store.open()
        return store

    async def expire(self, client: MetadataStore) -> None:
        """As an administrator does it: by a second connection with the session's id and password, which ends it."""
        assert isinstance(client, ZooKeeperStore)
        while client._sessions.present is None:
            # It has just lost one, and begins another.
            await client.snapshot()
        session = client._sessions.present

        def end() -> None:
            second = KazooClient(self.servers, client_id=session._client.client_id)
            second.start_async().wait(2)
            second.stop()
            second.close()

        while not session.is_over:
            # The two connections take the session from each other, so the second may come too late to end it.
            await asyncio.to_thread(end)
            await wait_first(session.wait_over(), asyncio.sleep(1))
