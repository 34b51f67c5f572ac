"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments.

The rules are the controller's (`ottla.controller.partitions_state`).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from kio.schema.alter_partition_reassignments.v1.request import AlterPartitionReassignmentsRequest
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kio.schema.types import BrokerId as WireBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.decisions import PartitionOutcome, Reassignment
from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


# ElectLeaders


async def elect_leaders(
    services: Services, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Lets the preferred replicas lead, or (type 1) any live one where none does.

    Asked for all partitions with null, it answers for those that needed it only.
    """
    asked = (
        None
        if request.topic_partitions is None
        else [TopicPartition(each.topic, index) for each in request.topic_partitions for index in each.partitions]
    )
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        why = f"election type {request.election_type} is not valid; use 0 (preferred) or 1 (unclean)"
        return _elected(ErrorCode.INVALID_REQUEST, _refused(asked or (), ErrorCode.INVALID_REQUEST, why))
    try:
        context.check_cluster(Operation.ALTER)
        committed = await services.controller.elect_leaders(asked, unclean=request.election_type == _UNCLEAN)
    except OttlaError as error:
        return _elected(error.code, _refused(asked or (), error.code, str(error)))
    await _wait(services, committed.revision, request.timeout)
    return _elected(ErrorCode.NONE, committed.outcomes)


def _elected(error: ErrorCode, outcomes: Iterable[PartitionOutcome]) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=TopicName(topic),
                partition_result=tuple(
                    PartitionResult(
                        partition_id=i32(outcome.partition),
                        error_code=wire_error(outcome.error),
                        error_message=outcome.message,
                    )
                    for outcome in of_topic
                ),
            )
            for topic, of_topic in _by_topic(outcomes).items()
        ),
    )


# AlterPartitionReassignments


async def alter_partition_reassignments(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begins to move partitions, or with null replicas takes such moves back."""
    wishes = [
        Reassignment(
            topic=topic.name,
            partition=part.partition_index,
            replicas=None if part.replicas is None else tuple(map(BrokerId, part.replicas)),
        )
        for topic in request.topics
        for part in topic.partitions
    ]
    refused: dict[Reassignment, PartitionOutcome] = {}
    if not request.allow_replication_factor_change:
        image = services.image
        refused = {wish: outcome for wish in wishes if (outcome := _changed_factor(image, wish)) is not None}
    code, message = ErrorCode.NONE, None
    outcomes: list[PartitionOutcome] = list(refused.values())
    try:
        context.check_cluster(Operation.ALTER)
        committed = await services.controller.alter_reassignments([wish for wish in wishes if wish not in refused])
        outcomes += committed.outcomes
        await _wait(services, committed.revision, request.timeout)
    except OttlaError as error:
        code, message = error.code, str(error)
        outcomes = [
            PartitionOutcome(topic=wish.topic, partition=wish.partition, error=code, message=message) for wish in wishes
        ]
    return AlterPartitionReassignmentsResponse(
        throttle_time=milliseconds(0),
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=wire_error(code),
        error_message=message,
        responses=tuple(
            ReassignableTopicResponse(
                name=TopicName(topic),
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=i32(outcome.partition),
                        error_code=wire_error(outcome.error),
                        error_message=outcome.message,
                    )
                    for outcome in of_topic
                ),
            )
            for topic, of_topic in _by_topic(outcomes).items()
        ),
    )


def _changed_factor(image: ClusterImage, wish: Reassignment) -> PartitionOutcome | None:
    """The refusal of a move that would give a partition another number of replicas than it has."""
    topic = image.topics.get(wish.topic)
    if topic is None or wish.replicas is None or not 0 <= wish.partition < len(topic.partitions):
        return None
    partition = topic.partitions[wish.partition]
    present = len(partition.replicas) - len(partition.adding)
    if present == len(wish.replicas):
        return None
    return PartitionOutcome(
        topic=wish.topic,
        partition=wish.partition,
        error=ErrorCode.INVALID_REPLICATION_FACTOR,
        message=f"the partition has {present} replica(s); {len(wish.replicas)} would change the replication factor",
    )


# ListPartitionReassignments


def list_partition_reassignments(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The moves that this broker knows of."""
    if not context.allows_cluster(Operation.DESCRIBE):
        return ListPartitionReassignmentsResponse(
            throttle_time=milliseconds(0),
            error_code=wire_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            error_message=None,
            topics=(),
        )
    return moves_of(services.image, request)


def moves_of(image: ClusterImage, request: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """The moves that are under way, of all partitions (null) or of those asked for."""
    topics = image.topics
    if request.topics is None:
        wanted: dict[str, Sequence[int]] = {name: range(len(topic.partitions)) for name, topic in topics.items()}
    else:
        wanted = {each.name: each.partition_indexes for each in request.topics}
    found: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for name, indexes in wanted.items():
        partitions = topics[name].partitions if name in topics else ()
        for index in indexes:
            if 0 <= index < len(partitions) and (partitions[index].adding or partitions[index].removing):
                found[name].append(_ongoing(index, partitions[index]))
    return ListPartitionReassignmentsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(ErrorCode.NONE),
        error_message=None,
        topics=tuple(
            OngoingTopicReassignment(name=TopicName(name), partitions=tuple(moves)) for name, moves in found.items()
        ),
    )


def _ongoing(index: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=i32(index),
        replicas=_wire_ids(partition.replicas),
        adding_replicas=_wire_ids(partition.adding),
        removing_replicas=_wire_ids(partition.removing),
    )


# What they share


async def _wait(services: Services, revision: int, patience: timedelta) -> None:
    """Lets this broker catch up with a change for as long as the client waits; the change stands in any case."""
    try:
        async with asyncio.timeout(max(0.0, patience.total_seconds())):
            await services.wait_revision(revision)
    except TimeoutError:
        pass


def _refused(asked: Iterable[TopicPartition], error: ErrorCode, why: str) -> list[PartitionOutcome]:
    return [PartitionOutcome(topic=each.topic, partition=each.partition, error=error, message=why) for each in asked]


def _by_topic(outcomes: Iterable[PartitionOutcome]) -> dict[str, list[PartitionOutcome]]:
    found: dict[str, list[PartitionOutcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.topic].append(outcome)
    return found


def _wire_ids(brokers: tuple[BrokerId, ...]) -> tuple[WireBrokerId, ...]:
    return tuple(WireBrokerId(i32(broker)) for broker in brokers)
