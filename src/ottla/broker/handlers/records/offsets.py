"""ListOffsets and OffsetForLeaderEpoch: where a partition begins and ends, where a time is, where an epoch ended."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest, OffsetForLeaderPartition
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, LeaderNotAvailableError, OffsetNotAvailableError, OttlaError
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP, LeaderEpoch, Offset, TimestampMs
from ottla.protocol.messages import milliseconds, wire_error
from ottla.replication.partition import Partition
from ottla.security.resources import Operation, ResourceType
from ottla.storage.segments.time_index import TimestampOffset

_LATEST: Final = -1
_EARLIEST: Final = -2
_MAX_TIMESTAMP: Final = -3
_EARLIEST_LOCAL: Final = -4
_LATEST_TIERED: Final = -5
_EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {
    _LATEST: 1,
    _EARLIEST: 1,
    _MAX_TIMESTAMP: 7,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version in which a negative timestamp has its meaning."""

_CONSUMER: Final = -1
"""The replica id of clients that are not replicas: they see what every in-sync replica has."""
_OFFSET_NOT_AVAILABLE_SINCE: Final = 5
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_SEARCHES_AT_ONCE: Final = 32
"""A search by time reads a batch, and decompresses a small one; after this many, other work may run."""


class _UnknownTimestampError(OttlaError):
    code = ErrorCode.UNSUPPORTED_VERSION


class _Found(NamedTuple):
    offset: Offset = NO_OFFSET
    timestamp: TimestampMs = NO_TIMESTAMP
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH


_NOT_FOUND: Final = _Found()


# ListOffsets


