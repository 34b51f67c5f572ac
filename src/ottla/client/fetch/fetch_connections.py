"""Connections for fetching, kept open between two uses: a small range is then read with a single request.

A Fetch request may wait at the broker, and a broker answers the requests of a connection in order; so fetching does not
use the connection that other requests share (`ottla.client.network.cluster`).
"""

from ottla.client.network.cluster import Cluster
from ottla.transport.client_connection import Connection


class FetchConnections:
    """The idle fetch connections of one cluster, at most one per broker. Used on the cluster's event loop only."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._idle: dict[int, Connection] = {}

    async def take(self, broker: int) -> Connection:
        """A connection that has no other user until it is given back. Raises `CannotConnectError`."""
        connection = self._idle.pop(broker, None)
        if connection is None or connection.is_closed:
            connection = await self._cluster.own_connection(broker)
        return connection

    def give_back(self, broker: int, connection: Connection) -> None:
        """Keeps the connection for the next user, or closes it if a response is outstanding or one is idle already."""
        if connection.in_flight or broker in self._idle:
            connection.close()
        elif not connection.is_closed:
            self._idle[broker] = connection

    def close(self) -> None:
        """Closes the idle connections."""
        for connection in self._idle.values():
            connection.close()
        self._idle.clear()
