"""Admin requests about leaders and replicas: elections and reassignments.

All go to the controller; every partition has its own result. Where replicas are is in the metadata
(`ottla.client.network.cluster_view`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ottla.client.errors import AnswerError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.messages import milliseconds

PartitionErrors = dict[TopicPartition, AnswerError]


class ElectionType(IntEnum):
    """Which replicas may become leader, by the number in the protocol."""

    PREFERRED = 0
    """The first replica of the partition's assignment, if it is in sync."""
    UNCLEAN = 1
    """Any live replica, if none is in sync; records that it does not have are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """A reassignment in progress; all ids are broker ids."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


async def elect_leaders(
    cluster: Cluster,
    election_type: ElectionType,
    partitions: Iterable[TopicPartition] | None,
    *,
    timeout_ms: int,
) -> tuple[list[TopicPartition], PartitionErrors]:
    """Elects leaders of these partitions, None for all that need it; returns the elected partitions and the errors.

    A listed partition that needs no election counts as elected.
    """
    from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
    from kio.schema.types import TopicName
    from kio.static.primitive import i8, i32

    wanted = None
    if partitions is not None:
        grouped = _by_topic(dict.fromkeys(partitions))
        wanted = tuple(
            TopicPartitions(topic=TopicName(topic), partitions=tuple(map(i32, some))) for topic, some in grouped.items()
        )
    message = ElectLeadersRequest(
        election_type=i8(election_type), topic_partitions=wanted, timeout=milliseconds(timeout_ms)
    )

    async def ask() -> Any:
        response = await cluster.to_controller(ApiKey.ELECT_LEADERS, message, timeout_ms=timeout_ms + _ANSWER_MS)
        if response.error_code:
            raise answer_error(int(response.error_code), "the election")
        return response

    elected: list[TopicPartition] = []
    refused: PartitionErrors = {}
    for topic in (await cluster.retry(ask, timeout_ms=timeout_ms)).replica_election_results:
        for each in topic.partition_result:
            partition = TopicPartition(topic.topic, int(each.partition_id))
            if each.error_code and int(each.error_code) != ErrorCode.ELECTION_NOT_NEEDED:
                refused[partition] = answer_error(
                    int(each.error_code), f"election of {partition}'s leader", each.error_message
                )
            else:
                elected.append(partition)
    return sorted(elected), refused


async def alter_reassignments(
    cluster: Cluster, moves: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: int
) -> PartitionErrors:
    """Starts to move partitions to these brokers; None cancels a reassignment. Returns the errors."""
    from kio.schema.alter_partition_reassignments.v1.request import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i32

    topics: dict[str, list[ReassignablePartition]] = {}
    for partition, replicas in moves.items():
        topics.setdefault(partition.topic, []).append(
            ReassignablePartition(
                partition_index=i32(partition.partition),
                replicas=None if replicas is None else tuple(map(BrokerId, replicas)),
            )
        )
    message = AlterPartitionReassignmentsRequest(
        timeout=milliseconds(timeout_ms),
        topics=tuple(
            ReassignableTopic(name=TopicName(topic), partitions=tuple(some)) for topic, some in topics.items()
        ),
    )

    async def ask() -> Any:
        response = await cluster.to_controller(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, message, timeout_ms=timeout_ms + _ANSWER_MS
        )
        if response.error_code:
            raise answer_error(int(response.error_code), "the reassignment", response.error_message)
        return response

    refused: PartitionErrors = {}
    for topic in (await cluster.retry(ask, timeout_ms=timeout_ms)).responses:
        for each in topic.partitions:
            if each.error_code:
                partition = TopicPartition(topic.name, int(each.partition_index))
                refused[partition] = answer_error(
                    int(each.error_code), f"reassignment of {partition}", each.error_message
                )
    return refused


async def list_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, timeout_ms: int
) -> dict[TopicPartition, PartitionReassignment]:
    """The reassignments in progress: of these partitions, or all."""
    from kio.schema.list_partition_reassignments.v0.request import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsTopics,
    )
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    wanted = None
    if partitions is not None:
        wanted = tuple(
            ListPartitionReassignmentsTopics(name=TopicName(topic), partition_indexes=tuple(map(i32, some)))
            for topic, some in _by_topic(dict.fromkeys(partitions)).items()
        )
    message = ListPartitionReassignmentsRequest(timeout=milliseconds(timeout_ms), topics=wanted)

    async def ask() -> Any:
        response = await cluster.to_controller(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, message, timeout_ms=timeout_ms + _ANSWER_MS
        )
        if response.error_code:
            raise answer_error(int(response.error_code), "the list of reassignments", response.error_message)
        return response

    found = {
        TopicPartition(topic.name, int(each.partition_index)): PartitionReassignment(
            replicas=tuple(map(int, each.replicas)),
            adding_replicas=tuple(map(int, each.adding_replicas)),
            removing_replicas=tuple(map(int, each.removing_replicas)),
        )
        for topic in (await cluster.retry(ask, timeout_ms=timeout_ms)).topics
        for each in topic.partitions
    }
    return dict(sorted(found.items()))


_ANSWER_MS = 5_000
"""How long the client waits for the response after the broker's own timeout."""


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(partition.partition)
    return found
