"""The requests of transactional and idempotent producers to their coordinators, one function for each.

A function sends its request once and raises `AnswerError` with the broker's code; the caller decides what to do about
it. The two versions of transactions use different versions of these requests, with the same content.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.client.errors import answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator
from ottla.client.producer.batching.producer_batch import Identity
from ottla.client.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import LAST_BY_NAME, ApiKey
from ottla.protocol.messages import milliseconds

FEATURE: Final = "transaction.version"
_VERSION_MAX: Final = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
}
"""The highest request versions in transactions of version 1; higher ones are for version 2 or between brokers."""
PRODUCE_VERSION_MAX: Final = {1: 11, 2: 12}
"""The highest Produce version by version of transactions: from 12 on brokers add partitions themselves."""


async def _ask(
    cluster: Cluster, kind: CoordinatorType, key: str, api_key: ApiKey, message: Any, version: int = 1
) -> Any:
    connection = await cluster.broker_connection(await find_coordinator(cluster, kind, key))
    version_max = _VERSION_MAX.get(api_key) if version == 1 else LAST_BY_NAME.get(api_key)
    return await connection.request(api_key, message, version_max=version_max, timeout_ms=cluster.request_timeout_ms)


async def transaction_version(cluster: Cluster, transactional_id: str) -> int:
    """The version of transactions that the cluster uses, 1 or 2."""
    from kio.schema.api_versions.v4.request import ApiVersionsRequest

    asked = ApiVersionsRequest(client_software_name="ottla", client_software_version="0")
    connection = await cluster.broker_connection(
        await find_coordinator(cluster, CoordinatorType.TRANSACTION, transactional_id)
    )
    answer = await connection.request(ApiKey.API_VERSIONS, asked, timeout_ms=cluster.request_timeout_ms)
    levels = {each.name: int(each.max_version_level) for each in answer.finalized_features}
    speaks = connection.versions.get(ApiKey.PRODUCE)
    return 2 if levels.get(FEATURE, 0) >= 2 and speaks is not None and speaks.highest >= 12 else 1


async def init_producer_id(
    cluster: Cluster, transactional_id: str | None, timeout_ms: int, identity: Identity | None = None
) -> Identity:
    """A new producer id and epoch. For a transactional id, the epoch is bumped and the previous producer fenced.

    With the current `identity`, the broker refuses if another producer has taken over the transactional id.
    """
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.types import ProducerId, TransactionalId
    from kio.static.primitive import i16

    had = identity or Identity(-1, -1)
    message = InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout=milliseconds(timeout_ms),
        producer_id=ProducerId(had.producer_id),
        producer_epoch=i16(had.epoch),
    )
    if transactional_id is None:
        answer = await cluster.to_any(ApiKey.INIT_PRODUCER_ID, message)
    else:
        answer = await _ask(
            cluster, CoordinatorType.TRANSACTION, transactional_id, ApiKey.INIT_PRODUCER_ID, message, version=2
        )
    if answer.error_code:
        whose = "" if transactional_id is None else f" of transactional id {transactional_id!r}"
        raise answer_error(int(answer.error_code), f"getting a producer id{whose}")
    return Identity(int(answer.producer_id), int(answer.producer_epoch))


async def add_partitions(
    cluster: Cluster, transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Adds partitions to the transaction; returns the error code of each."""
    from kio.schema.add_partitions_to_txn.v5.request import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )
    from kio.schema.types import ProducerId, TopicName, TransactionalId
    from kio.static.primitive import i16, i32

    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
        topics=tuple(
            AddPartitionsToTxnTopic(name=TopicName(topic), partitions=tuple(map(i32, indexes)))
            for topic, indexes in _by_topic(partitions).items()
        ),
    )
    message = AddPartitionsToTxnRequest(transactions=(transaction,))
    answer = await _ask(cluster, CoordinatorType.TRANSACTION, transactional_id, ApiKey.ADD_PARTITIONS_TO_TXN, message)
    return {
        TopicPartition(topic.name, int(part.partition_index)): int(part.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for part in topic.results_by_partition
    }


async def add_offsets(cluster: Cluster, transactional_id: str, identity: Identity, group_id: str) -> None:
    """Adds the offsets of a group to the transaction; only in version 1."""
    from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
    from kio.schema.types import GroupId, ProducerId, TransactionalId
    from kio.static.primitive import i16

    message = AddOffsetsToTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
        group_id=GroupId(group_id),
    )
    answer = await _ask(cluster, CoordinatorType.TRANSACTION, transactional_id, ApiKey.ADD_OFFSETS_TO_TXN, message)
    if answer.error_code:
        raise answer_error(int(answer.error_code), f"adding the offsets of group {group_id!r} to the transaction")


async def commit_offsets(
    cluster: Cluster,
    transactional_id: str,
    identity: Identity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
    version: int,
) -> None:
    """Sends offsets to the group's coordinator, which commits them with the transaction."""
    from kio.schema.txn_offset_commit.v5.request import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )
    from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
    from kio.static.primitive import i16, i32, i64

    topics = tuple(
        TxnOffsetCommitRequestTopic(
            name=TopicName(topic),
            partitions=tuple(
                TxnOffsetCommitRequestPartition(
                    partition_index=i32(index),
                    committed_offset=i64(offsets[TopicPartition(topic, index)].offset),
                    committed_leader_epoch=i32(offsets[TopicPartition(topic, index)].leader_epoch),
                    committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                )
                for index in indexes
            ),
        )
        for topic, indexes in _by_topic(offsets).items()
    )
    message = TxnOffsetCommitRequest(
        transactional_id=TransactionalId(transactional_id),
        group_id=GroupId(group.group_id),
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
        generation_id=i32(group.generation_id),
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=topics,
    )
    answer = await _ask(
        cluster, CoordinatorType.GROUP, group.group_id, ApiKey.TXN_OFFSET_COMMIT, message, version=version
    )
    for topic in answer.topics:
        for part in topic.partitions:
            if part.error_code:
                what = f"committing an offset of {topic.name}-{part.partition_index} for group {group.group_id!r}"
                raise answer_error(int(part.error_code), what)


async def end_transaction(
    cluster: Cluster, transactional_id: str, identity: Identity, *, committed: bool, version: int
) -> Identity:
    """Commits or aborts a transaction; returns the identity for the next one, which is new in version 2."""
    from kio.schema.end_txn.v5.request import EndTxnRequest
    from kio.schema.types import ProducerId, TransactionalId
    from kio.static.primitive import i16

    message = EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(identity.producer_id),
        producer_epoch=i16(identity.epoch),
        committed=committed,
    )
    answer = await _ask(
        cluster, CoordinatorType.TRANSACTION, transactional_id, ApiKey.END_TXN, message, version=version
    )
    if answer.error_code:
        done = "committing" if committed else "aborting"
        raise answer_error(int(answer.error_code), f"{done} the transaction of {transactional_id!r}")
    if version >= 2 and answer.producer_id >= 0:
        return Identity(int(answer.producer_id), int(answer.producer_epoch))
    return identity


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        grouped.setdefault(topic, []).append(index)
    return grouped
