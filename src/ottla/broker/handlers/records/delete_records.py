"""DeleteRecords: moves the start of partitions forward, and waits until the replicas that live have moved theirs."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.static.primitive import i32, i64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.companions_state import mark_of
from ottla.env.wait_first import wait_first
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, NotLeaderError, OffsetOutOfRangeError, OttlaError, RetriableError
from ottla.model.ids import NO_OFFSET, Offset
from ottla.model.queue_names import PARKING_KINDS
from ottla.protocol.messages import milliseconds, wire_error
from ottla.replication.partition import Partition
from ottla.security.resources import Operation, ResourceType

_TO_HIGH_WATERMARK: Final = -1
_LOOK_SECONDS: Final = 1.0

_Deleted = dict[tuple[str, int], Partition | OttlaError]
"""What became of each partition so far."""


class _InternalTopicError(DeniedError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class _CompactedError(DeniedError):
    code = ErrorCode.POLICY_VIOLATION


class _ParkedError(DeniedError):
    code = ErrorCode.POLICY_VIOLATION


class _NotEverywhereError(RetriableError):
    code = ErrorCode.REQUEST_TIMED_OUT


def delete_records(
    services: Services, context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """Each partition's new start, or -1 and why it stayed; -1 as an offset stands for the high watermark."""
    deleted: _Deleted = {
        (topic.name, part.partition_index): _delete(services, context, topic.name, part)
        for topic in request.topics
        for part in topic.partitions
    }
    if any(
        isinstance(each, Partition) and _low_watermark(services, each) < each.start_offset for each in deleted.values()
    ):
        return _when_everywhere(services, request, deleted)
    return _response(services, request, deleted)


def _delete(
    services: Services, context: RequestContext, topic: str, part: DeleteRecordsPartition
) -> Partition | OttlaError:
    """The partition whose records were deleted, or the error."""
    try:
        context.check(Operation.DELETE, ResourceType.TOPIC, topic)
        if topic in INTERNAL_TOPICS:
            raise _InternalTopicError(f"{topic} is an internal topic; its records cannot be deleted")
        partition = services.partitions.find(topic, part.partition_index)
        found = services.image.topics.get(topic)
        mark = mark_of(found) if found is not None else None
        if mark is not None and mark.kind in PARKING_KINDS:
            raise _ParkedError(f"{topic} holds records that the broker has yet to deliver to topic {mark.topic}")
        if not partition.log.config.cleanup_delete:
            raise _CompactedError(f"{topic} is only compacted; add delete to its cleanup.policy first")
        if part.offset < _TO_HIGH_WATERMARK:
            raise OffsetOutOfRangeError(f"{topic}-{part.partition_index}: offset {part.offset} does not exist")
        partition.delete_records(Offset(part.offset))
    except OttlaError as error:
        return error
    return partition


async def _when_everywhere(
    services: Services, request: DeleteRecordsRequest, deleted: _Deleted
) -> DeleteRecordsResponse:
    deadline = services.clock.monotonic() + request.timeout.total_seconds()
    waits = [
        _wait_everywhere(services, each, deadline) if isinstance(each, Partition) else _as_it_is(each)
        for each in deleted.values()
    ]
    return _response(services, request, dict(zip(deleted, await asyncio.gather(*waits), strict=True)))


async def _as_it_is(error: OttlaError) -> OttlaError:
    return error


async def _wait_everywhere(services: Services, partition: Partition, deadline: float) -> Partition | OttlaError:
    start = partition.start_offset
    # Followers that wait for records are answered now: with the start.
    for waiter in list(partition.replica_waiters):
        waiter.finish()
    while partition.leader is not None:
        low_watermark = _low_watermark(services, partition)
        if low_watermark >= start:
            return partition
        seconds = deadline - services.clock.monotonic()
        if seconds <= 0:
            return _NotEverywhereError(
                f"{partition}: some replicas still start at offset {low_watermark}, not at {start}"
            )
        # Also without a fetch now and then: the follower may have died.
        await wait_first(partition.wait_follower_fetch(), services.clock.sleep(min(seconds, _LOOK_SECONDS)))
    return NotLeaderError(f"{partition} is led by another broker now")


def _low_watermark(services: Services, partition: Partition) -> Offset:
    start = partition.start_offset
    return start if partition.leader is None else partition.leader.low_watermark(start, services.image.brokers)


def _response(services: Services, request: DeleteRecordsRequest, deleted: _Deleted) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    _result(services, part.partition_index, deleted[topic.name, part.partition_index])
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _result(services: Services, index: i32, outcome: Partition | OttlaError) -> DeleteRecordsPartitionResult:
    start, code = NO_OFFSET, ErrorCode.NONE
    if isinstance(outcome, Partition):
        start = _low_watermark(services, outcome)
    else:
        code = outcome.code
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=i64(start), error_code=wire_error(code))
