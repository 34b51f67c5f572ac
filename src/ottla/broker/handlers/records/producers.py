"""InitProducerId and DescribeProducers: new producer ids, and what a partition remembers of its producers.

A producer with a transactional id gets its producer id from that id's coordinator, which ends what an earlier producer
left open. What it does next is in `transactions.py`.
"""

from datetime import timedelta
from typing import Final

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

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.controller.topic_names import fault_of_name
from ottla.coordination.transactions.requests import InitProducerId, ProducerIdResponse
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidTopicNameError, OttlaError, RetriableError, StorageError
from ottla.model.ids import NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType
from ottla.storage.producers.producer_state import ProducerEntry

_FENCED_SINCE: Final = 4


# InitProducerId


async def init_producer_id(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Without a transactional id, a new producer id with epoch 0; also for a producer that names the id it
    had, as Kafka does. With one, what its coordinator says."""
    has_id = int(request.producer_id) != NO_PRODUCER_ID
    has_epoch = int(request.producer_epoch) != NO_PRODUCER_EPOCH
    if has_id != has_epoch or request.transactional_id == "":
        return _identity(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return await _take_over(services, context, request.transactional_id, request)
    if not _may_write_idempotently(context):
        return _identity(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        return _identity(ErrorCode.NONE, await services.producer_ids.next(), 0)
    except RetriableError:
        return _identity(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    except OttlaError as error:
        return _identity(error.code)


def _may_write_idempotently(context: RequestContext) -> bool:
    """A client that may write to some topic may also do so idempotently."""
    if context.sees_cluster(Operation.IDEMPOTENT_WRITE):
        return True
    if context.authorizer.allows_any(context.connection, Operation.WRITE, ResourceType.TOPIC):
        return True
    # Asked once more for the audit log.
    return context.allows_cluster(Operation.IDEMPOTENT_WRITE)


async def _take_over(
    services: Services, context: RequestContext, transactional_id: str, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    plain = InitProducerId(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout // timedelta(milliseconds=1),
        expected_producer_id=ProducerId(request.producer_id),
        expected_producer_epoch=ProducerEpoch(request.producer_epoch),
    )
    try:
        context.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        shard = services.transactions.shard_of(transactional_id)
        given: ProducerIdResponse = await shard.ask(
            lambda now, token: shard.machine.init_producer_id(plain, now, token)
        )
    except OttlaError as error:
        return _identity(error.code)
    return _identity(as_known(given.error, context.version, _FENCED_SINCE), given.producer_id, given.producer_epoch)


def as_known(error: ErrorCode, version: int, fenced_since: int) -> ErrorCode:
    """The error as a client of this version knows it: before `fenced_since` there was another code for one that is
    fenced."""
    if error is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


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
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """The producers of each partition that this broker leads, by id.

    The error message of a replica whose log cannot be used, or has a corrupt batch, says so even if another broker
    leads it, and even if its producers are known: this is how `ottla cluster health` learns about it.
    """
    troubles = {**services.damaged_partitions(), **services.offline_partitions()}
    return DescribeProducersResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _active(services, context, topic.name, index, troubles.get(TopicPartition(topic.name, index)))
                    for index in topic.partition_indexes
                ),
            )
            for topic in request.topics
        ),
    )


def _active(
    services: Services, context: RequestContext, topic: str, index: int, trouble: OttlaError | None
) -> PartitionResponse:
    try:
        if not context.sees(Operation.READ, ResourceType.TOPIC, topic):
            trouble = None
            context.check(Operation.READ, ResourceType.TOPIC, topic)
        if (fault := fault_of_name(topic)) is not None:
            raise InvalidTopicNameError(fault)
        if isinstance(trouble, StorageError):
            raise StorageError(str(trouble))
        log = services.partitions.find(topic, index).log
    except OttlaError as error:
        told = trouble or error
        return PartitionResponse(
            partition_index=i32(index),
            error_code=wire_error(told.code),
            error_message=str(told),
            active_producers=(),
        )
    return PartitionResponse(
        partition_index=i32(index),
        error_code=wire_error(ErrorCode.NONE),
        error_message=None if trouble is None else str(trouble),
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
