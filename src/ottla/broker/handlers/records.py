"""DeleteRecords: moves the start of partitions forward."""

from typing import TYPE_CHECKING, Final

from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.static.primitive import i64

from ottla.broker.context import Context
from ottla.metadata.image import INTERNAL_TOPICS
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, OffsetOutOfRangeError, OttlaError
from ottla.model.ids import NO_OFFSET, Offset
from ottla.protocol.messages import milliseconds, wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_TO_HIGH_WATERMARK: Final = -1


class _InternalTopicError(DeniedError):
    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class _CompactedError(DeniedError):
    code = ErrorCode.POLICY_VIOLATION


def delete_records(broker: "Broker", context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Each partition's new start, or -1 and why it stayed; -1 as an offset stands for the high watermark."""
    topics = []
    for topic in request.topics:
        results = [_delete(broker, topic.name, part) for part in topic.partitions]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=tuple(results)))
    return DeleteRecordsResponse(throttle_time=milliseconds(0), topics=tuple(topics))


def _delete(broker: "Broker", topic: str, part: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    start, code = NO_OFFSET, ErrorCode.NONE
    try:
        if topic in INTERNAL_TOPICS:
            raise _InternalTopicError(f"{topic} is the broker's own; its records cannot be deleted")
        partition = broker.partitions.find(topic, part.partition_index)
        if not partition.log.config.cleanup_delete:
            raise _CompactedError(f"{topic} is only compacted; add delete to its cleanup.policy first")
        if part.offset < _TO_HIGH_WATERMARK:
            raise OffsetOutOfRangeError(f"{topic}-{part.partition_index}: there is no offset {part.offset}")
        start = partition.delete_records(Offset(part.offset))
    except OttlaError as error:
        code = error.code
    return DeleteRecordsPartitionResult(
        partition_index=part.partition_index, low_watermark=i64(start), error_code=wire_error(code)
    )
