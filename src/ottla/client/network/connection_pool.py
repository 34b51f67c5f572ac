"""The connections of one client: one to each broker that all share, further ones for who wants one alone.

Also lets go of brokers that will not answer any more. A broker whose machine died, or that hangs, leaves its
connections open and silent; somebody else must say that it has left the cluster, and then whoever waits for it is told
at once instead of at the end of its time. See `connection.py` for the bytes, and `cluster.py` for who is asked.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from ottla.client.errors import CannotConnectError
from ottla.env.ports import Network
from ottla.model.errors import RetriableError
from ottla.transport.addresses import Address
from ottla.transport.client_connection import SILENCE_SECONDS, Connection


class ConnectionPool:
    """See the module's docstring. `on_silence` is called while some broker is silent, now and then."""

    def __init__(
        self, network: Network, *, client_id: str, connect_timeout_ms: int, on_silence: Callable[[], None]
    ) -> None:
        self._network = network
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._on_silence = on_silence
        self._shared: dict[Address, asyncio.Task[Connection]] = {}
        self._own: list[Connection] = []
        self._opening: dict[asyncio.Task[Connection], Address] = {}
        self._silent: list[Connection] = []
        """Those that were silent when they last said so."""
        self._members: set[Address] = set()
        self._departed: set[Address] = set()
        """Where brokers of the cluster were, and are no more."""

    async def close(self) -> None:
        """Closes every connection; whoever still waits for an answer gets an error."""
        opened, self._shared = self._shared, {}
        for task in opened.values():
            task.cancel()
            with suppress(asyncio.CancelledError, RetriableError):
                (await task).close()
        for connection in self._own:
            connection.close()
        self._own.clear()
        self._silent.clear()

    def by_readiness(self, addresses: Collection[Address]) -> list[Address]:
        """These and all that are connected: first where a connection is open, the least busy one before the others;
        last where a connection is silent, or where a broker was that has left."""
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
        """The connection to an address, opened at first use. Raises `CannotConnectError`."""
        task = self._shared.get(address)
        if task is None or _is_over(task):
            # A task of its own, so that one who gives up does not take the connection from the others who wait.
            task = self._shared[address] = asyncio.create_task(self._open(address))
        return await asyncio.shield(task)

    async def own(self, address: Address) -> Connection:
        """A further connection, for one who wants it alone; closed with the others. Raises `CannotConnectError`."""
        connection = await self._open(address)
        self._own = [each for each in self._own if not each.is_closed]
        self._own.append(connection)
        return connection

    def on_members(self, members: Collection[Address]) -> None:
        """The cluster's brokers are these: who is silent, or still to be reached, and is none of them, is given up."""
        self._departed = (self._departed | self._members).difference(members)
        self._members = set(members)
        for connection in self._silent:
            if connection.is_silent and connection.address in self._departed:
                connection.give_up("it does not answer, and has left the cluster")
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
            )
        )
        self._opening[opening] = address
        try:
            while not (await asyncio.wait({opening}, timeout=SILENCE_SECONDS))[0]:
                self._on_silence()
            if opening.cancelled():
                raise CannotConnectError(f"{address}: nothing answers, and its broker has left the cluster")
            return opening.result()
        finally:
            opening.cancel()
            del self._opening[opening]

    def _on_silent(self, connection: Connection) -> None:
        if connection not in self._silent:
            self._silent = [*(each for each in self._silent if each.is_silent), connection]
        self._on_silence()


def _is_over(task: "asyncio.Task[Connection]") -> bool:
    """Whether nothing can be asked there any more."""
    return task.done() and (task.cancelled() or task.exception() is not None or task.result().is_closed)
