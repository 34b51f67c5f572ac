"""DescribeTransactions, ListTransactions and WriteTxnMarkers: what tools ask of transactions, and end by force.

The transactional ids are those that this broker coordinates; a tool asks every broker. Markers may come from another
broker's coordinator, or from an operator who aborts a hanging transaction.
"""

from dataclasses import replace
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

from ottla.broker.handlers.long_requests import matching_texts, with_pauses
from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.transactions.requests import (
    EPOCH_BUMP_VERSION,
    ListedTransaction,
    ListFilter,
    TransactionDescription,
    TransactionList,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError, OttlaError
from ottla.model.ids import ProducerEpoch, ProducerId, TopicPartition
from ottla.model.re2_patterns import Pattern
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


async def list_transactions(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Every transactional id here that passes the filter; an error while some of them are still being loaded."""
    listed = TransactionList()
    error = ErrorCode.NONE
    try:
        if len(request.state_filters) > _STATES_MAX:
            raise InvalidRequestError(f"more than {_STATES_MAX} states in a filter")
        text = request.transactional_id_pattern
        pattern = Pattern(text) if text else None
        listed = await _visible(context, _listed(services, request), pattern)
    except OttlaError as failure:
        error = failure.code
    return ListTransactionsResponse(
        throttle_time=milliseconds(0),
        error_code=wire_error(error),
        unknown_state_filters=listed.unknown_states,
        transaction_states=tuple(
            ListedState(
                transactional_id=TransactionalId(each.transactional_id),
                producer_id=WireProducerId(i64(each.producer_id)),
                transaction_state=each.state,
            )
            for each in listed.transactions
        ),
    )


def _listed(services: Services, request: ListTransactionsRequest) -> TransactionList:
    """The ids of all shards here that pass the filters other than the pattern."""
    filters = ListFilter(
        states=request.state_filters,
        producer_ids=frozenset(map(ProducerId, request.producer_id_filters)),
        duration_ms=request.duration_filter,
    )
    now_ms = services.clock.now_ms()
    transactions: list[ListedTransaction] = []
    unknown: dict[str, None] = {}
    for shard in services.transactions.shards():
        shard.check_active()
        listed = shard.machine.list_transactions(filters, now_ms)
        transactions += listed.transactions
        unknown |= dict.fromkeys(listed.unknown_states)
    return TransactionList(unknown_states=tuple(unknown), transactions=tuple(transactions))


async def _visible(context: RequestContext, listed: TransactionList, pattern: Pattern | None) -> TransactionList:
    """Those ids that the client may describe; only they are matched."""
    found = [
        each
        async for each in with_pauses(listed.transactions)
        if context.sees(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
    ]
    if pattern is not None:
        matching = await matching_texts(pattern, (each.transactional_id for each in found))
        found = [each for each in found if each.transactional_id in matching]
    return replace(listed, transactions=tuple(found))


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