async def list_offsets(services: Services, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """For each partition the offset that its timestamp stands for, or -1 if there is none.

    A partition that is asked for twice is refused, once.
    """
    asked = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    answered: set[tuple[str, int]] = set()
    topics: list[ListOffsetsTopicResponse] = []
    searches = 0
    for topic in request.topics:
        partitions: list[ListOffsetsPartitionResponse] = []
        for part in topic.partitions:
            place = (topic.name, part.partition_index)
            if place in answered:
                continue
            answered.add(place)
            searches += part.timestamp >= 0 or part.timestamp == _MAX_TIMESTAMP
            if searches > _SEARCHES_AT_ONCE:
                searches = 0
                await asyncio.sleep(0)
            try:
                if asked[place] > 1:
                    raise InvalidRequestError(f"{place[0]}-{place[1]} is in the request {asked[place]} times")
                context.check(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
                _check_timestamp(part.timestamp, context.version)
                partition = services.partitions.find(*place)
                partition.check_leader_epoch(part.current_leader_epoch)
                upper = _upper_bound(partition, request.replica_id, request.isolation_level)
                if request.replica_id == _CONSUMER and part.timestamp not in (_EARLIEST, _EARLIEST_LOCAL):
                    _check_end_known(partition, context.version)
                partitions.append(
                    _listed(part, ErrorCode.NONE, await _find(services, partition, part.timestamp, upper))
                )
            except OttlaError as error:
                partitions.append(_listed(part, services.repairs.code_of(error, *place), _NOT_FOUND))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(throttle_time=milliseconds(0), topics=tuple(topics))


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SINCE.get(timestamp, 2**15):
        raise _UnknownTimestampError(f"timestamp {timestamp} is not supported in version {version} of ListOffsets")


def _upper_bound(partition: Partition, replica_id: int, isolation_level: int) -> Offset:
    """The end offset for the request's isolation level."""
    if replica_id != _CONSUMER:
        return partition.end_offset
    if isolation_level == _READ_COMMITTED:
        return partition.last_stable_offset
    if isolation_level == _READ_UNCOMMITTED:
        return partition.high_watermark
    raise InvalidRequestError(f"isolation level {isolation_level} is neither 0 nor 1")


def _check_end_known(partition: Partition, version: int) -> None:
    """Raises while a new leader's high watermark may be below its predecessor's: the end must not go back."""
    leader = partition.leader
    if leader is not None and partition.high_watermark < leader.epoch_start:
        unknown = OffsetNotAvailableError if version >= _OFFSET_NOT_AVAILABLE_SINCE else LeaderNotAvailableError
        raise unknown(f"{partition.topic}-{partition.index} has a new leader, whose followers have not caught up")


async def _find(services: Services, partition: Partition, timestamp: int, upper: Offset) -> _Found:
    bound = _BOUNDS.get(timestamp)
    if bound is not None:
        return bound(partition, upper)
    wanted = None if timestamp == _MAX_TIMESTAMP else TimestampMs(timestamp)
    return _seen(partition, await partition.log.search_time(wanted, services.decompression.run), upper)


def _latest(partition: Partition, upper: Offset) -> _Found:
    return _Found(upper, NO_TIMESTAMP, partition.leader_epoch)


def _earliest(partition: Partition, upper: Offset) -> _Found:
    start = partition.start_offset
    return _Found(start, NO_TIMESTAMP, _epoch_at(partition, start))


def _nowhere(partition: Partition, upper: Offset) -> _Found:
    """Nothing is tiered, so no offset is the last that was, or the first that waits for it."""
    return _NOT_FOUND


_BOUNDS: Final[dict[int, Callable[[Partition, Offset], _Found]]] = {
    _LATEST: _latest,
    _EARLIEST: _earliest,
    _EARLIEST_LOCAL: _earliest,
    _LATEST_TIERED: _nowhere,
    _EARLIEST_PENDING_UPLOAD: _nowhere,
}


def _seen(partition: Partition, found: TimestampOffset | None, upper: Offset) -> _Found:
    """The record that was found, if it is visible at the request's isolation level."""
    if found is None or found.offset >= upper:
        return _NOT_FOUND
    return _Found(found.offset, found.timestamp, _epoch_at(partition, found.offset))


def _epoch_at(partition: Partition, offset: Offset) -> LeaderEpoch:
    """The epoch of a record, or for the end of the log the one that its next record will have."""
    if offset >= partition.end_offset:
        return partition.leader_epoch
    return partition.log.epochs.epoch_at(offset)


def _listed(part: ListOffsetsPartition, error: ErrorCode, found: _Found) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        error_code=wire_error(error),
        timestamp=i64(found.timestamp),
        offset=i64(found.offset),
        leader_epoch=i32(found.leader_epoch),
    )


# OffsetForLeaderEpoch


def offset_for_leader_epoch(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """For each partition the largest epoch that is at most the one asked for, and where it ended: -1 if unknown."""
    is_broker = context.sees_cluster(Operation.CLUSTER_ACTION)
    return OffsetForLeaderEpochResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    _epoch_end(services, context, topic.topic, part, is_broker=is_broker) for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _epoch_end(
    services: Services, context: RequestContext, topic: str, part: OffsetForLeaderPartition, *, is_broker: bool
) -> EpochEndOffset:
    epoch, end, code = NO_LEADER_EPOCH, NO_OFFSET, ErrorCode.NONE
    try:
        if not is_broker:
            context.check(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        partition = services.partitions.find(topic, part.partition)
        partition.check_leader_epoch(part.current_leader_epoch)
        epoch, end = _end_of(partition, LeaderEpoch(part.leader_epoch))
    except OttlaError as error:
        code = error.code
    return EpochEndOffset(
        error_code=wire_error(code), partition=part.partition, leader_epoch=i32(epoch), end_offset=i64(end)
    )


def _end_of(partition: Partition, wanted: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
    """The largest epoch at most `wanted`, and where it ended."""
    history, end = partition.log.epochs, partition.end_offset
    if history.latest < wanted <= partition.leader_epoch:
        # The present epoch is in no history before its first record. It begins at the end, where the last one ended.
        is_before = wanted < partition.leader_epoch and history.latest != NO_LEADER_EPOCH
        return history.latest if is_before else wanted, end
    return history.end_offset_for(wanted, end)
