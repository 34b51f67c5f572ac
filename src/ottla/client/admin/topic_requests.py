"""Admin requests about the cluster, topics, records and log directories, one function for each.

Each function takes a `Cluster`, retries retriable errors, and raises `AnswerError` with the broker's message. Results
are small frozen classes, never protocol messages.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from ottla.client.errors import AnswerError, UnsupportedByBrokerError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.network.cluster_view import BrokerView
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.transport.addresses import Address

BROKER_DEFAULT: Final = -1
"""For counts: use the default of the broker."""
FINISH_TIMEOUT_MS: Final = 30_000
"""How long the controller may wait for its decision to take effect before it responds anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic as it was, or would be, created; counts are -1 if an old broker does not return them."""

    name: str
    id: UUID | None
    partitions: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirPartition:
    """One replica in a log directory."""

    partition: TopicPartition
    size_bytes: int
    lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """One log directory of one broker; `error_code` is 0 unless its disk has failed. Unknown sizes are -1."""

    broker: int
    path: str
    error_code: ErrorCode
    total_bytes: int
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The cluster as one broker sees it; `controller` is None while there is none."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerView, ...]


async def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """The brokers and the controller."""
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


async def topic_operations(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    """What this client may do to topics, as bits: `1 << ACLOperation.READ` and so on. 0 if the broker does not tell."""
    from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
    from kio.schema.types import TopicName

    message = MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=TopicName(each)) for each in sorted(topics)),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    response = await cluster.retry(partial(cluster.to_any, ApiKey.METADATA, message))
    # The sign bit stands for brokers that do not know the field.
    return {
        str(each.name): max(int(each.topic_authorized_operations), 0) for each in response.topics if not each.error_code
    }


async def lost_replicas(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas that lost their log, or an unknown part of it, and have not caught up since; by partition.

    Kafka calls them the last known eligible leader replicas. The result is empty for brokers that do not support this.
    """
    found = await eligible_replicas(cluster, topics)
    return {partition: each.last_known for partition, each in found.items() if each.last_known}


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibleReplicas:
    """Replicas outside the ISR that may become leader (`eligible`), or could have before they were lost."""

    eligible: tuple[int, ...]
    last_known: tuple[int, ...]


async def eligible_replicas(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, EligibleReplicas]:
    """The eligible leader replicas of each partition. Empty for brokers that do not support this."""
    from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest, TopicRequest
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    wanted = tuple(TopicRequest(name=TopicName(each)) for each in sorted(topics))
    found: dict[TopicPartition, EligibleReplicas] = {}
    cursor: Cursor | None = None
    while wanted:
        message = DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=i32(2000), cursor=cursor)
        try:
            response = await cluster.retry(partial(cluster.to_any, ApiKey.DESCRIBE_TOPIC_PARTITIONS, message))
        except UnsupportedByBrokerError:
            break
        for topic in response.topics:
            for each in topic.partitions:
                found[TopicPartition(topic.name, int(each.partition_index))] = EligibleReplicas(
                    eligible=tuple(map(int, each.eligible_leader_replicas or ())),
                    last_known=tuple(map(int, each.last_known_elr or ())),
                )
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
    """Creates one topic, or only validates it; with `assignments` leave both counts at their defaults."""
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


async def wait_for_topics(cluster: Cluster, topics: Collection[str], *, timeout_ms: int = FINISH_TIMEOUT_MS) -> None:
    """Returns when every partition of these topics has a leader; raises what is missing after `timeout_ms`."""

    async def check() -> None:
        view = await cluster.refresh(topics)
        for name in topics:
            if name not in view.topics:
                raise answer_error(view.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
            if any(each.leader is None for each in view.topics[name].partitions):
                raise answer_error(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name}")

    await cluster.retry(check, timeout_ms=timeout_ms)


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
    """Adds partitions to a topic, up to `count` in all; `assignments` has the brokers of each new one."""
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
    """Deletes the records below an offset, -1 for all; returns the new log start offset of each partition."""
    return {
        partition: await cluster.retry(partial(_delete_records, cluster, partition, offset))
        for partition, offset in before.items()
    }


async def delete_records_of(cluster: Cluster, partition: TopicPartition, offset: int) -> int:
    """As `delete_records`, for one partition; raises at once if it does not exist."""
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
    """The log directories of one broker, with all replicas in them or only those of these partitions."""
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


async def alter_replica_log_dirs(
    cluster: Cluster, broker: int, moves: Mapping[TopicPartition, str]
) -> dict[TopicPartition, AnswerError]:
    """Begins to move replicas of a broker to other log directories of it; returns those that were refused."""
    from kio.schema.alter_replica_log_dirs.v2.request import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    grouped: dict[str, dict[str, list[i32]]] = {}
    for partition, path in moves.items():
        grouped.setdefault(path, {}).setdefault(partition.topic, []).append(i32(partition.partition))
    message = AlterReplicaLogDirsRequest(
        dirs=tuple(
            AlterReplicaLogDir(
                path=path,
                topics=tuple(
                    AlterReplicaLogDirTopic(name=TopicName(topic), partitions=tuple(some))
                    for topic, some in topics.items()
                ),
            )
            for path, topics in grouped.items()
        )
    )
    response = await cluster.retry(lambda: cluster.to_broker(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, message))
    found = {
        TopicPartition(topic.topic_name, int(each.partition_index)): int(each.error_code)
        for topic in response.results
        for each in topic.partitions
    }
    return {
        partition: answer_error(code, f"replica of {partition} on broker {broker}")
        for partition, code in found.items()
        if code
    }


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
    """The size in bytes of each partition on its leader; a partition without a leader is left out."""
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
    """Raises `AnswerError` if the response has an error code."""
    if answer.error_code:
        raise answer_error(int(answer.error_code), what, getattr(answer, "error_message", None))
