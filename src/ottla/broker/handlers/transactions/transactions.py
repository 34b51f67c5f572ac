"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: what a producer tells the coordinator of its transactional id.

InitProducerId, by which it gets there, is in `producers.py`, the offsets themselves in `transaction_offsets.py`, what
only tools and other brokers ask in `transaction_admin.py`. The decisions are in
`coordination/transactions/transaction_state.py`; here are the permissions, and the error codes of old
versions.
"""

from collections.abc import Mapping
from typing import Final

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v5.request import AddPartitionsToTxnRequest, AddPartitionsToTxnTransaction
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.types import ProducerId as WireProducerId
from kio.static.primitive import i16, i64

from ottla.broker.handlers.records.producers import as_known
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.coordination.transactions.requests import (
    EPOCH_BUMP_VERSION,
    AddPartitions,
    EndTransaction,
    ProducerIdResponse,
)
from ottla.metadata.image import INTERNAL_TOPICS, ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType

_FENCED_SINCE: Final = 2
_BROKERS_SINCE: Final = 4
"""From this version of AddPartitionsToTxn on, brokers ask for their clients."""
_EPOCH_BUMP_SINCE: Final = 5
"""From this version of EndTxn on, the client expects another epoch."""


# AddPartitionsToTxn


async def add_partitions_to_txn(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """For each transaction all of its partitions join, or none does. A broker may also only ask whether they have."""
    if context.version >= _BROKERS_SINCE and not context.allows_cluster(Operation.CLUSTER_ACTION):
        denied = wire_error(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AddPartitionsToTxnResponse(throttle_time=milliseconds(0), error_code=denied, results_by_transaction=())
    results = []
    for transaction in request.transactions:
        errors = await _add(services, context, transaction)
        results.append(_result(transaction, errors))
    return AddPartitionsToTxnResponse(
        throttle_time=milliseconds(0), error_code=wire_error(ErrorCode.NONE), results_by_transaction=tuple(results)
    )


async def _add(
    services: Services, context: RequestContext, transaction: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    is_client = context.version < _BROKERS_SINCE
    partitions = tuple(
        dict.fromkeys(TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions)
    )
    transactional_id = transaction.transactional_id
    if is_client and not context.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return dict.fromkeys(partitions, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    refused = {
        name: error
        for name in partitions
        if (error := _refusal(services.image, context, name, is_client=is_client)) is not ErrorCode.NONE
    }
    if refused:
        return {name: refused.get(name, ErrorCode.OPERATION_NOT_ATTEMPTED) for name in partitions}
    plain = AddPartitions(
        transactional_id=transaction.transactional_id,
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=ProducerEpoch(transaction.producer_epoch),
        partitions=partitions,
        verify_only=transaction.verify_only,
        client_version=0 if is_client else EPOCH_BUMP_VERSION,
    )
    answer = await services.transactions.add_partitions_here(plain)
    return {name: as_known(error, context.version, _FENCED_SINCE) for name, error in answer.errors}


def _refusal(image: ClusterImage, context: RequestContext, name: TopicPartition, *, is_client: bool) -> ErrorCode:
    if is_client:
        is_internal = name.topic in INTERNAL_TOPICS
        if is_internal or not context.allows(Operation.WRITE, ResourceType.TOPIC, name.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = image.topics.get(name.topic)
    is_known = topic is not None and 0 <= name.partition < len(topic.partitions)
    return ErrorCode.NONE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _result(
    transaction: AddPartitionsToTxnTransaction, errors: Mapping[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=wire_error(errors[TopicPartition(topic.name, index)]),
                    )
                    for index in topic.partitions
                ),
            )
            for topic in transaction.topics
        ),
    )


# AddOffsetsToTxn


async def add_offsets_to_txn(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """The partition of `__consumer_offsets` that has the group joins the transaction."""
    try:
        context.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.check(Operation.READ, ResourceType.GROUP, request.group_id)
        # Creates the topic if it does not exist yet: a partition that does not exist would get no marker.
        await services.groups.find(request.group_id)
        name = TopicPartition(OFFSETS_TOPIC, services.groups.partition_of(request.group_id))
        plain = AddPartitions(
            transactional_id=request.transactional_id,
            producer_id=ProducerId(request.producer_id),
            producer_epoch=ProducerEpoch(request.producer_epoch),
            partitions=(name,),
        )
        error = dict((await services.transactions.add_partitions_here(plain)).errors)[name]
    except OttlaError as failure:
        error = failure.code
    return AddOffsetsToTxnResponse(
        throttle_time=milliseconds(0), error_code=wire_error(as_known(error, context.version, _FENCED_SINCE))
    )


# EndTxn


async def end_txn(services: Services, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Answers when the outcome is decided for good; the markers may come a little later."""
    plain = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
        commit=request.committed,
        client_version=EPOCH_BUMP_VERSION if context.version >= _EPOCH_BUMP_SINCE else 0,
    )
    try:
        context.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        shard = services.transactions.shard_of(request.transactional_id)
        ended: ProducerIdResponse = await shard.ask(lambda now, token: shard.machine.end_transaction(plain, now, token))
    except OttlaError as error:
        ended = ProducerIdResponse(error=error.code)
    return EndTxnResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(as_known(ended.error, context.version, _FENCED_SINCE)),
        producer_id=WireProducerId(i64(ended.producer_id)),
        producer_epoch=i16(ended.producer_epoch),
    )
