"""How far reassignments are: which partitions still move, and how many bytes their new replicas lack."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.client.admin.replica_requests import PartitionReassignment, list_reassignments
from ottla.client.admin.topic_requests import describe_log_dirs, partition_sizes
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import ClusterView
from ottla.model.ids import TopicPartition

TIMEOUT_MS: Final = 60_000


class Progress(NamedTuple):
    """The progress of moves."""

    moving: dict[TopicPartition, PartitionReassignment]
    bytes_left: int
    bytes_copied: int
    """Bytes that the new replicas have so far."""


def placement_of(view: ClusterView, topics: Iterable[str] | None = None) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of all partitions, or of those of some topics."""
    wanted = None if topics is None else set(topics)
    return {
        TopicPartition(name, each.index): each.replicas
        for name, topic in view.topics.items()
        if wanted is None or name in wanted
        for each in topic.partitions
    }


async def progress_of(cluster: Cluster, partitions: Iterable[TopicPartition] | None) -> Progress:
    """The progress of the moves of these partitions, or of all moves."""
    moving = await list_reassignments(cluster, partitions, timeout_ms=TIMEOUT_MS)
    view = await cluster.refresh()
    sizes = await partition_sizes(cluster, list(moving))
    coming: dict[int, list[TopicPartition]] = {}
    for partition, move in moving.items():
        for broker in move.adding_replicas:
            if broker in view.brokers:
                coming.setdefault(broker, []).append(partition)
    copied = left = 0
    for broker, some in coming.items():
        dirs = await describe_log_dirs(cluster, broker, some)
        there = {each.partition: each.size_bytes for log_dir in dirs for each in log_dir.partitions}
        for partition in some:
            copied += there.get(partition, 0)
            left += max(sizes.get(partition, 0) - there.get(partition, 0), 0)
    return Progress(moving, left, copied)


def not_there(
    view: ClusterView, plan: Mapping[TopicPartition, tuple[int, ...]], progress: Progress
) -> list[TopicPartition]:
    """Partitions that differ from the plan and are not being moved."""
    present = placement_of(view)
    return [each for each, wanted in plan.items() if each not in progress.moving and present.get(each) != wanted]
