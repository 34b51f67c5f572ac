"""Admin requests about transactions and producers: list, describe, abort.

Each function retries retriable errors and raises `AnswerError`. `hanging_transactions.py` finds hanging transactions.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ottla.client.errors import AnswerError, UnsupportedByBrokerError, answer_error
from ottla.client.network.cluster import Cluster
from ottla.client.network.coordinators import CoordinatorType, find_coordinator
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.transaction_frames import VERSION, describe_transaction_body, read_described_transaction

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
UNDER_WAY: Final = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States of a transaction that is open or being ended."""
_DURATION_FROM: Final = 1
_PATTERN_FROM: Final = 2

_WORDS: Final = {
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        "the transactional id does not exist; `ottla transactions list` shows all ids"
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: (
        "the producer has a newer epoch there; `ottla transactions describe-producers` shows it"
    ),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "a newer coordinator has written there; `ottla transactions describe-producers` shows its epoch"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker does not accept the pattern as a regular expression",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("the broker's ACLs do not allow this on the transactional id"),
}


class NoOpenTransactionError(InvalidRequestError):
    """There is no open transaction to abort at that offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """One transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """One transactional id; `start_ms` is the start of its last transaction, None if there was none."""

    transactional_id: str
    state: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_under_way(self) -> bool:
        """Whether a transaction is open or being ended."""
        return self.state in UNDER_WAY and self.start_ms is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that is active in a partition; `start_offset` is the start of its open transaction, if any."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    start_offset: int | None


async def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """The transactional ids of all brokers that pass every filter, sorted; -1 as `duration_ms` passes all."""
    from kio.schema.list_transactions.v2.request import ListTransactionsRequest
    from kio.schema.types import ProducerId
    from kio.static.primitive import i64

    message = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(map(ProducerId, producer_ids)),
        duration_filter=i64(duration_ms),
        transactional_id_pattern=pattern,
    )
    needed = _PATTERN_FROM if pattern is not None else _DURATION_FROM if duration_ms >= 0 else 0
    found: dict[str, TransactionListing] = {}

    async def ask(broker: int) -> None:
        connection = await cluster.broker_connection(broker)
        if connection.version_for(ApiKey.LIST_TRANSACTIONS) < needed:
            raise UnsupportedByBrokerError(
                f"{connection.address} cannot filter transactions by {'pattern' if pattern else 'duration'}; "
                "use a newer broker, or list them all"
            )
        response = await connection.request(ApiKey.LIST_TRANSACTIONS, message, timeout_ms=cluster.request_timeout_ms)
        if response.error_code:
            raise _error(int(response.error_code), f"transactions of broker {broker}")
        if response.unknown_state_filters:
            unknown = ", ".join(response.unknown_state_filters)
            raise InvalidRequestError(f"broker {broker}: unknown state {unknown}; states are {', '.join(STATES)}")
        for each in response.transaction_states:
            found[each.transactional_id] = TransactionListing(
                transactional_id=each.transactional_id,
                producer_id=int(each.producer_id),
                state=each.transaction_state,
                coordinator=broker,
            )

    for broker in sorted((await cluster.retry(lambda: cluster.refresh([]))).brokers):
        await cluster.retry(partial(ask, broker))
    return [found[name] for name in sorted(found)]


