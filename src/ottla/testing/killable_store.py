"""The shared metadata file of a cluster, for a broker that is killed in process.

A dead process writes nothing more to the file, and other brokers end its leases at once. Both are simulated here.
"""

from collections.abc import Sequence

from ottla.metadata.sqlite.sqlite_store import SqliteLease, SqliteStore
from ottla.metadata.store import Operation, StoreUnavailableError


class KillableStore(SqliteStore):
    """A `SqliteStore` that refuses all writes after `die`."""

    _is_dead = False

    def die(self) -> None:
        """Refuses all writes from now on."""
        self._is_dead = True

    async def end_session(self) -> None:
        """Ends every lease, as other brokers do when a process dies."""
        await self.release(list(self._leases.values()))

    async def commit(self, operations: Sequence[Operation]) -> int:
        """Commits, unless the broker was killed."""
        self._refuse_if_dead()
        return await super().commit(operations)

    async def lease(self, key: str, value: bytes) -> SqliteLease:
        """Takes a lease, unless the broker was killed."""
        self._refuse_if_dead()
        return await super().lease(key, value)

    def _refuse_if_dead(self) -> None:
        if self._is_dead:
            raise StoreUnavailableError("the broker is killed")
