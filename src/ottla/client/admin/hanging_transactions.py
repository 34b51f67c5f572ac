"""Finds hanging transactions: open in a partition for too long, and unknown to every coordinator.

A hanging transaction blocks all read_committed consumers of its partition until it is aborted with
`transaction_requests.abort_transaction`. `hanging_of` decides, and is pure; `find_hanging` sends the requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.admin.transaction_requests import (
    ActiveProducer,
    TransactionDescription,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition

PARTITIONS_PER_REQUEST: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """An open transaction in a partition."""

    partition: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None = None
    """The transactional id of the producer; None if no coordinator knows it."""


def open_for_longer(
    producers: Mapping[TopicPartition, Iterable[ActiveProducer]], *, now_ms: int, timeout_ms: int
) -> list[OpenTransaction]:
    """The open transactions that were not written to for longer than a transaction may take."""
    return [
        OpenTransaction(partition=partition, producer=each)
        for partition, some in producers.items()
        for each in some
        if each.start_offset is not None and now_ms - each.last_timestamp_ms > timeout_ms
    ]


def hanging_of(
    candidates: Iterable[OpenTransaction], known: Mapping[int, TransactionDescription]
) -> list[OpenTransaction]:
    """The candidates whose coordinator does not list that partition; `known` is by producer id."""
    hanging: list[OpenTransaction] = []
    for each in candidates:
        description = known.get(each.producer.producer_id)
        if description is None:
            hanging.append(each)
        elif each.partition not in description.partitions:
            hanging.append(
                OpenTransaction(
                    partition=each.partition,
                    producer=each.producer,
                    transactional_id=description.transactional_id,
                )
            )
    return hanging


async def find_hanging(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    *,
    timeout_ms: int,
    broker: int | None = None,
    on_progress: Callable[[int], None] = lambda searched: None,
) -> list[OpenTransaction]:
    """The hanging transactions in these partitions, as known by the leaders or by this broker."""
    candidates: list[OpenTransaction] = []
    for at in range(0, len(partitions), PARTITIONS_PER_REQUEST):
        some = partitions[at : at + PARTITIONS_PER_REQUEST]
        producers = await describe_producers(cluster, some, broker=broker)
        candidates += open_for_longer(producers, now_ms=cluster.clock.now_ms(), timeout_ms=timeout_ms)
        on_progress(at + len(some))
    if not candidates:
        return []
    known: dict[int, TransactionDescription] = {}
    for listing in await list_transactions(cluster, producer_ids={each.producer.producer_id for each in candidates}):
        try:
            known[listing.producer_id] = await describe_transaction(cluster, listing.transactional_id)
        except AnswerError as error:
            if error.error_code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    hanging = hanging_of(candidates, known)
    # Its marker may have been written meanwhile; then its coordinator no longer lists the partition either.
    now_open = await describe_producers(cluster, {each.partition for each in hanging}, broker=broker)
    return [each for each in hanging if _is_open(each, now_open[each.partition])]


def _is_open(transaction: OpenTransaction, producers: Iterable[ActiveProducer]) -> bool:
    seen = transaction.producer
    return any((each.producer_id, each.start_offset) == (seen.producer_id, seen.start_offset) for each in producers)
