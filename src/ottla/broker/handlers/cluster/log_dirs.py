"""DescribeLogDirs and AlterReplicaLogDirs: what lies in which data dir, how much room is left, moving partitions."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.env.ports import Disk
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation

_UNKNOWN_BYTES: Final = -1


def describe_log_dirs(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Every data dir with those of the partitions asked for that lie in it; null asks for all, an empty list for none.

    Partitions that are not here are left out. A dir that has failed says so.
    """
    if not context.allows_cluster(Operation.DESCRIBE):
        denied = wire_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return DescribeLogDirsResponse(throttle_time=milliseconds(0), error_code=denied, results=())
    wanted = (
        None
        if request.topics is None
        else {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    )
    replicas: dict[str, list[_Replica]] = defaultdict(list)
    for log in services.logs:
        if wanted is None or log.partition in wanted:
            lag = max(0, log.high_watermark - log.end_offset)
            replicas[log.folder.rpartition("/")[0]].append(_Replica(log.partition, log.size_bytes, lag))
    for partition, future in services.logs.futures.items():
        if wanted is None or partition in wanted:
            found = _Replica(partition, future.size_bytes, future.lag, is_future=True)
            replicas[future.target.path].append(found)
    results = []
    for folder in services.logs.dirs:
        error = ErrorCode.NONE if folder.failure is None else folder.failure.code
        known = error is ErrorCode.NONE
        total, usable = _room(services.disk, folder.path) if known else (_UNKNOWN_BYTES, _UNKNOWN_BYTES)
        results.append(
            DescribeLogDirsResult(
                error_code=wire_error(error),
                log_dir=os.path.abspath(folder.path),
                topics=_topics(replicas[folder.path]) if error is ErrorCode.NONE else (),
                total_bytes=i64(total),
                usable_bytes=i64(usable),
                is_cordoned=False,
            )
        )
    return DescribeLogDirsResponse(
        throttle_time=milliseconds(0), error_code=wire_error(ErrorCode.NONE), results=tuple(results)
    )


class _Replica(NamedTuple):
    """A log in a data dir, or the copy that will take its place."""

    partition: TopicPartition
    size_bytes: int
    lag: int
    is_future: bool = False


def _topics(replicas: Iterable[_Replica]) -> tuple[DescribeLogDirsTopic, ...]:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for replica in sorted(replicas):
        by_topic[replica.partition.topic].append(
            DescribeLogDirsPartition(
                partition_index=i32(replica.partition.partition),
                partition_size=i64(replica.size_bytes),
                offset_lag=i64(replica.lag),
                is_future_key=replica.is_future,
            )
        )
    return tuple(
        DescribeLogDirsTopic(name=TopicName(name), partitions=tuple(partitions))
        for name, partitions in by_topic.items()
    )


def _room(disk: Disk, path: str) -> tuple[int, int]:
    """The size of the file system that holds a folder, and what is free for us; unknown where it cannot be asked."""
    try:
        return disk.total_bytes(path), disk.free_bytes(path)
    except OSError:
        return _UNKNOWN_BYTES, _UNKNOWN_BYTES


# AlterReplicaLogDirs


def alter_replica_log_dirs(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Begins to move partitions to other data dirs of this broker; an outcome for each partition.

    A partition that is named twice goes to the last data dir. One that this broker does not have yet will be created in
    the data dir that the request names.
    """
    is_allowed = context.allows_cluster(Operation.ALTER)
    wanted = {
        TopicPartition(topic.name, index): folder.path
        for folder in request.dirs
        for topic in folder.topics
        for index in topic.partitions
    }
    errors: dict[str, list[tuple[int, ErrorCode]]] = defaultdict(list)
    for partition, path in wanted.items():
        error = _move(services, partition, path) if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        errors[partition.topic].append((partition.partition, error))
    return AlterReplicaLogDirsResponse(
        throttle_time=milliseconds(0),
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=TopicName(topic), partitions=_partition_results(found))
            for topic, found in errors.items()
        ),
    )


def _move(services: Services, partition: TopicPartition, path: str) -> ErrorCode:
    target = next((each for each in services.logs.dirs if os.path.abspath(each.path) == path), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    topic = services.image.topics.get(partition.topic)
    try:
        if target.failure is not None:
            raise target.failure
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        services.log_dir_moves.move(partition, target)
    except OttlaError as error:
        return error.code
    return ErrorCode.NONE


def _partition_results(found: Sequence[tuple[int, ErrorCode]]) -> tuple[AlterReplicaLogDirPartitionResult, ...]:
    return tuple(
        AlterReplicaLogDirPartitionResult(partition_index=i32(index), error_code=wire_error(error))
        for index, error in found
    )
