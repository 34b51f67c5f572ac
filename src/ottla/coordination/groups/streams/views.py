"""Queries of a streams group: descriptions, endpoints of interactive queries, and whether a member may commit offsets.

Pure functions of the group as it is; responses wait until that is committed.
"""

from collections.abc import Mapping
from uuid import UUID

from ottla.coordination.groups.group_kind import ALLOWED, CommitVerdict, Topics
from ottla.coordination.groups.streams.group import Member, StreamsGroup
from ottla.coordination.groups.streams.requests import (
    DescribedMember,
    DescribedStreamsGroup,
    DescribedSubtopology,
    Endpoint,
    EndpointPartitions,
)
from ottla.coordination.groups.streams.tasks import NOTHING, TaskEpochs, Tasks
from ottla.coordination.groups.streams.topology import InternalTopic, Topology
from ottla.coordination.groups.streams.topology_configuration import ConfiguredTopology
from ottla.model.error_codes import ErrorCode


def describe(group_id: str, group: StreamsGroup | None, configured: ConfiguredTopology | None) -> DescribedStreamsGroup:
    """StreamsGroupDescribe, for one group; None for one that does not exist or is of another kind."""
    if group is None:
        return DescribedStreamsGroup(
            group_id=group_id,
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} is not a streams group, or not found.",
        )
    return DescribedStreamsGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology_epoch=None if group.topology is None else group.topology.epoch,
        subtopologies=_subtopologies(group.topology, configured),
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                instance_id=member.said.instance_id,
                rack_id=member.said.rack_id,
                client_id=member.said.client_id,
                client_host=member.said.client_host,
                topology_epoch=member.said.topology_epoch,
                process_id=member.said.process_id,
                user_endpoint=member.said.user_endpoint,
                client_tags=member.said.client_tags,
                assignment=member.assigned.task_set(),
                target=group.targets.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        ),
    )


def _subtopologies(
    topology: Topology | None, configured: ConfiguredTopology | None
) -> tuple[DescribedSubtopology, ...]:
    """With the real numbers of partitions if all topics exist, else as the members sent them."""
    if configured is not None and configured.is_ready:
        return tuple(
            DescribedSubtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                repartition_sink_topics=each.repartition_sink_topics,
                changelog_topics=each.changelog_topics,
                repartition_source_topics=each.repartition_source_topics,
            )
            for each in configured.subtopologies.values()
        )
    if topology is None:
        return ()

    def by_name(topics: tuple[InternalTopic, ...]) -> tuple[InternalTopic, ...]:
        return tuple(sorted(topics, key=lambda topic: topic.name))

    return tuple(
        DescribedSubtopology(
            subtopology_id=each.subtopology_id,
            source_topics=tuple(sorted(each.source_topics)),
            repartition_sink_topics=tuple(sorted(each.repartition_sink_topics)),
            changelog_topics=by_name(each.changelog_topics),
            repartition_source_topics=by_name(each.repartition_source_topics),
        )
        for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
    )


# Interactive queries


def endpoints(group: StreamsGroup, configured: ConfiguredTopology, topics: Topics) -> tuple[EndpointPartitions, ...]:
    """The partitions that each member with an endpoint can answer queries about."""
    return tuple(
        _endpoint(member, member.said.user_endpoint, configured, topics)
        for member in group.members.values()
        if member.said.user_endpoint is not None
    )


def _endpoint(member: Member, endpoint: Endpoint, configured: ConfiguredTopology, topics: Topics) -> EndpointPartitions:
    tasks = member.assigned.task_set()
    return EndpointPartitions(
        endpoint=endpoint,
        active=_partitions(tasks.active, configured, topics),
        standby=_partitions(tasks.standby, configured, topics),
    )


def _partitions(
    tasks: Tasks, configured: ConfiguredTopology, topics: Topics
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = []
    for subtopology_id, partitions in tasks.items():
        subtopology = configured.subtopologies.get(subtopology_id)
        for name in () if subtopology is None else subtopology.input_topics:
            count = topics[name].partition_count if name in topics else 0
            # A topic with fewer partitions than the subtopology has tasks is not in all tasks.
            found.append((name, tuple(partition for partition in partitions if partition < count)))
    return tuple(found)


# Offsets


def commit_verdict(
    group: StreamsGroup,
    topics: Topics,
    *,
    member_id: str,
    instance_id: str | None,
    member_epoch: int,
    is_transactional: bool,
    is_modern: bool = True,
) -> CommitVerdict:
    """Whether offsets of the group may be committed. Without members any client may that does not claim to be one.

    `is_modern`: the client's OffsetCommit has a version that knows STALE_MEMBER_EPOCH.
    """
    if member_epoch < 0 and not group.members:
        return ALLOWED
    if is_transactional and member_epoch == -1 and not member_id and instance_id is None:
        # Old versions of TxnOffsetCommit have no member.
        return ALLOWED
    member = group.members.get(member_id)
    if member is None:
        return CommitVerdict(error=ErrorCode.UNKNOWN_MEMBER_ID)
    if not is_transactional and not is_modern:
        return CommitVerdict(error=ErrorCode.UNSUPPORTED_VERSION)
    if member_epoch == member.member_epoch:
        return ALLOWED
    if member_epoch > member.member_epoch or group.topology is None:
        return CommitVerdict(error=ErrorCode.STALE_MEMBER_EPOCH)
    holdings = tuple(
        _held_partitions(group.topology, tasks, topics) for tasks in (member.assigned.active, member.revoking.active)
    )
    return CommitVerdict(received_epoch=member_epoch, holdings=holdings)


def _held_partitions(topology: Topology, tasks: TaskEpochs, topics: Topics) -> Mapping[UUID, Mapping[int, int]]:
    """The input partitions of active tasks by topic id, each with the epoch since which the member has the task."""
    return {
        topics[name].topic_id: tasks[subtopology_id]
        for name, subtopology_id in topology.subtopology_of_topics().items()
        if name in topics and subtopology_id in tasks
    }


def fetch_refusal(group: StreamsGroup, *, member_id: str | None, member_epoch: int) -> ErrorCode:
    """The error for a fetch of offsets; NONE if it is allowed. A client that does not claim to be a member may."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_epoch == member.member_epoch else ErrorCode.STALE_MEMBER_EPOCH
