"""Requests to the cluster's other brokers: one connection to each, opened when it is first needed.

Replica fetchers have connections of their own (`replica_fetcher.py`), so that nothing here waits behind them.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from ottla.client.errors import CannotConnectError
from ottla.env.ports import Network
from ottla.metadata.image import ClusterImage
from ottla.model.buffer import Buffer
from ottla.model.errors import DeniedError
from ottla.model.ids import BrokerId
from ottla.protocol.apis import ApiKey
from ottla.transport.addresses import Address
from ottla.transport.client_connection import Connection
from ottla.transport.client_security import ClientSecurity

CONNECT_TIMEOUT_MS: Final = 5_000
ANSWER_TIMEOUT_MS: Final = 15_000


class Peers:
    """Connections of this broker, `me`, to the brokers of the image, on the listener for brokers; `security` says how
    to encrypt and log in."""

    def __init__(
        self,
        me: BrokerId,
        image: Callable[[], ClusterImage],
        network: Network,
        listener: str = "PLAINTEXT",
        security: Callable[[], ClientSecurity | None] = lambda: None,
    ) -> None:
        self._listener = listener
        self._security = security
        self._me = me
        self._image = image
        self._network = network
        self._connections: dict[BrokerId, tuple[Address, asyncio.Task[Connection]]] = {}

    async def ask(self, peer: BrokerId, api_key: ApiKey, message: Any) -> Any:
        """A peer's response. Raises a RetriableError if it cannot be reached or does not respond in time."""
        connection = await self._connection(peer)
        return await connection.request(api_key, message, timeout_ms=ANSWER_TIMEOUT_MS)

    async def ask_bytes(self, peer: BrokerId, api_key: ApiKey, version: int, body: Sequence[Buffer]) -> memoryview:
        """The same for a body made elsewhere, such as Produce; the answer is the frame without its length."""
        connection = await self._connection(peer)
        return await connection.request_bytes(api_key, version, body, timeout_ms=ANSWER_TIMEOUT_MS)

    async def _connection(self, peer: BrokerId) -> Connection:
        image = self._image().brokers.get(peer)
        if image is None:
            raise CannotConnectError(f"broker {peer} is not registered")
        endpoint = image.endpoint(self._listener)
        if endpoint is None:
            raise CannotConnectError(f"broker {peer} has no listener named {self._listener}")
        address = Address(endpoint.host, endpoint.port)
        known = self._connections.get(peer)
        if known is not None:
            task = known[1]
            failed = task.done() and (task.cancelled() or task.exception() is not None or task.result().is_closed)
            if known[0] != address or failed:
                self._drop(peer)
                known = None
        try:
            if known is None:
                known = self._connections[peer] = (address, self._open(address, self._security()))
            # A caller that is cancelled must not close the connection of the others.
            return await asyncio.shield(known[1])
        except DeniedError as error:
            # Certificates and passwords of brokers are changed one after the other: it may work later.
            raise CannotConnectError(f"broker {peer}: {error}") from error

    def _open(self, address: Address, security: ClientSecurity | None) -> "asyncio.Task[Connection]":
        opening = Connection.open(
            self._network,
            address,
            client_id=f"broker-{self._me}",
            timeout_ms=CONNECT_TIMEOUT_MS,
            security=security,
        )
        return asyncio.get_running_loop().create_task(opening)

    def _drop(self, peer: BrokerId) -> None:
        _, task = self._connections.pop(peer)
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None:
            task.result().close()

    def close(self) -> None:
        """Closes every connection."""
        for peer in list(self._connections):
            self._drop(peer)