async def describe_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Describes a transactional id. Raises `AnswerError` with TRANSACTIONAL_ID_NOT_FOUND if it does not exist."""

    async def ask() -> TransactionDescription:
        coordinator = await find_coordinator(cluster, CoordinatorType.TRANSACTION, transactional_id)
        connection = await cluster.broker_connection(coordinator)
        version = connection.version_for(ApiKey.DESCRIBE_TRANSACTIONS, VERSION)
        body = describe_transaction_body(transactional_id)
        found = read_described_transaction(await connection.request_bytes(ApiKey.DESCRIBE_TRANSACTIONS, version, body))
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if found is None else found.error_code
        if found is None or code:
            raise _error(code, f"transactional id {transactional_id}")
        return TransactionDescription(
            transactional_id=transactional_id,
            state=found.state,
            coordinator=coordinator,
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.timeout_ms,
            start_ms=found.start_ms if found.start_ms >= 0 else None,
            partitions=tuple(sorted(found.partitions)),
        )

    return await cluster.retry(ask)


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, broker: int | None = None
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """The active producers of partitions, as known by the leader or by the replica on this broker."""
    asked = list(partitions)

    async def ask() -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in asked:
            by_broker[await cluster.leader_of(partition) if broker is None else broker].append(partition)
        found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
        for at, some in by_broker.items():
            response = await cluster.to_broker(at, ApiKey.DESCRIBE_PRODUCERS, producers_request(some))
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, int(each.partition_index))
                    if each.error_code:
                        raise _error(int(each.error_code), f"producers of {partition}", each.error_message)
                    found[partition] = tuple(map(_active_producer, each.active_producers))
        return dict(sorted(found.items()))

    return await cluster.retry(ask, give_up=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))


def producers_request(partitions: Iterable[TopicPartition]) -> Any:
    """A DescribeProducers request for these partitions."""
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
    from kio.schema.types import TopicName
    from kio.static.primitive import i32

    by_topic: dict[str, list[i32]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(i32(partition.partition))
    return DescribeProducersRequest(
        topics=tuple(
            TopicRequest(name=TopicName(topic), partition_indexes=tuple(some)) for topic, some in by_topic.items()
        )
    )


def _active_producer(state: Any) -> ActiveProducer:
    return ActiveProducer(
        producer_id=int(state.producer_id),
        producer_epoch=int(state.producer_epoch),
        last_sequence=int(state.last_sequence),
        last_timestamp_ms=int(state.last_timestamp),
        coordinator_epoch=int(state.coordinator_epoch) if state.coordinator_epoch >= 0 else None,
        start_offset=int(state.current_txn_start_offset) if state.current_txn_start_offset >= 0 else None,
    )


async def open_transaction_at(cluster: Cluster, partition: TopicPartition, start_offset: int) -> ActiveProducer:
    """The producer whose open transaction starts at that offset. Raises `NoOpenTransactionError`."""
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]] = await describe_producers(cluster, [partition])
    open_ones = [each for each in producers.get(partition, ()) if each.start_offset is not None]
    for each in open_ones:
        if each.start_offset == start_offset:
            return each
    starts = ", ".join(str(each.start_offset) for each in open_ones)
    there = f"open transactions start at {starts}" if open_ones else "the partition has no open transaction"
    raise NoOpenTransactionError(f"no open transaction of {partition} starts at offset {start_offset}; {there}")


async def abort_transaction(
    cluster: Cluster, partition: TopicPartition, *, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Writes an abort marker into one partition, without the transaction coordinator."""
    from kio.schema.types import ProducerId, TopicName
    from kio.schema.write_txn_markers.v2.request import (
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )
    from kio.static.primitive import i16, i32

    where = WritableTxnMarkerTopic(name=TopicName(partition.topic), partition_indexes=(i32(partition.partition),))
    marker = WritableTxnMarker(
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(producer_epoch),
        transaction_result=False,
        topics=(where,),
        coordinator_epoch=i32(coordinator_epoch),
    )

    async def ask() -> None:
        response = await cluster.to_leader(
            partition, ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=(marker,))
        )
        code = int(response.markers[0].topics[0].partitions[0].error_code)
        if code:
            raise _error(code, f"aborting the transaction of producer {producer_id} in {partition}")

    await cluster.retry(ask, give_up=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))


def _error(code: int, what: str, message: str | None = None) -> AnswerError:
    """The exception for an error code, with advice if there is some."""
    return answer_error(code, what, next((words for known, words in _WORDS.items() if known == code), message))
