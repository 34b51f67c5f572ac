"""Replicas that have lost their log, as `ottla cluster health` reports them, with what to do about each."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.network.cluster import Cluster
    from ottla.client.network.cluster_view import ClusterView, PartitionView
    from ottla.model.ids import TopicPartition


async def lost_replica_troubles(cluster: "Cluster", view: "ClusterView") -> list[str]:
    """One line for each replica that has lost its log and has not been copied again."""
    from ottla.client.admin.topic_requests import lost_replicas

    topics = [
        name
        for name, topic in view.topics.items()
        if any(len(each.isr) < len(each.replicas) for each in topic.partitions)
    ]
    lost = await lost_replicas(cluster, topics)
    return [
        line
        for name, brokers in sorted(lost.items())
        for line in _lines(name, view.topics[name.topic].partitions[name.partition], brokers)
    ]


def _lines(name: "TopicPartition", partition: "PartitionView", lost: tuple[int, ...]) -> Iterator[str]:
    whole = [broker for broker in partition.isr if broker not in lost]
    if partition.leader is not None:
        what = f"it is copied again from leader {partition.leader}"
    elif whole:
        what = f"start one of the in-sync replicas {whole} to copy it from"
    else:
        what = (
            "no in-sync replica has it. Restore its folder and restart the broker; or accept the loss with"
            f" ottla cluster elect --unclean --topic {name.topic} --partition {name.partition}"
        )
    for broker in lost:
        yield f"{name} has lost its log on broker {broker}: {what}"
