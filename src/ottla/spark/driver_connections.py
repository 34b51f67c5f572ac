"""Connections that a driver's process keeps from batch to batch: Spark keeps the process in which it commits.

A connection that broke meanwhile is opened again at its next use (`ottla.client.network.cluster`).
"""

import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ottla.client.admin.options import AdminConfig
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import Cluster

T = TypeVar("T")

_KEPT_MAX: Final = 4
"""A driver has few clusters to write to."""


class DriverConnections:
    """One for a process. Any thread may call it."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None
        self._clusters: dict[AdminConfig, Cluster] = {}
        self._process = -1

    def run(self, config: AdminConfig, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Does something with the cluster that the config describes, and answers or raises what it does."""
        if self._thread is None or self._process != os.getpid():
            # A fork has its parent's objects and none of its threads.
            self._thread, self._clusters, self._process = LoopThread("ottla sink"), {}, os.getpid()
        return self._thread.call(self._with_cluster(config, work))

    async def _with_cluster(self, config: AdminConfig, work: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        cluster = self._clusters.pop(config, None) or config.cluster()
        self._clusters[config] = cluster
        while len(self._clusters) > _KEPT_MAX:
            await self._clusters.pop(next(iter(self._clusters))).close()
        return await work(cluster)


CONNECTIONS: Final = DriverConnections()
"""This process's."""
