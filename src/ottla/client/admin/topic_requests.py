"""What an administrator asks of a cluster, as plain functions: topics, records, configs, log dirs.

Each takes a `Cluster`, tries again what may be tried again, and raises `AnswerError` with the broker's own words.
Values are small frozen classes, never protocol messages. An admin class is a thin coat over these.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from ottla.client.errors import UnsupportedByBrokerError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import BrokerView
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.transport.addresses import Address

BROKER_DEFAULT: Final = -1
"""For counts: let the broker's configuration decide."""
FINISH_TIMEOUT_MS: Final = 30_000
"""How long the controller may take to carry out what it has decided, before it answers all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic as it was, or would be, created; counts are -1 where an old broker does not say."""

    name: str
    id: UUID | None
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPartition:
    """One replica in a log dir."""

    partition: TopicPartition
    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """One folder of one broker; `error_code` is 0 unless its disk has failed. Sizes are -1 where unknown."""

    broker: int
    path: str
    error_code: ErrorCode
    total_bytes: int
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster as one of its brokers sees it; `controller` is None while there is none."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerView, ...]


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """Which brokers there are, and who is the controller."""
    from kio.schema.describe_cluster.v2.request import DescribeClusterRequest

    message = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=False)

    async def ask() -> ClusterDescription:
        response = await cluster.to_any(ApiKey.DESCRIBE_CLUSTER, message)
        _refuse(response, "the cluster")
        brokers = [
            BrokerView(id=int(each.broker_id), address=Address(each.host, int(each.port)), rack=each.rack)
            for each in response.brokers
        ]
        return ClusterDescription(
            cluster_id=response.cluster_id,
            controller=None if response.controller_id < 0 else int(response.controller_id),
            brokers=tuple(sorted(brokers, key=lambda each: each.id)),
        )

    return await cluster.retry(ask)


async def lost_replicas(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas that have lost their log, or an unknown part of it, and have not caught up since; by partition.

    Kafka calls them the last known eligible leader replicas. A broker that cannot be asked for them knows none.
    """
    from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest, TopicRequest
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    wanted = tuple(TopicRequest(name=TopicName(each)) for each in sorted(topics))
    found: dict[TopicPartition, tuple[int, ...]] = {}
    cursor: Cursor | None = None
    while wanted:
        message = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=i32(2000), cursor=cursor)
        try:
            response = await cluster.retry(partial(cluster.to_any, ApiKey.DESCRIBE_TOPIC_PARTITIONS, message))
        except UnsupportedByBrokerError:
            break
        for topic in response.topics:
            for each in topic.partitions:
                if each.last_known_elr:
                    name = TopicPartition(topic.name, int(each.partition_index))
                    found[name] = tuple(map(int, each.last_known_elr))
        if response.next_cursor is None:
            break
        last = response.next_cursor
        cursor = Cursor(topic_name=last.topic_name, partition_index=last.partition_index)
    return found


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
    validate_only: bool = False,
    timeout_ms: int = FINISH_TIMEOUT_MS,
) -> CreatedTopic:
    """Creates one topic, or only checks whether it could be; with `assignments` both counts follow from those."""
    from kio.schema.create_topics.v7.request import (
        CreatableReplicaAssignment,
        CreatableTopic,
        CreatableTopicConfig,
        CreateTopicsRequest,
    )
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i16, i32

    from ottla.protocol.messages import milliseconds

    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(replication_factor),
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=i32(index), broker_ids=tuple(map(BrokerId, brokers)))
            for index, brokers in (assignments or {}).items()
        ),
        configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()),
    )
    message = CreateTopicsRequest(topics=(topic,), timeout=milliseconds(timeout_ms), validate_only=validate_only)

    async def ask() -> CreatedTopic:
        response = await cluster.to_controller(ApiKey.CREATE_TOPICS, message)
        (created,) = response.topics
        _refuse(created, f"topic {name}")
        return CreatedTopic(
            name=name,
            id=created.topic_id,
            partitions=int(created.num_partitions),
            replication_factor=int(created.replication_factor),
        )

    return await cluster.retry(ask)


async def delete_topic(cluster: Cluster, name: str, *, timeout_ms: int = FINISH_TIMEOUT_MS) -> None:
    """Deletes one topic with all its records."""
    from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
    from kio.schema.types import TopicName

    from ottla.protocol.messages import milliseconds

    message = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=TopicName(name), topic_id=None),), timeout=milliseconds(timeout_ms)
    )

    async def ask() -> None:
        response = await cluster.to_controller(ApiKey.DELETE_TOPICS, message)
        _refuse(response.responses[0], f"topic {name}")

    await cluster.retry(ask, give_up=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
    cluster.forget_topic(name)


async def add_partitions(
    cluster: Cluster,
    name: str,
    count: int,
    *,
    assignments: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
    timeout_ms: int = FINISH_TIMEOUT_MS,
) -> None:
    """Lets a topic have `count` partitions in all; `assignments` has the brokers of each new one."""
    from kio.schema.create_partitions.v3.request import (
        CreatePartitionsAssignment,
        CreatePartitionsRequest,
        CreatePartitionsTopic,
    )
    from kio.schema.types import BrokerId, TopicName
    from kio.static.primitive import i32

    from ottla.protocol.messages import milliseconds

    placed = None
    if assignments is not None:
        placed = tuple(CreatePartitionsAssignment(broker_ids=tuple(map(BrokerId, each))) for each in assignments)
    message = CreatePartitionsRequest(
        topics=(CreatePartitionsTopic(name=TopicName(name), count=i32(count), assignments=placed),),
        timeout=milliseconds(timeout_ms),
        validate_only=validate_only,
    )

    async def ask() -> None:
        response = await cluster.to_controller(ApiKey.CREATE_PARTITIONS, message)
        _refuse(response.results[0], f"topic {name}")

    await cluster.retry(ask, give_up=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
    cluster.forget_topic(name)


async def delete_records(cluster: Cluster, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes every record below an offset, -1 for all there are; answers where each partition now begins."""
    return {
        partition: await cluster.retry(partial(_delete_records, cluster, partition, offset))
        for partition, offset in before.items()
    }


async def delete_records_of(cluster: Cluster, partition: TopicPartition, offset: int) -> int:
    """As `delete_records`, of one partition; one that does not exist is refused at once."""
    missing = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    return await cluster.retry(partial(_delete_records, cluster, partition, offset), give_up=missing)


async def _delete_records(cluster: Cluster, partition: TopicPartition, offset: int) -> int:
    from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
    from kio.schema.types import TopicName
    from kio.static.primitive import i32, i64

    from ottla.protocol.messages import milliseconds

    wanted = DeleteRecordsPartition(partition_index=i32(partition.partition), offset=i64(offset))
    message = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=TopicName(partition.topic), partitions=(wanted,)),),
        timeout=milliseconds(FINISH_TIMEOUT_MS),
    )
    response = await cluster.to_leader(partition, ApiKey.DELETE_RECORDS, message)
    answer = response.topics[0].partitions[0]
    _refuse(answer, f"records of {partition} below offset {offset}")
    return int(answer.low_watermark)


