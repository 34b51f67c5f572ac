"""A cluster's shared metadata file for a broker that may be killed in process.

A process that dies says nothing more to the file, and the others end its leases at once. In process, both are played.
"""

from collections.abc import Sequence

from ottla.metadata.sqlite_store import SqliteLease, SqliteStore
from ottla.metadata.store import Operation, StoreUnavailableError


class MortalStore(SqliteStore):
    """See `SqliteStore`; after `die` it takes nothing more."""

    _is_dead = False

    def die(self) -> None:
        """Refuses whatever the broker wants to write from now on."""
        self._is_dead = True

    async def end_session(self) -> None:
        """Ends every lease, as the others do when they see that a process died."""
        await self.release(list(self._leases.values()))

    async def commit(self, operations: Sequence[Operation]) -> int:
        """See `MetadataStore.commit`."""
        self._refuse_if_dead()
        return await super().commit(operations)

    async def lease(self, key: str, value: bytes) -> SqliteLease:
        """See `MetadataStore.lease`."""
        self._refuse_if_dead()
        return await super().lease(key, value)

    def _refuse_if_dead(self) -> None:
        if self._is_dead:
            raise StoreUnavailableError("the broker is killed")
