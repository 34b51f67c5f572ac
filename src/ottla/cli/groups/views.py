"""The progress of groups, and how a group is shown: facts and tables for people, one object in JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.cli.output import MISSING, Cell, print_facts, print_table
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.group_requests import GroupDescription, GroupMember
from ottla.client.network.cluster import Cluster
from ottla.client.network.list_offsets import END, list_offsets
from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """The progress of a group in one partition, and the member that reads it. `end` is None if it is not known."""

    partition: TopicPartition
    committed: CommittedOffset | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """Offsets between the committed one and the end; None if either is not known."""
        return None if self.committed is None or self.end is None else max(self.end - self.committed.offset, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Which parts of a group are shown, besides what it is."""

    members: bool
    offsets: bool


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
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionProgress]:
    """Every partition that the group committed to, or that a member has."""
    members = {partition: member for member in group.members for partition in member.assignment or ()}
    return [
        PartitionProgress(
            partition=partition,
            committed=committed.get(partition),
            end=ends.get(partition),
            member=members.get(partition),
        )
        for partition in sorted(committed.keys() | members.keys())
    ]


# For people


def print_group(group: GroupDescription, progress: Sequence[PartitionProgress], views: Views) -> None:
    """What the group is, and its offsets or members below it."""
    facts: dict[str, Cell] = {
        "group": group.group_id,
        "state": group.state,
        "type": group.type if group.protocol_type in ("", "consumer") else f"{group.type}, {group.protocol_type}",
        "assignor": group.assignor or "none",
        "coordinator": group.coordinator,
        "members": len(group.members),
    }
    if group.group_epoch is not None:
        facts["epoch"] = f"{group.group_epoch}, assignment of {group.assignment_epoch}"
    if views.offsets:
        known = [each.lag for each in progress if each.lag is not None]
        facts["lag"] = f"{sum(known):,}" if known else "unknown"
    print_facts(facts)
    if views.members:
        print()
        print_table(
            ("member", "client", "host", "instance", "partitions", "assignment"), map(_member_row, group.members)
        )
    if views.offsets:
        print()
        columns = ("topic", "partition", "committed", "end", "lag", "member", "host", "client")
        print_table(columns, map(_progress_row, progress))


def _progress_row(progress: PartitionProgress) -> Sequence[Cell]:
    member = progress.member
    return (
        progress.partition.topic,
        progress.partition.partition,
        MISSING if progress.committed is None else progress.committed.offset,
        MISSING if progress.end is None else progress.end,
        MISSING if progress.lag is None else progress.lag,
        *((MISSING, MISSING, MISSING) if member is None else (member.member_id, member.host, member.client_id)),
    )


def _member_row(member: GroupMember) -> Sequence[Cell]:
    return (
        member.member_id,
        member.client_id,
        member.host,
        member.instance_id or MISSING,
        MISSING if member.assignment is None else len(member.assignment),
        "unreadable" if member.assignment is None else partitions_text(member.assignment) or MISSING,
    )


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as `--topic` takes them: events:0,1 users:3."""
    return " ".join(f"{topic}:{','.join(map(str, some))}" for topic, some in _by_topic(partitions).items())


def idle_words(group: GroupDescription) -> str | None:
    """A remark about a group without members."""
    return None if group.members else f"group {group.group_id} has no active members"


# For programs


def group_document(group: GroupDescription, progress: Sequence[PartitionProgress], views: Views) -> dict[str, Any]:
    """A group as one object."""
    found: dict[str, Any] = {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "group_epoch": group.group_epoch,
        "assignment_epoch": group.assignment_epoch,
        "member_count": len(group.members),
    }
    if views.members:
        found["members"] = [_member_document(each) for each in group.members]
    if views.offsets:
        found["offsets"] = [_progress_document(each) for each in progress]
        found["lag"] = sum(each.lag or 0 for each in progress)
    return found


def _member_document(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "member_epoch": member.member_epoch,
        "subscription": member.subscription,
        "assignment": None if member.assignment is None else _by_topic(member.assignment),
        "target_assignment": None if member.target is None else _by_topic(member.target),
    }


def _progress_document(progress: PartitionProgress) -> dict[str, Any]:
    member, committed = progress.member, progress.committed
    return {
        "topic": progress.partition.topic,
        "partition": progress.partition.partition,
        "committed_offset": None if committed is None else committed.offset,
        "leader_epoch": None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch,
        "metadata": None if committed is None else committed.metadata,
        "end_offset": progress.end,
        "lag": progress.lag,
        "member_id": None if member is None else member.member_id,
        "client_id": None if member is None else member.client_id,
        "host": None if member is None else member.host,
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        found.setdefault(partition.topic, []).append(partition.partition)
    return found
