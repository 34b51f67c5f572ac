"""Admin requests about streams groups (KIP-1071): describe. Retries retriable errors and raises `AnswerError`.

Their offsets are committed offsets (`group_offsets.py`), and they are deleted like any other group
(`group_requests.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.admin.group_requests import GroupDescription, GroupMember, refuse
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey

STREAMS: Final = "streams"
"""The type of streams groups."""

Tasks = Mapping[str, tuple[int, ...]]
"""Partitions by subtopology."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """A part of a topology whose tasks are assigned together."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupMember(GroupMember):
    """One member. `assignment` has the partitions of the source topics that its active tasks read."""

    process_id: str
    topology_epoch: int
    active_tasks: Tasks
    standby_tasks: Tasks
    warmup_tasks: Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupDescription(GroupDescription):
    """One streams group, whose members are `StreamsGroupMember`s. It has no topology before the first member joins."""

    topology_epoch: int | None
    subtopologies: tuple[Subtopology, ...]


async def describe_streams_group(cluster: Cluster, group_id: str) -> StreamsGroupDescription:
    """Describes a streams group. Raises `AnswerError` with GROUP_ID_NOT_FOUND if it does not exist or is not one."""
    from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
    from kio.schema.types import GroupId

    message = StreamsGroupDescribeRequest(group_ids=(GroupId(group_id),), include_authorized_operations=False)

    async def ask() -> StreamsGroupDescription:
        coordinator = await find_coordinator(cluster, CoordinatorType.GROUP, group_id)
        response = await cluster.to_broker(coordinator, ApiKey.STREAMS_GROUP_DESCRIBE, message)
        (group,) = response.groups
        refuse(group, f"streams group {group_id}")
        topology = group.topology
        parts = tuple(_subtopology(each) for each in (topology.subtopologies or ()) if topology is not None)
        return StreamsGroupDescription(
            group_id=group_id,
            type=STREAMS,
            state=group.group_state,
            protocol_type=STREAMS,
            assignor="",
            coordinator=coordinator,
            group_epoch=int(group.group_epoch),
            assignment_epoch=int(group.assignment_epoch),
            topology_epoch=None if topology is None else int(topology.epoch),
            subtopologies=parts,
            members=tuple(_member(each, parts) for each in group.members),
        )

    return await cluster.retry(ask)


def _subtopology(part: Any) -> Subtopology:
    return Subtopology(
        subtopology_id=part.subtopology_id,
        source_topics=tuple(part.source_topics),
        repartition_source_topics=tuple(each.name for each in part.repartition_source_topics),
        repartition_sink_topics=tuple(part.repartition_sink_topics),
        state_changelog_topics=tuple(each.name for each in part.state_changelog_topics),
    )


def _member(member: Any, parts: Iterable[Subtopology]) -> StreamsGroupMember:
    active = _tasks(member.assignment.active_tasks)
    return StreamsGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=_read_by(active, parts),
        target=_read_by(_tasks(member.target_assignment.active_tasks), parts),
        member_epoch=int(member.member_epoch),
        process_id=member.process_id,
        topology_epoch=int(member.topology_epoch),
        active_tasks=active,
        standby_tasks=_tasks(member.assignment.standby_tasks),
        warmup_tasks=_tasks(member.assignment.warmup_tasks),
    )


def _tasks(tasks: Iterable[Any]) -> Tasks:
    return {each.subtopology_id: tuple(map(int, each.partitions)) for each in tasks}


def _read_by(tasks: Tasks, parts: Iterable[Subtopology]) -> tuple[TopicPartition, ...]:
    """The partitions that tasks read: a task reads its partition of every source topic."""
    return tuple(
        sorted(
            TopicPartition(topic, partition)
            for part in parts
            for partition in tasks.get(part.subtopology_id, ())
            for topic in (*part.source_topics, *part.repartition_source_topics)
        )
    )
