"""DescribeTransactions, ListTransactions and WriteTxnMarkers: what tools ask of transactions, and end by force.

The transactional ids are those that this broker coordinates; a tool asks every broker. Markers may come from another
broker's coordinator, or from an operator who aborts a hanging transaction.
"""

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Final, cast

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse, TopicData
from kio.schema.describe_transactions.v0.response import TransactionState as DescribedState
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.list_transactions.v2.response import TransactionState as ListedState
from kio.schema.types import ProducerId as WireProducerId
from kio.schema.types import TopicName, TransactionalId
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kio.static.primitive import TZAware, i16, i32, i64

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.transactions.requests import (
    EPOCH_BUMP_VERSION,
    ListedTransaction,
    ListFilter,
    TransactionDescription,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.protocol.messages import milliseconds, wire_error
from ottla.records.layout import Marker
from ottla.replication.partition import TransactionEnd
from ottla.security.resources import Operation, ResourceType

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STATES_MAX: Final = 100
"""In a filter of ListTransactions, more than there are: each of the coordinator's partitions reads them again."""


# DescribeTransactions


def describe_transactions(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Each transactional id in detail, or why not."""
    return DescribeTransactionsResponse(
        throttle_time=milliseconds(0),
        transaction_states=tuple(
            _described(context, _describe(services, context, name)) for name in request.transactional_ids
        ),
    )


def _describe(services: Services, context: RequestContext, transactional_id: str) -> TransactionDescription:
    if not transactional_id:
        return TransactionDescription(transactional_id="", error=ErrorCode.INVALID_REQUEST)
    try:
        context.check(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        shard = services.transactions.shard_of(transactional_id)
        shard.check_active()
    except OttlaError as error:
        return TransactionDescription(transactional_id=transactional_id, error=error.code)
    return shard.machine.describe_transaction(transactional_id)


def _described(context: RequestContext, found: TransactionDescription) -> DescribedState:
    # Of what is not known everything is 0, as in Kafka; of a transaction that was never begun the start is -1.
    is_known = found.error is ErrorCode.NONE
    start = _EPOCH + timedelta(milliseconds=found.start_ms if is_known else 0)
    return DescribedState(
        error_code=wire_error(found.error),
        transactional_id=TransactionalId(found.transactional_id),
        transaction_state=found.state,
        transaction_timeout=milliseconds(found.timeout_ms),
        transaction_start_time=cast("TZAware", start),
        producer_id=WireProducerId(i64(found.producer_id if is_known else 0)),
        producer_epoch=i16(found.producer_epoch if is_known else 0),
        topics=tuple(
            TopicData(topic=TopicName(topic), partitions=tuple(i32(each.partition) for each in partitions))
            for topic, partitions in groupby(sorted(found.partitions), key=lambda each: each.topic)
            if context.sees(Operation.DESCRIBE, ResourceType.TOPIC, topic)
        ),
    )


# ListTransactions


def list_transactions(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Every transactional id here that passes the filter; an error while some of them are still being loaded."""
    wanted = ListFilter(
        states=request.state_filters,
        producer_ids=tuple(ProducerId(each) for each in request.producer_id_filters),
        duration_ms=request.duration_filter,
        id_pattern=request.transactional_id_pattern or "",
    )
    now_ms = services.clock.now_ms()
    found: list[ListedTransaction] = []
    unknown: dict[str, None] = {}
    error = ErrorCode.NONE
    try:
        if len(wanted.states) > _STATES_MAX:
            raise InvalidRequestError(f"more than {_STATES_MAX} states in a filter")
        for shard in services.transactions.shards():
            shard.check_active()
            listed = shard.machine.list_transactions(wanted, now_ms)
            found += listed.transactions
            unknown |= dict.fromkeys(listed.unknown_states)
            if listed.error is not ErrorCode.NONE:
                error = listed.error
                break
    except OttlaError as failure:
        error = failure.code
    found = [
        each for each in found if context.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
    ]
    return ListTransactionsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        unknown_state_filters=tuple(unknown),
        transaction_states=tuple(
            ListedState(
                transactional_id=TransactionalId(each.transactional_id),
                producer_id=WireProducerId(i64(each.producer_id)),
                transaction_state=each.state,
            )
            for each in (found if error is ErrorCode.NONE else ())
        ),
    )


# WriteTxnMarkers


async def write_txn_markers(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Ends transactions in partitions that this broker leads, and answers when that is committed."""
    may_write = context.sees_cluster(Operation.ALTER) or context.allows_cluster(Operation.CLUSTER_ACTION)
    return WriteTxnMarkersResponse(
        markers=tuple([await _write(services, marker, may_write=may_write) for marker in request.markers])
    )


async def _write(services: Services, marker: WritableTxnMarker, *, may_write: bool) -> WritableTxnMarkerResult:
    end = TransactionEnd(
        marker=Marker.COMMIT if marker.transaction_result else Marker.ABORT,
        producer_id=ProducerId(marker.producer_id),
        producer_epoch=ProducerEpoch(marker.producer_epoch),
        coordinator_epoch=marker.coordinator_epoch,
        must_exceed_epoch=marker.transaction_version >= EPOCH_BUMP_VERSION,
    )
    names = dict.fromkeys(
        TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes
    )
    if not may_write:
        outcomes = dict.fromkeys(names, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif marker.producer_id < 0 or marker.producer_epoch < 0:
        outcomes = dict.fromkeys(names, ErrorCode.INVALID_REQUEST)
    else:
        outcomes = await services.markers.write_and_wait(end, tuple(names))
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=wire_error(outcomes[TopicPartition(topic.name, index)])
                    )
                    for index in topic.partition_indexes
                ),
            )
            for topic in marker.topics
        ),
    )
