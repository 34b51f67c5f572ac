"""The connections of one client: a shared one to each broker, and further ones for exclusive use.

The pool also gives up brokers that will not respond. When a machine dies or a broker hangs, its connections stay open
and silent. If the metadata of another broker says that it has left the cluster, requests to it fail at once instead of
at the end of their timeout. `ottla.transport.client_connection` is one connection; `cluster.py` chooses brokers.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from ottla.client.errors import CannotConnectError
from ottla.env.ports import Network
from ottla.model.errors import DeniedError, RetriableError
from ottla.transport.addresses import Address
from ottla.transport.client_connection import SILENCE_SECONDS, Connection
from ottla.transport.client_security import ClientSecurity


class ConnectionPool:
    """All connections of one client. `on_silence` is called repeatedly while a broker is silent."""

    def __init__(
        self,
        network: Network,
        *,
        client_id: str,
        connect_timeout_ms: int,
        on_silence: Callable[[], None],
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security
        self._network = network
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._on_silence = on_silence
        self._shared: dict[Address, asyncio.Task[Connection]] = {}
        self._own: list[Connection] = []
        self._opening: dict[asyncio.Task[Connection], Address] = {}
        self._silent: list[Connection] = []
        """Connections that were silent at their last report."""
        self._members: set[Address] = set()
        self._departed: set[Address] = set()
        """Addresses of brokers that have left the cluster."""

    async def close(self) -> None:
        """Closes all connections; requests in flight fail."""
        opened, self._shared = self._shared, {}
        for task in opened.values():
            task.cancel()
            with suppress(asyncio.CancelledError, RetriableError, DeniedError):
                (await task).close()
        for connection in self._own:
            connection.close()
        self._own.clear()
        self._silent.clear()

    def by_readiness(self, addresses: Collection[Address]) -> list[Address]:
        """These addresses and all connected ones: open connections first, the least busy one before the others; silent
        connections and brokers that have left last."""
        opened = {
            address: task.result()
            for address, task in self._shared.items()
            if task.done() and not _is_over(task) and not task.result().is_closed
        }

        def rank(address: Address) -> tuple[int, int]:
            connection = opened.get(address)
            if address in self._departed or (connection is not None and connection.is_silent):
                return 2, 0
            return (1, 0) if connection is None else (0, connection.in_flight)

        return sorted(dict.fromkeys([*addresses, *opened]), key=rank)

    async def shared(self, address: Address) -> Connection:
        """The shared connection to an address, opened at first use. Raises `CannotConnectError`."""
        task = self._shared.get(address)
        if task is None or _is_over(task):
            # A separate task, so that a cancelled caller does not cancel it for the others that wait.
            task = self._shared[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(task)

    async def own(self, address: Address) -> Connection:
        """A further connection for exclusive use; closed with the pool. Raises `CannotConnectError`."""
        connection = await self._open(address)
        self._own = [each for each in self._own if not each.is_closed]
        self._own.append(connection)
        return connection

    def on_members(self, members: Collection[Address]) -> None:
        """Takes the addresses of the cluster's brokers; gives up silent and unopened connections to all others."""
        self._departed = (self._departed | self._members).difference(members)
        self._members = set(members)
        for connection in self._silent:
            if connection.is_silent and connection.address in self._departed:
                connection.give_up("it does not respond and has left the cluster")
        self._silent = [each for each in self._silent if each.is_silent]
        for task, address in self._opening.items():
            if address in self._departed:
                task.cancel()

    async def _open(self, address: Address) -> Connection:
        opening = asyncio.create_task(
            Connection.open(
                self._network,
                address,
                client_id=self._client_id,
                timeout_ms=self._connect_timeout_ms,
                on_silence=self._on_silent,
                security=self._security,
            )
        )
        self._opening[opening] = address
        try:
            while not (await asyncio.wait({opening}, timeout=SILENCE_SECONDS))[0]:
                self._on_silence()
            if opening.cancelled():
                raise CannotConnectError(f"{address}: no response, and its broker has left the cluster")
            return opening.result()
        finally:
            opening.cancel()
            del self._opening[opening]

    def _on_silent(self, connection: Connection) -> None:
        if connection not in self._silent:
            self._silent = [*(each for each in self._silent if each.is_silent), connection]
        self._on_silence()


def _is_over(task: "asyncio.Task[Connection]") -> bool:
    """Whether the connection failed or is closed."""
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().is_closed)
