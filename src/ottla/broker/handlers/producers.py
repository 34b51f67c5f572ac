"""InitProducerId and DescribeProducers: new producer ids, and what a partition remembers of its producers.

Transactions are not built yet: a transactional id is answered as by a broker whose coordinator cannot be reached.
"""

from typing import TYPE_CHECKING

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId as WireProducerId
from kio.static.primitive import i16, i32, i64

from ottla.broker.context import Context
from ottla.controller.topic_names import fault_of_name
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidTopicNameError, OttlaError, RetriableError
from ottla.model.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.messages import milliseconds, wire_error
from ottla.storage.producer_state import ProducerEntry

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


# InitProducerId


async def init_producer_id(
    broker: "Broker", context: Context, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """A producer id that nobody has, with epoch 0; also for a producer that names the id it had, as Kafka does."""
    has_id = int(request.producer_id) != NO_PRODUCER_ID
    has_epoch = int(request.producer_epoch) != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return _identity(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _identity(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        return _identity(ErrorCode.NONE, await broker.producer_ids.next(), 0)
    except RetriableError:
        return _identity(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except OttlaError as error:
        return _identity(error.code)


def _identity(
    error: ErrorCode, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_PRODUCER_EPOCH
) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        producer_id=WireProducerId(i64(producer_id)),
        producer_epoch=i16(epoch),
    )


# DescribeProducers


def describe_producers(
    broker: "Broker", context: Context, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """The producers of each partition that this broker leads, by id."""
    return DescribeProducersResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_active(broker, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        ),
    )


def _active(broker: "Broker", topic: str, index: int) -> PartitionResponse:
    try:
        if (fault := fault_of_name(topic)) is not None:
            raise InvalidTopicNameError(fault)
        log = broker.partitions.find(topic, index).log
    except OttlaError as error:
        return PartitionResponse(
            partition_index=i32(index),
            error_code=wire_error(error.code),
            error_message=str(error),
            active_producers=(),
        )
    return PartitionResponse(
        partition_index=i32(index),
        error_code=wire_error(ErrorCode.NONE),
        active_producers=tuple(map(_state, sorted(log.producers, key=lambda entry: entry.producer_id))),
    )


def _state(entry: ProducerEntry) -> ProducerState:
    start = NO_OFFSET if entry.transaction_start is None else entry.transaction_start
    return ProducerState(
        producer_id=WireProducerId(i64(entry.producer_id)),
        producer_epoch=i32(entry.epoch),
        last_sequence=i32(entry.last_sequence),
        last_timestamp=i64(entry.last_timestamp),
        coordinator_epoch=i32(entry.coordinator_epoch),
        current_txn_start_offset=i64(start),
    )
