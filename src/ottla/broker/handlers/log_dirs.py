"""DescribeLogDirs: what lies in which data dir, how large it is, and how much room is left."""

import os
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from ottla.broker.context import Context
from ottla.env.ports import Disk
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.messages import milliseconds, wire_error
from ottla.storage.log import Log

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_UNKNOWN_BYTES: Final = -1


def describe_log_dirs(broker: "Broker", context: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Every data dir with those of the partitions asked for that lie in it; null asks for all, an empty list for none.

    Partitions that are not here are left out. A dir that has failed says so.
    """
    wanted = (
        None
        if request.topics is None
        else {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    )
    logs: dict[str, list[Log]] = defaultdict(list)
    for log in broker.store:
        if wanted is None or log.partition in wanted:
            logs[log.folder.rpartition("/")[0]].append(log)
    results = []
    for folder in broker.store.dirs:
        error = ErrorCode.NONE if folder.failure is None else folder.failure.code
        known = error is ErrorCode.NONE
        total, usable = _room(broker.world.disk, folder.path) if known else (_UNKNOWN_BYTES, _UNKNOWN_BYTES)
        results.append(
            DescribeLogDirsResult(
                error_code=wire_error(error),
                log_dir=os.path.abspath(folder.path),
                topics=_topics(logs[folder.path]) if error is ErrorCode.NONE else (),
                total_bytes=i64(total),
                usable_bytes=i64(usable),
                is_cordoned=False,
            )
        )
    return DescribeLogDirsResponse(
        throttle_time=milliseconds(0), error_code=wire_error(ErrorCode.NONE), results=tuple(results)
    )


def _topics(logs: Iterable[Log]) -> tuple[DescribeLogDirsTopic, ...]:
    by_topic: dict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for log in sorted(logs, key=lambda log: log.partition):
        by_topic[log.partition.topic].append(
            DescribeLogDirsPartition(
                partition_index=i32(log.partition.partition),
                partition_size=i64(log.size_bytes),
                offset_lag=i64(max(0, log.high_watermark - log.end_offset)),
                is_future_key=False,
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
