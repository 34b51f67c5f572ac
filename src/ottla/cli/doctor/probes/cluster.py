"""The brokers of `--bootstrap`: whether they can be reached, how long a round trip takes, and what is wrong."""

import time
from statistics import median
from typing import TYPE_CHECKING, Final

from ottla.cli.doctor.facts import ClusterAnswer

if TYPE_CHECKING:
    from ottla.cli.profile.store import Connection

_ROUND_TRIPS: Final = 5


async def probe_cluster(connection: "Connection") -> ClusterAnswer:
    """Asks the cluster as a client does."""
    from ottla.client.admin.cluster_problems import find_problems
    from ottla.client.network.cluster import Cluster
    from ottla.model.errors import OttlaError
    from ottla.transport.addresses import parse_bootstrap

    try:
        async with Cluster(
            parse_bootstrap(connection.bootstrap),
            client_id=connection.client_id,
            security=connection.security,
            connect_timeout_ms=connection.connect_timeout_ms,
            request_timeout_ms=connection.request_timeout_ms,
        ) as cluster:
            view = await cluster.refresh()
            times = []
            for _ in range(_ROUND_TRIPS):
                started = time.perf_counter()
                await cluster.refresh([])
                times.append((time.perf_counter() - started) * 1000)
            problems = [str(each) for each in await find_problems(cluster, view)]
    except OttlaError as error:
        return ClusterAnswer(bootstrap=connection.bootstrap, failure=str(error))
    return ClusterAnswer(
        bootstrap=connection.bootstrap,
        failure=None,
        brokers=len(view.brokers),
        milliseconds=median(times),
        problems=tuple(problems),
    )
