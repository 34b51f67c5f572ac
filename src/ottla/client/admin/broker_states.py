"""Which brokers of a cluster answer: all are asked for their log dirs at once, with a short timeout."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ottla.client.admin.topic_requests import LogDir, describe_log_dirs
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import RetriableError
from ottla.model.ids import TopicPartition

TIMEOUT_SECONDS: Final = 3.0


class BrokerState(StrEnum):
    """Whether a broker is registered and answers."""

    ONLINE = "online"
    SILENT = "not answering"
    """It is registered, but does not answer: it hangs, or died a moment ago."""
    MISSING = "missing"
    """It has replicas, but is not registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerProbe:
    """A broker's state, and its log dirs if it answers."""

    state: BrokerState
    log_dirs: tuple[LogDir, ...] = ()


async def probe_brokers(
    cluster: Cluster,
    view: ClusterView,
    partitions: Collection[TopicPartition] | None = None,
    *,
    accepts_denial: bool = False,
) -> dict[int, BrokerProbe]:
    """Every broker that is registered or has replicas, in order of their ids; log dirs with all or these partitions.

    With `accepts_denial`, a broker that does not permit the request counts as one without log dirs that answers.
    """
    registered = sorted(view.brokers)
    answers = await asyncio.gather(*(_probe(cluster, each, partitions, accepts_denial) for each in registered))
    found = dict(zip(registered, answers, strict=True))
    assigned = {
        broker for topic in view.topics.values() for partition in topic.partitions for broker in partition.replicas
    }
    for broker in assigned - found.keys():
        found[broker] = BrokerProbe(state=BrokerState.MISSING)
    return dict(sorted(found.items()))


async def _probe(
    cluster: Cluster, broker: int, partitions: Collection[TopicPartition] | None, accepts_denial: bool
) -> BrokerProbe:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            dirs = await describe_log_dirs(cluster, broker, partitions)
            return BrokerProbe(state=BrokerState.ONLINE, log_dirs=tuple(dirs))
    except (TimeoutError, RetriableError):
        return BrokerProbe(state=BrokerState.SILENT)
    except AnswerError as error:
        if accepts_denial and error.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return BrokerProbe(state=BrokerState.ONLINE)
        raise
