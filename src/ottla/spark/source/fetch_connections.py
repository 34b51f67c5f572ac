"""Connections on which a worker process fetches, kept from task to task: a small micro-batch is read in one request.

Fetching waits at the broker, so it is not done on the connection that asks questions (`ottla.client.network.cluster`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ottla.client.network.cluster import Cluster
from ottla.transport.client_connection import Connection


class FetchConnections:
    """Those of one cluster, one for each broker. On the cluster's event loop only."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._idle: dict[int, Connection] = {}

    @asynccontextmanager
    async def to(self, broker: int) -> AsyncIterator[Connection]:
        """One that nobody else uses meanwhile. It is kept unless an answer to it is still to come at the end."""
        connection = self._idle.pop(broker, None)
        if connection is None or connection.is_closed:
            connection = await self._cluster.own_connection(broker)
        try:
            yield connection
        finally:
            if connection.in_flight or broker in self._idle:
                connection.close()
            else:
                self._idle[broker] = connection
