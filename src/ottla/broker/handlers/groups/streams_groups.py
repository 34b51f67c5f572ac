"""StreamsGroupHeartbeat and StreamsGroupDescribe: groups of Kafka Streams clients, whose tasks the broker assigns.

From the wire to the group's shard and back; the rules are in `ottla.coordination.groups.streams.groups_state`. Internal
topics that a topology needs are created in `streams_internal_topics.py`; descriptions of topologies come in through
`streams_topologies.py`.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from kio.schema.streams_group_describe.v0 import response as described
from kio.schema.streams_group_heartbeat.v0 import request as asked
from kio.schema.streams_group_heartbeat.v0 import response as answered
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i16, i32, u16

from ottla.broker.handlers.groups.group_members import client_host
from ottla.broker.handlers.groups.streams_internal_topics import create_missing_topics
from ottla.broker.handlers.groups.streams_topologies import topics_of_description
from ottla.broker.handlers.long_requests import with_pauses
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.topic_names import fault_of_name
from ottla.coordination.groups.streams.requests import (
    DescribedMember,
    DescribedStreamsGroup,
    DescribedSubtopology,
    Endpoint,
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatResponse,
)
from ottla.coordination.groups.streams.tasks import TaskId, Tasks, TaskSet, as_tasks
from ottla.coordination.groups.streams.topology import CopartitionGroup, InternalTopic, Subtopology, Topology
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.protocol.messages import milliseconds, wire_error
from ottla.protocol.newer_streams_messages import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    TopologyDescription,
)
from ottla.security.resources import Operation, ResourceType

_MILLISECOND: Final = timedelta(milliseconds=1)
_DESCRIPTIONS_SINCE: Final = 1
_NOT_REQUESTED, _NOT_STORED, _AVAILABLE = 0, 1, 3
"""The status of a topology description in a response."""
_ASSIGNOR: Final = "sticky"


# StreamsGroupHeartbeat


async def streams_group_heartbeat(
    services: Services, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> StreamsGroupHeartbeatResponse:
    """A member joins with its topology, stays or leaves; the response has its tasks."""
    heartbeat = _heartbeat(context, request)
    try:
        answer = _refusal(context, heartbeat)
        if answer is None:
            shard = services.groups.shard_of(heartbeat.group_id)
            answer = await shard.ask(lambda now_ms, token: shard.machine.streams_heartbeat(heartbeat, now_ms, token))
            answer = await create_missing_topics(services, context, answer)
    except OttlaError as error:
        answer = StreamsHeartbeatResponse(error=error.code, error_message=str(error))
    return StreamsGroupHeartbeatResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(answer.error),
        error_message=answer.error_message,
        member_id=answer.member_id,
        member_epoch=i32(answer.member_epoch),
        heartbeat_interval=milliseconds(answer.heartbeat_interval_ms),
        task_offset_interval=milliseconds(0),
        status=tuple(
            answered.Status(status_code=i8(status.code), status_detail=status.detail) for status in answer.statuses
        ),
        active_tasks=None if answer.tasks is None else _answered_tasks(answer.tasks.active),
        standby_tasks=None if answer.tasks is None else _answered_tasks(answer.tasks.standby),
        warmup_tasks=None if answer.tasks is None else _answered_tasks(answer.tasks.warmup),
        topology_description_required=answer.wants_description,
        endpoint_information_epoch=i32(answer.endpoint_epoch),
        partitions_by_user_endpoint=None if answer.endpoints is None else tuple(map(_endpoint, answer.endpoints)),
    )


def _refusal(context: RequestContext, heartbeat: StreamsHeartbeat) -> StreamsHeartbeatResponse | None:
    """Checks the topics of a topology before anything else is done with them. Raises a DeniedError."""
    context.check(Operation.READ, ResourceType.GROUP, heartbeat.group_id)
    if heartbeat.topology is None:
        return None
    names = heartbeat.topology.required_topics()
    names |= {name for each in heartbeat.topology.subtopologies for name in each.repartition_sink_topics}
    prohibited = sorted(names & INTERNAL_TOPICS)
    if prohibited:
        return StreamsHeartbeatResponse(
            error=ErrorCode.STREAMS_INVALID_TOPOLOGY,
            error_message=(
                f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
            ),
        )
    invalid = sorted(name for name in names if fault_of_name(name) is not None)
    if invalid:
        return StreamsHeartbeatResponse(
            error=ErrorCode.STREAMS_INVALID_TOPOLOGY,
            error_message=f"Topic names {','.join(invalid)} are not valid topic names.",
        )
    for name in sorted(names):
        context.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
    return None


def _heartbeat(context: RequestContext, request: StreamsGroupHeartbeatRequest) -> StreamsHeartbeat:
    endpoint = request.user_endpoint
    tags = request.client_tags
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout // _MILLISECOND,
        topology=None if request.topology is None else _topology(request.topology),
        active_tasks=_asked_tasks(request.active_tasks),
        standby_tasks=_asked_tasks(request.standby_tasks),
        warmup_tasks=_asked_tasks(request.warmup_tasks),
        process_id=request.process_id,
        user_endpoint=None if endpoint is None else Endpoint(endpoint.host, endpoint.port),
        client_tags=None if tags is None else tuple((tag.key, tag.value) for tag in tags),
        has_task_offsets=request.task_offsets is not None or request.task_end_offsets is not None,
        shutdown_application=request.shutdown_application,
        can_describe=context.version >= _DESCRIPTIONS_SINCE,
        client_id=context.client_id or "",
        client_host=client_host(context),
    )


def _topology(topology: asked.Topology) -> Topology:
    return Topology(
        epoch=topology.epoch,
        subtopologies=tuple(
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=each.source_topic_regex,
                changelog_topics=tuple(map(_internal_topic, each.state_changelog_topics)),
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=tuple(map(_internal_topic, each.repartition_source_topics)),
                copartition_groups=tuple(
                    CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in each.copartition_groups
                ),
            )
            for each in topology.subtopologies
        ),
    )


def _internal_topic(topic: asked.TopicInfo) -> InternalTopic:
    return InternalTopic(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=tuple((config.key, config.value) for config in topic.topic_configs),
    )


def _asked_tasks(tasks: Sequence[asked.TaskIds] | None) -> Tasks | None:
    if tasks is None:
        return None
    return as_tasks(TaskId(each.subtopology_id, partition) for each in tasks for partition in each.partitions)


def _answered_tasks(tasks: Tasks) -> tuple[answered.TaskIds, ...]:
    return tuple(
        answered.TaskIds(subtopology_id=subtopology_id, partitions=_numbers(partitions))
        for subtopology_id, partitions in tasks.items()
    )


def _endpoint(found: EndpointPartitions) -> answered.EndpointToPartitions:
    def partitions(topics: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[answered.TopicPartition, ...]:
        return tuple(
            answered.TopicPartition(topic=TopicName(name), partitions=_numbers(numbers)) for name, numbers in topics
        )

    return answered.EndpointToPartitions(
        user_endpoint=answered.Endpoint(host=found.endpoint.host, port=u16(found.endpoint.port)),
        active_partitions=partitions(found.active),
        standby_partitions=partitions(found.standby),
    )


# StreamsGroupDescribe


async def streams_group_describe(
    services: Services, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    """Each group with its topology, its members, what they have, and what they are to have.

    Once, however often it is named: with the description of a topology, a group takes up to a megabyte.
    """
    groups = [
        _described(context, _describe(services, context, group_id, request), request)
        async for group_id in with_pauses(dict.fromkeys(request.group_ids))
    ]
    return StreamsGroupDescribeResponse(throttle_time=milliseconds(0), groups=tuple(groups))


def _describe(
    services: Services, context: RequestContext, group_id: str, request: StreamsGroupDescribeRequest
) -> DescribedStreamsGroup:
    try:
        context.check(Operation.DESCRIBE, ResourceType.GROUP, group_id)
        if not group_id:
            return _refused(group_id, ErrorCode.INVALID_GROUP_ID, "a group id cannot be empty")
        shard = services.groups.shard_of(group_id)
        shard.check_active()
    except OttlaError as error:
        return _refused(group_id, error.code, str(error))
    group = shard.machine.describe_streams_group(group_id)
    if not context.authorizer.allows_all:
        names = _topics_of(group)
        if request.include_topology_description and isinstance(group.description, TopologyDescription):
            names |= topics_of_description(group.description)
        if not all(context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in names):
            why = "the group uses topics that the client may not describe"
            return _refused(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, why)
    return group


def _topics_of(group: DescribedStreamsGroup) -> set[str]:
    """The topics that a description would name."""
    return {
        name
        for each in group.subtopologies
        for name in (
            *each.source_topics,
            *each.repartition_sink_topics,
            *(topic.name for topic in each.repartition_source_topics),
            *(topic.name for topic in each.changelog_topics),
        )
    }


def _refused(group_id: str, error: ErrorCode, why: str) -> DescribedStreamsGroup:
    return DescribedStreamsGroup(group_id=group_id, error=error, error_message=why)


def _described(
    context: RequestContext, group: DescribedStreamsGroup, request: StreamsGroupDescribeRequest
) -> DescribedGroup:
    has_operations = request.include_authorized_operations and group.error is ErrorCode.NONE
    status, description = _NOT_REQUESTED, None
    if request.include_topology_description and group.error is ErrorCode.NONE:
        description = group.description if isinstance(group.description, TopologyDescription) else None
        status = _NOT_STORED if description is None else _AVAILABLE
    topology = None
    if group.topology_epoch is not None:
        topology = described.Topology(
            epoch=i32(group.topology_epoch), subtopologies=tuple(map(_described_subtopology, group.subtopologies))
        )
    return DescribedGroup(
        error_code=wire_error(group.error),
        error_message=group.error_message,
        group_id=GroupId(group.group_id),
        group_state=group.group_state if group.error is ErrorCode.NONE else "",
        group_epoch=i32(group.group_epoch),
        assignment_epoch=i32(group.assignment_epoch),
        topology=topology,
        members=tuple(map(_described_member, group.members)),
        authorized_operations=i32(context.operations(ResourceType.GROUP, group.group_id, requested=has_operations)),
        topology_description=description,
        topology_description_status=i8(status),
        assignor_name=_ASSIGNOR if group.error is ErrorCode.NONE else None,
    )


def _described_subtopology(found: DescribedSubtopology) -> described.Subtopology:
    def topics(internal: Sequence[InternalTopic]) -> tuple[described.TopicInfo, ...]:
        return tuple(
            described.TopicInfo(
                name=TopicName(topic.name),
                partitions=i32(topic.partitions),
                replication_factor=i16(topic.replication_factor),
                topic_configs=_pairs(topic.configs),
            )
            for topic in internal
        )

    return described.Subtopology(
        subtopology_id=found.subtopology_id,
        source_topics=tuple(map(TopicName, found.source_topics)),
        repartition_sink_topics=tuple(map(TopicName, found.repartition_sink_topics)),
        state_changelog_topics=topics(found.changelog_topics),
        repartition_source_topics=topics(found.repartition_source_topics),
    )


def _described_member(member: DescribedMember) -> described.Member:
    endpoint = member.user_endpoint
    return described.Member(
        member_id=member.member_id,
        member_epoch=i32(member.member_epoch),
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=i32(member.topology_epoch),
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else described.Endpoint(host=endpoint.host, port=u16(endpoint.port)),
        client_tags=_pairs(member.client_tags),
        task_offsets=(),
        task_end_offsets=(),
        assignment=_described_tasks(member.assignment),
        target_assignment=_described_tasks(member.target),
        is_classic=False,
    )


def _described_tasks(tasks: TaskSet) -> described.Assignment:
    def role(found: Tasks) -> tuple[described.TaskIds, ...]:
        return tuple(
            described.TaskIds(subtopology_id=subtopology_id, partitions=_numbers(partitions))
            for subtopology_id, partitions in found.items()
        )

    return described.Assignment(
        active_tasks=role(tasks.active), standby_tasks=role(tasks.standby), warmup_tasks=role(tasks.warmup)
    )


def _pairs(pairs: Sequence[tuple[str, str]]) -> tuple[described.KeyValue, ...]:
    return tuple(described.KeyValue(key=key, value=value) for key, value in pairs)


def _numbers(numbers: Sequence[int]) -> tuple[i32, ...]:
    return tuple(map(i32, numbers))
