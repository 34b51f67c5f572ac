"""Requests about transactions that one broker sends to another: AddPartitionsToTxn and WriteTxnMarkers.

Translates to and from kio's messages, which are imported with the first request. How a broker is reached is the
caller's business.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from ottla.coordination.transactions.requests import EPOCH_BUMP_VERSION, AddPartitions, AddPartitionsResponse
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.records.layout import Marker
from ottla.replication.partition import TransactionEnd
from ottla.security.authorizer import BrokerDeniedError

_LOGGER: Final = logging.getLogger(__name__)

AskPeer = Callable[[BrokerId, ApiKey, Any], Awaitable[Any]]
"""Sends a request to another broker and returns its response; raises an OttlaError if it cannot."""


async def add_partitions_at(ask: AskPeer, coordinator: BrokerId, request: AddPartitions) -> AddPartitionsResponse:
    """AddPartitionsToTxn at the broker that coordinates the transactional id; a failure is every partition's error."""
    from kio.schema.add_partitions_to_txn.v5.request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from kio.schema.types import ProducerId, TopicName, TransactionalId
    from kio.static.primitive import i16, i32

    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TransactionalId(request.transactional_id),
        producer_id=ProducerId(request.producer_id),
        producer_epoch=i16(request.producer_epoch),
        verify_only=request.verify_only,
        topics=tuple(
            AddPartitionsToTxnTopic(name=TopicName(topic), partitions=tuple(i32(index) for index in indexes))
            for topic, indexes in _by_topic(request.partitions).items()
        ),
    )
    message = AddPartitionsToTxnRequest(transactions=(transaction,))
    try:
        answer = await ask(coordinator, ApiKey.ADD_PARTITIONS_TO_TXN, message)
    except OttlaError as error:
        # The coordinator cannot be reached, so it has decided nothing; it or its successor can be asked again.
        is_unreachable = error.code is ErrorCode.UNKNOWN_SERVER_ERROR
        return all_failed(request, ErrorCode.COORDINATOR_NOT_AVAILABLE if is_unreachable else error.code)
    if int(answer.error_code) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # It is not the client that is denied.
        _LOGGER.error("cannot verify a transaction of %r: %s", request.transactional_id, BrokerDeniedError(coordinator))
        return all_failed(request, ErrorCode.INVALID_TXN_STATE)
    if answer.error_code:
        return all_failed(request, ErrorCode(int(answer.error_code)))
    errors = {
        TopicPartition(topic.name, int(part.partition_index)): ErrorCode(int(part.partition_error_code))
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for part in topic.results_by_partition
    }
    return AddPartitionsResponse(
        errors=tuple((name, errors.get(name, ErrorCode.UNKNOWN_SERVER_ERROR)) for name in request.partitions)
    )


def all_failed(request: AddPartitions, code: ErrorCode) -> AddPartitionsResponse:
    """The response that gives every partition the same error."""
    return AddPartitionsResponse(errors=tuple((name, code) for name in request.partitions))


async def write_markers_at(
    ask: AskPeer, leader: BrokerId, end: TransactionEnd, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """WriteTxnMarkers at the broker that leads the partitions. Raises an OttlaError if it cannot be reached, or if it
    does not authorize this broker."""
    from kio.schema.types import ProducerId, TopicName
    from kio.schema.write_txn_markers.v2.request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from kio.static.primitive import i8, i16, i32

    marker = WritableTxnMarker(
        producer_id=ProducerId(end.producer_id),
        producer_epoch=i16(end.producer_epoch),
        transaction_result=end.marker is Marker.COMMIT,
        topics=tuple(
            WritableTxnMarkerTopic(name=TopicName(topic), partition_indexes=tuple(i32(index) for index in indexes))
            for topic, indexes in _by_topic(partitions).items()
        ),
        coordinator_epoch=i32(end.coordinator_epoch),
        transaction_version=i8(EPOCH_BUMP_VERSION if end.must_exceed_epoch else 0),
    )
    answer = await ask(leader, ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=(marker,)))
    outcomes = {
        TopicPartition(topic.name, int(part.partition_index)): ErrorCode(int(part.error_code))
        for written in answer.markers
        for topic in written.topics
        for part in topic.partitions
    }
    if ErrorCode.CLUSTER_AUTHORIZATION_FAILED in outcomes.values():
        raise BrokerDeniedError(leader)
    return outcomes


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    return topics
