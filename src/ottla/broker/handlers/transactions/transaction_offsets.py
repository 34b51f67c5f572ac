"""TxnOffsetCommit: a group's offsets as part of a transaction, in force when its marker comes.

The partition of `__consumer_offsets` must belong to the transaction as any other to which the producer writes: an old
client has added it by AddOffsetsToTxn, for a newer one it joins now. Offsets outside of transactions are in
`group_offsets.py`, the group's rules in `coordination/`.
"""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kio.schema.types import TopicName

from ottla.broker.requests.context import RequestContext
from ottla.broker.requests.services import Services
from ottla.coordination.groups.requests import NewOffset, OffsetCommitResponse, TransactionalCommitRequest
from ottla.metadata.image import ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import DeniedError, OttlaError
from ottla.model.ids import ProducerEpoch, ProducerId
from ottla.protocol import newer_messages
from ottla.protocol.apis import LAST_BY_NAME, ApiKey
from ottla.protocol.messages import milliseconds, wire_error
from ottla.security.resources import Operation, ResourceType

_LOADING_SINCE: Final = 2
_ABORTABLE_SINCE: Final = 4
_JOINS_SINCE: Final = 5
_GROUP_NOT_FOUND_SINCE: Final = 6

_Place = tuple[str, int]


async def txn_offset_commit(services: Services, context: RequestContext, request: Any) -> Any:
    """An outcome for each partition. Unknown partitions are refused; the others are committed.

    Versions with topic ids are served as if the ids were names; unknown ids are refused.
    """
    is_by_name = context.version <= LAST_BY_NAME[ApiKey.TXN_OFFSET_COMMIT]
    try:
        context.check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        context.check(Operation.READ, ResourceType.GROUP, request.group_id)
    except DeniedError as denied:
        return _response(request, {}, denied.code) if is_by_name else _response_by_id(request, {}, denied.code)
    if is_by_name:
        return await _by_name(services, context, request)
    known = services.image.topics_by_id
    named = [topic for topic in request.topics if topic.topic_id in known]
    by_name = TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=tuple(
            TxnOffsetCommitRequestTopic(name=TopicName(known[topic.topic_id].name), partitions=topic.partitions)
            for topic in named
        ),
    )
    answered = await _by_name(services, context, by_name)
    outcomes = dict(zip((topic.topic_id for topic in named), answered.topics, strict=True))
    return _response_by_id(request, outcomes)


def _response_by_id(
    request: newer_messages.TxnOffsetCommitRequest,
    outcomes: Mapping[UUID | None, TxnOffsetCommitResponseTopic],
    otherwise: ErrorCode = ErrorCode.UNKNOWN_TOPIC_ID,
) -> newer_messages.TxnOffsetCommitResponse:
    unknown = wire_error(otherwise)
    return newer_messages.TxnOffsetCommitResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            newer_messages.TxnOffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                partitions=outcomes[topic.topic_id].partitions
                if topic.topic_id in outcomes
                else tuple(
                    TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=unknown)
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


async def _by_name(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    allowed = {topic.name for topic in request.topics if context.allows(Operation.READ, ResourceType.TOPIC, topic.name)}
    offsets = tuple(each for each in _known_offsets(services.image, request) if each.topic in allowed)
    outcomes: dict[_Place, ErrorCode] = {
        (topic.name, part.partition_index): ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for topic in request.topics
        if topic.name not in allowed
        for part in topic.partitions
    }
    if offsets:
        plain = TransactionalCommitRequest(
            group_id=request.group_id,
            transactional_id=request.transactional_id,
            producer_id=ProducerId(request.producer_id),
            producer_epoch=ProducerEpoch(request.producer_epoch),
            generation=request.generation_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            offsets=offsets,
            knows_group_not_found=context.version >= _GROUP_NOT_FOUND_SINCE,
        )
        committed = await _commit(services, plain, context.version)
        if isinstance(committed, OffsetCommitResponse):
            outcomes |= {(each.topic, each.partition): each.error for each in committed.partitions}
        else:
            outcomes |= {(each.topic, each.partition): committed for each in offsets}
    return _response(request, {place: _as_known(error, context.version) for place, error in outcomes.items()})


async def _commit(
    services: Services, plain: TransactionalCommitRequest, version: int
) -> OffsetCommitResponse | ErrorCode:
    """What became of each offset, or why of none."""
    try:
        shard = services.groups.shard_of(plain.group_id)
        shard.check_active()
        error = await services.verification.check(
            shard.partition,
            plain.transactional_id,
            plain.producer_id,
            plain.producer_epoch,
            joins=version >= _JOINS_SINCE,
        )
        if error is not ErrorCode.NONE:
            return error
        # From here to the append nothing may wait: the transaction could end meanwhile.
        committed: OffsetCommitResponse = await shard.ask(
            lambda now, token: shard.machine.commit_in_transaction(plain, now, token)
        )
        return committed
    except OttlaError as failure:
        return failure.code


def _known_offsets(image: ClusterImage, request: TxnOffsetCommitRequest) -> tuple[NewOffset, ...]:
    offsets = []
    for wanted in request.topics:
        topic = image.topics.get(wanted.name)
        count = 0 if topic is None else len(topic.partitions)
        offsets += [
            NewOffset(
                topic=wanted.name,
                partition=part.partition_index,
                offset=part.committed_offset,
                leader_epoch=part.committed_leader_epoch,
                metadata=part.committed_metadata,
                topic_id=None if topic is None else topic.id,
            )
            for part in wanted.partitions
            if 0 <= part.partition_index < count
        ]
    return tuple(offsets)


def _as_known(error: ErrorCode, version: int) -> ErrorCode:
    """The error as a client of this version knows it."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _response(
    request: TxnOffsetCommitRequest,
    outcomes: Mapping[_Place, ErrorCode],
    otherwise: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> TxnOffsetCommitResponse:
    """A partition without an outcome gets the code of `otherwise`."""
    return TxnOffsetCommitResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=wire_error(outcomes.get((topic.name, part.partition_index), otherwise)),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
