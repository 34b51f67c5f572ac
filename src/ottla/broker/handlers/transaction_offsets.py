"""TxnOffsetCommit: a group's offsets as part of a transaction, in force when its marker comes.

The partition of `__consumer_offsets` must belong to the transaction as any other to which the producer writes: an old
client has added it by AddOffsetsToTxn, for a newer one it joins now. Offsets outside of transactions are in
`group_offsets.py`, the group's rules in `coordination/`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from ottla.broker.context import Context
from ottla.coordination.groups.requests import NewOffset, OffsetCommitResponse, TransactionalCommitRequest
from ottla.metadata.image import ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import ProducerEpoch, ProducerId
from ottla.protocol.messages import milliseconds, wire_error

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOADING_SINCE: Final = 2
_ABORTABLE_SINCE: Final = 4
_JOINS_SINCE: Final = 5

_Place = tuple[str, int]


async def txn_offset_commit(
    broker: "Broker", context: Context, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """An outcome for each partition. Those that the cluster does not have are refused, the others go on."""
    offsets = _known_offsets(broker.image, request)
    outcomes: dict[_Place, ErrorCode] = {}
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
        )
        committed = await _commit(broker, plain, context.version)
        if isinstance(committed, OffsetCommitResponse):
            outcomes = {(each.topic, each.partition): each.error for each in committed.partitions}
        else:
            outcomes = {(each.topic, each.partition): committed for each in offsets}
    return _response(request, {place: _as_known(error, context.version) for place, error in outcomes.items()})


async def _commit(
    broker: "Broker", plain: TransactionalCommitRequest, version: int
) -> OffsetCommitResponse | ErrorCode:
    """What became of each offset, or why of none."""
    try:
        shard = broker.groups.shard_of(plain.group_id)
        shard.check_active()
        error = await broker.verification.check(
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


def _response(request: TxnOffsetCommitRequest, outcomes: Mapping[_Place, ErrorCode]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time=milliseconds(0),
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=part.partition_index,
                        error_code=wire_error(
                            outcomes.get((topic.name, part.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                        ),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
