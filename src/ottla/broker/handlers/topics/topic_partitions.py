"""DescribeTopicPartitions: topics in the order of their names, page by page."""

from collections.abc import Container, Iterable

from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import Cursor as NextCursor
from kio.schema.describe_topic_partitions.v0.response import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.types import BrokerId as WireBrokerId
from kio.schema.types import TopicName
from kio.static.primitive import i32

from ottla.broker.handlers.availability import availability
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.topic_names import fault_of_name
from ottla.metadata.image import INTERNAL_TOPICS, ClusterImage, TopicImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import OPERATIONS_NOT_REQUESTED, Operation, ResourceType


def describe_topic_partitions(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """One page, see `page_of`."""
    return page_of(services.image, request, services.config.max_request_partition_size_limit, context)


def page_of(
    image: ClusterImage, request: DescribeTopicPartitionsRequest, partitions_max: int, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """At most `partitions_max` partitions from the cursor on, and the cursor of the next page if there is more.

    No topic means all that the client may describe. A cursor that no page can have led to is refused, topic by topic.
    """
    reachable = image.reachable(context.listener)
    cursor = request.cursor
    named = [topic.name for topic in request.topics]
    first = "" if cursor is None else cursor.topic_name
    names = sorted({name for name in named or image.topics if name >= first})
    if not named and not context.authorizer.allows_all:
        names = [name for name in names if context.sees(Operation.DESCRIBE, ResourceType.TOPIC, name)]
    if cursor is not None and _is_wrong(cursor, names if named else None):
        return _page([_refused(name, ErrorCode.INVALID_REQUEST) for name in named], None)
    left = max(1, min(request.response_partition_limit, partitions_max))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return _page(topics, _next(name, 0))
        topic = image.topics.get(name)
        if named and not context.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            topics.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        operations = context.operations(ResourceType.TOPIC, name)
        if topic is None:
            topics.append(_refused(name, _error_of(name), operations))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(start + left, len(topic.partitions))
        topics.append(_described(image, topic, range(start, end), reachable, operations))
        if end < len(topic.partitions):
            return _page(topics, _next(name, end))
        left -= max(0, end - start)
    return _page(topics, None)


def _is_wrong(cursor: Cursor, names: Iterable[str] | None) -> bool:
    return cursor.partition_index < 0 or (names is not None and cursor.topic_name not in names)


def _error_of(name: str) -> ErrorCode:
    return ErrorCode.INVALID_TOPIC_EXCEPTION if fault_of_name(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], next_cursor: NextCursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(throttle_time=milliseconds(0), topics=tuple(topics), next_cursor=next_cursor)


def _next(name: str, index: int) -> NextCursor:
    return NextCursor(topic_name=TopicName(name), partition_index=i32(index))


def _refused(
    name: str, error: ErrorCode, operations: int = OPERATIONS_NOT_REQUESTED
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=wire_error(error),
        name=TopicName(name),
        topic_id=None,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
        topic_authorized_operations=i32(operations),
    )


def _described(
    image: ClusterImage, topic: TopicImage, indexes: range, reachable: Container[BrokerId], operations: int
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=wire_error(ErrorCode.NONE),
        name=TopicName(topic.name),
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=tuple(_partition(image, topic, index, reachable) for index in indexes),
        topic_authorized_operations=i32(operations),
    )


def _partition(
    image: ClusterImage, topic: TopicImage, index: int, reachable: Container[BrokerId]
) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[index]
    error, leader, offline = availability(partition, image.brokers, reachable)
    return DescribeTopicPartitionsResponsePartition(
        error_code=wire_error(error),
        partition_index=i32(index),
        leader_id=WireBrokerId(i32(leader)),
        leader_epoch=i32(partition.leader_epoch),
        replica_nodes=_wire_ids(partition.replicas),
        isr_nodes=_wire_ids(partition.isr),
        eligible_leader_replicas=_wire_ids(partition.eligible),
        last_known_elr=_wire_ids(partition.lost),
        offline_replicas=_wire_ids(offline),
    )


def _wire_ids(brokers: tuple[BrokerId, ...]) -> tuple[WireBrokerId, ...]:
    return tuple(WireBrokerId(i32(broker)) for broker in brokers)
