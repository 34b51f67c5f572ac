"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: what a producer tells the coordinator of its transactional id.

InitProducerId, by which it gets there, is in `producers.py`, the offsets themselves in `transaction_offsets.py`, what
only tools and other brokers ask in `transaction_admin.py`. The decisions are in
`coordination/transactions/transaction_state.py`; here is who may ask for which partitions, and how old clients are
answered.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

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

from ottla.broker.context import Context
from ottla.broker.group_coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.handlers.producers import as_known
from ottla.broker.transaction_verification import ask_coordinator
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

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_FENCED_SINCE: Final = 2
_BROKERS_SINCE: Final = 4
"""From this version of AddPartitionsToTxn on, brokers ask for their clients."""
_EPOCH_BUMP_SINCE: Final = 5
"""From this version of EndTxn on, the client expects another epoch."""


# AddPartitionsToTxn


async def add_partitions_to_txn(
    broker: "Broker", context: Context, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """For each transaction all of its partitions join, or none does. A broker may also only ask whether they have."""
    results = []
    for transaction in request.transactions:
        errors = await _add(broker, context.version, transaction)
        results.append(_result(transaction, errors))
    return AddPartitionsToTxnResponse(
        throttle_time=milliseconds(0), error_code=wire_error(ErrorCode.NONE), results_by_transaction=tuple(results)
    )


async def _add(
    broker: "Broker", version: int, transaction: AddPartitionsToTxnTransaction
) -> Mapping[TopicPartition, ErrorCode]:
    partitions = tuple(
        dict.fromkeys(TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions)
    )
    refused = {
        name: error
        for name in partitions
        if (error := _refusal(broker.image, name, is_client=version < _BROKERS_SINCE)) is not ErrorCode.NONE
    }
    if refused:
        return {name: refused.get(name, ErrorCode.OPERATION_NOT_ATTEMPTED) for name in partitions}
    is_client = version < _BROKERS_SINCE
    plain = AddPartitions(
        transactional_id=transaction.transactional_id,
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=ProducerEpoch(transaction.producer_epoch),
        partitions=partitions,
        verify_only=transaction.verify_only,
        client_version=0 if is_client else EPOCH_BUMP_VERSION,
    )
    answer = await ask_coordinator(broker, plain, elsewhere=False)
    return {name: as_known(error, version, _FENCED_SINCE) for name, error in answer.errors}


def _refusal(image: ClusterImage, name: TopicPartition, *, is_client: bool) -> ErrorCode:
    if is_client and name.topic in INTERNAL_TOPICS:
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
    broker: "Broker", context: Context, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """The partition of `__consumer_offsets` that has the group joins the transaction."""
    try:
        # Makes the topic, should nobody have needed it yet: a partition that does not exist would get no marker.
        await broker.groups.find(request.group_id)
        name = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
        plain = AddPartitions(
            transactional_id=request.transactional_id,
            producer_id=ProducerId(request.producer_id),
            producer_epoch=ProducerEpoch(request.producer_epoch),
            partitions=(name,),
        )
        error = dict((await ask_coordinator(broker, plain, elsewhere=False)).errors)[name]
    except OttlaError as failure:
        error = failure.code
    return AddOffsetsToTxnResponse(
        throttle_time=milliseconds(0), error_code=wire_error(as_known(error, context.version, _FENCED_SINCE))
    )


# EndTxn


async def end_txn(broker: "Broker", context: Context, request: EndTxnRequest) -> EndTxnResponse:
    """Answers when the outcome is decided for good; the markers may come a little later."""
    plain = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
        commit=request.committed,
        client_version=EPOCH_BUMP_VERSION if context.version >= _EPOCH_BUMP_SINCE else 0,
    )
    try:
        shard = broker.transactions.shard_of(request.transactional_id)
        ended: ProducerIdResponse = await shard.ask(lambda now, token: shard.machine.end_transaction(plain, now, token))
    except OttlaError as error:
        ended = ProducerIdResponse(error=error.code)
    return EndTxnResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(as_known(ended.error, context.version, _FENCED_SINCE)),
        producer_id=WireProducerId(i64(ended.producer_id)),
        producer_epoch=i16(ended.producer_epoch),
    )
