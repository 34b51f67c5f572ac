"""How far a group is in each partition, and by how much it lags."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.group_requests import GroupDescription, GroupMember
from ottla.client.admin.share_group_requests import SHARE
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, list_offsets
from ottla.model.ids import TopicPartition
from ottla.operations.groups.offsets_by_type import GroupOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """The progress of a group in one partition, and the member that reads it. `end` is None if it is not known."""

    partition: TopicPartition
    committed: CommittedOffset | None
    end: int | None
    member: GroupMember | None

    counted_lag: int | None = None
    """The lag as the coordinator counts it, of a share group."""

    @property
    def lag(self) -> int | None:
        """What the coordinator counted, or the offsets between the committed one and the end; None if not known."""
        if self.counted_lag is not None:
            return self.counted_lag
        return None if self.committed is None or self.end is None else max(self.end - self.committed.offset, 0)


async def end_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The end offset of each partition; one that was deleted, or has no leader, is left out."""
    asked = set(partitions)
    topics = (await cluster.retry(lambda: cluster.refresh({each.topic for each in asked}))).topics
    led = {
        TopicPartition(topic.name, each.index)
        for topic in topics.values()
        for each in topic.partitions
        if each.leader is not None
    }
    found = await list_offsets(cluster, dict.fromkeys(asked & led, END))
    return {partition: place.offset for partition, place in found.items()}


def progress_of(
    group: GroupDescription, found: GroupOffsets, ends: Mapping[TopicPartition, int]
) -> list[PartitionProgress]:
    """Every partition that the group has an offset in, or that a member has."""
    committed = found.offsets
    members = {partition: member for member in group.members for partition in member.assignment or ()}
    return [
        PartitionProgress(
            partition=partition,
            committed=committed.get(partition),
            end=ends.get(partition),
            # The members of a share group read the same partitions.
            member=None if group.type == SHARE else members.get(partition),
            counted_lag=found.lags.get(partition),
        )
        for partition in sorted(committed.keys() | members.keys())
    ]


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as `--topic` takes them: events:0,1 users:3."""
    return " ".join(f"{topic}:{','.join(map(str, some))}" for topic, some in by_topic(partitions).items())


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions of each topic, in order."""
    found: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.topic, []).append(partition.partition)
    return found