async def describe_log_dirs(
    cluster: Cluster, broker: int, partitions: Iterable[TopicPartition] | None = None
) -> list[LogDir]:
    """The log dirs of one broker with the replicas in them, all or only these partitions'."""
    from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    topics = None
    if partitions is not None:
        grouped: dict[str, list[i32]] = {}
        for partition in partitions:
            grouped.setdefault(partition.topic, []).append(i32(partition.partition))
        topics = tuple(
            DescribableLogDirTopic(topic=TopicName(topic), partitions=tuple(some)) for topic, some in grouped.items()
        )
    response = await cluster.retry(
        lambda: cluster.to_broker(broker, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=topics))
    )
    if response.error_code:
        raise answer_error(int(response.error_code), f"log dirs of broker {broker}")
    return [_log_dir(broker, each) for each in response.results]


def _log_dir(broker: int, found: Any) -> LogDir:
    return LogDir(
        broker=broker,
        path=found.log_dir,
        error_code=ErrorCode(int(found.error_code)),
        total_bytes=int(found.total_bytes),
        usable_bytes=int(found.usable_bytes),
        partitions=tuple(
            LogDirPartition(
                partition=TopicPartition(topic.name, int(each.partition_index)),
                size_bytes=int(each.partition_size),
                lag=int(each.offset_lag),
                is_future=bool(each.is_future_key),
            )
            for topic in found.topics
            for each in topic.partitions
        ),
    )


async def partition_sizes(cluster: Cluster, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """What each partition's leader stores of it, in bytes; a partition without a leader is left out."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for partition in partitions:
        leader = (await cluster.partition(partition)).leader
        if leader is not None:
            by_leader.setdefault(leader, []).append(partition)
    sizes: dict[TopicPartition, int] = {}
    for leader, some in by_leader.items():
        for log_dir in await describe_log_dirs(cluster, leader, some):
            sizes.update({each.partition: each.size_bytes for each in log_dir.partitions if not each.is_future})
    return sizes


def _refuse(answer: Any, what: str) -> None:
    """Raises what an answer's code says, with the broker's words where it has some."""
    if answer.error_code:
        raise answer_error(int(answer.error_code), what, getattr(answer, "error_message", None))
