"""Which brokers of a cluster answer: each is asked for its log dirs, all at once, and none is waited for long."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla.client.admin.topic_requests import LogDir, describe_log_dirs
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.model.errors import RetriableError
from ottla.model.ids import TopicPartition

PATIENCE_SECONDS: Final = 3.0


class BrokerState(StrEnum):
    """What is known of a broker."""

    ONLINE = "online"
    SILENT = "not answering"
    """It is registered, and does not answer: it hangs, or has died a moment ago."""
    MISSING = "missing"
    """It has replicas, and is not registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProbe:
    """A broker's state, and its log dirs if it answers."""

    state: BrokerState
    log_dirs: tuple[LogDir, ...] = ()


async def probe_brokers(
    cluster: Cluster, view: ClusterView, partitions: Collection[TopicPartition] | None = None
) -> dict[int, BrokerProbe]:
    """Every broker that is registered or has replicas, in order of their ids; log dirs with all or these partitions."""
    registered = sorted(view.brokers)
    answers = await asyncio.gather(*(_probe(cluster, each, partitions) for each in registered))
    found = dict(zip(registered, answers, strict=True))
    assigned = {
        broker for topic in view.topics.values() for partition in topic.partitions for broker in partition.replicas
    }
    for broker in assigned - found.keys():
        found[broker] = BrokerProbe(state=BrokerState.MISSING)
    return dict(sorted(found.items()))


async def _probe(cluster: Cluster, broker: int, partitions: Collection[TopicPartition] | None) -> BrokerProbe:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            dirs = await describe_log_dirs(cluster, broker, partitions)
            return BrokerProbe(state=BrokerState.ONLINE, log_dirs=tuple(dirs))
    except (TimeoutError, RetriableError):
        return BrokerProbe(state=BrokerState.SILENT)
