"""Questions to the cluster's other brokers: one connection to each, made when it is first needed.

A follower's copying has connections of its own (`replica_fetcher.py`), so that nothing here waits behind it.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.client.errors import CannotConnectError
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

CONNECT_TIMEOUT_MS: Final = 5_000
ANSWER_TIMEOUT_MS: Final = 15_000


class Peers:
    """See the module's docstring."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._connections: dict[BrokerId, tuple[Address, asyncio.Task[Connection]]] = {}

    async def ask(self, peer: BrokerId, api_key: ApiKey, message: Any) -> Any:
        """A peer's answer. Raises a RetriableError if it is not there or does not answer in time."""
        connection = await self._connection(peer)
        return await connection.request(api_key, message, timeout_ms=ANSWER_TIMEOUT_MS)

    async def _connection(self, peer: BrokerId) -> Connection:
        image = self._broker.image.brokers.get(peer)
        if image is None:
            raise CannotConnectError(f"broker {peer} is not registered")
        address = Address(image.host, image.port)
        known = self._connections.get(peer)
        if known is not None:
            task = known[1]
            failed = task.done() and (task.cancelled() or task.exception() is not None or task.result().is_closed)
            if known[0] != address or failed:
                self._drop(peer)
                known = None
        if known is None:
            task = asyncio.get_running_loop().create_task(
                Connection.open(
                    self._broker.world.network,
                    address,
                    client_id=f"broker-{self._broker.id}",
                    timeout_ms=CONNECT_TIMEOUT_MS,
                )
            )
            known = self._connections[peer] = (address, task)
        # Whoever stops waiting must not take the connection from the others.
        return await asyncio.shield(known[1])

    def _drop(self, peer: BrokerId) -> None:
        _, task = self._connections.pop(peer)
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None:
            task.result().close()

    def close(self) -> None:
        """Ends every connection."""
        for peer in list(self._connections):
            self._drop(peer)
