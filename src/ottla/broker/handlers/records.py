"""DeleteRecords: moves the start of partitions forward, and waits until the replicas that live have moved theirs."""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.static.primitive import i32, i64

from ottla.broker.context import Context
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.metadata.waiting import wait_first
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, NotLeaderError, OffsetOutOfRangeError, OttlaError, RetriableError
from ottla.model.ids import NO_OFFSET, Offset
from ottla.protocol.messages import milliseconds, wire_error
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_TO_HIGH_WATERMARK: Final = -1
_LOOK_SECONDS: Final = 1.0

_Deleted = dict[tuple[str, int], Partition | OttlaError]
"""What became of each partition so far."""


class _InternalTopicError(DeniedError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class _CompactedError(DeniedError):
    code = ErrorCode.POLICY_VIOLATION


class _NotEverywhereError(RetriableError):
    code = ErrorCode.REQUEST_TIMED_OUT


def delete_records(
    broker: "Broker", context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    """Each partition's new start, or -1 and why it stayed; -1 as an offset stands for the high watermark."""
    deleted: _Deleted = {
        (topic.name, part.partition_index): _delete(broker, topic.name, part)
        for topic in request.topics
        for part in topic.partitions
    }
    if any(
        isinstance(each, Partition) and _low_watermark(broker, each) < each.start_offset for each in deleted.values()
    ):
        return _when_everywhere(broker, request, deleted)
    return _response(broker, request, deleted)


def _delete(broker: "Broker", topic: str, part: DeleteRecordsPartition) -> Partition | OttlaError:
    """The partition that has been cut, or why it was not."""
    try:
        if topic in INTERNAL_TOPICS:
            raise _InternalTopicError(f"{topic} is the broker's own; its records cannot be deleted")
        partition = broker.partitions.find(topic, part.partition_index)
        if not partition.log.config.cleanup_delete:
            raise _CompactedError(f"{topic} is only compacted; add delete to its cleanup.policy first")
        if part.offset < _TO_HIGH_WATERMARK:
            raise OffsetOutOfRangeError(f"{topic}-{part.partition_index}: there is no offset {part.offset}")
        partition.delete_records(Offset(part.offset))
    except OttlaError as error:
        return error
    return partition


async def _when_everywhere(broker: "Broker", request: DeleteRecordsRequest, deleted: _Deleted) -> DeleteRecordsResponse:
    deadline = broker.clock.monotonic() + request.timeout.total_seconds()
    waits = [
        _wait_everywhere(broker, each, deadline) if isinstance(each, Partition) else _as_it_is(each)
        for each in deleted.values()
    ]
    return _response(broker, request, dict(zip(deleted, await asyncio.gather(*waits), strict=True)))


async def _as_it_is(error: OttlaError) -> OttlaError:
    return error


async def _wait_everywhere(broker: "Broker", partition: Partition, deadline: float) -> Partition | OttlaError:
    start = partition.start_offset
    # Followers that wait for records are answered now: with the start.
    for waiter in list(partition.replica_waiters):
        waiter.finish()
    while partition.leader is not None:
        low_watermark = _low_watermark(broker, partition)
        if low_watermark >= start:
            return partition
        seconds = deadline - broker.clock.monotonic()
        if seconds <= 0:
            return _NotEverywhereError(f"{partition}: replicas still begin at {low_watermark}, not at {start}")
        # Now and then also without a fetch: who is waited for may have died.
        await wait_first(partition.wait_follower_fetch(), broker.clock.sleep(min(seconds, _LOOK_SECONDS)))
    return NotLeaderError(f"{partition} is led by another broker now")


def _low_watermark(broker: "Broker", partition: Partition) -> Offset:
    start = partition.start_offset
    return start if partition.leader is None else partition.leader.low_watermark(start, broker.image.brokers)


def _response(broker: "Broker", request: DeleteRecordsRequest, deleted: _Deleted) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    _result(broker, part.partition_index, deleted[topic.name, part.partition_index])
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


def _result(broker: "Broker", index: i32, outcome: Partition | OttlaError) -> DeleteRecordsPartitionResult:
    start, code = NO_OFFSET, ErrorCode.NONE
    if isinstance(outcome, Partition):
        start = _low_watermark(broker, outcome)
    else:
        code = outcome.code
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=i64(start), error_code=wire_error(code))
