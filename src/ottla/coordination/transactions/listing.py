"""Lists and describes the transactional ids of a shard, for tools that look for hanging transactions.

Pure questions over entries; the filters are those of ListTransactions version 1. The pattern of version 2 is matched by
the handler, against the ids that the client may describe.
"""

from collections.abc import Mapping

from ottla.coordination.transactions.records import STATUS_BY_WIRE_NAME, TransactionEntry
from ottla.coordination.transactions.requests import (
    ListedTransaction,
    ListFilter,
    TransactionDescription,
    TransactionList,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition


def list_transactions(entries: Mapping[str, TransactionEntry], wanted: ListFilter, now_ms: int) -> TransactionList:
    """Every id that passes the whole filter. An id that never had a transaction passes any duration, as in Kafka; an
    unknown state is reported and matches no id."""
    states = {STATUS_BY_WIRE_NAME[name] for name in wanted.states if name in STATUS_BY_WIRE_NAME}
    return TransactionList(
        unknown_states=tuple(dict.fromkeys(name for name in wanted.states if name not in STATUS_BY_WIRE_NAME)),
        transactions=tuple(
            ListedTransaction(
                transactional_id=transactional_id, producer_id=entry.producer_id, state=entry.status.wire_name
            )
            for transactional_id, entry in entries.items()
            if (not wanted.producer_ids or entry.producer_id in wanted.producer_ids)
            and (not wanted.states or entry.status in states)
            and (wanted.duration_ms < 0 or now_ms - entry.start_ms > wanted.duration_ms)
        ),
    )


def describe_transaction(
    transactional_id: str, entry: TransactionEntry | None, waiting: tuple[TopicPartition, ...] | None
) -> TransactionDescription:
    """One id in detail; `waiting` has the partitions that still lack a marker, if markers are in flight."""
    if entry is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return TransactionDescription(transactional_id=transactional_id, error=error)
    return TransactionDescription(
        transactional_id=transactional_id,
        state=entry.status.wire_name,
        timeout_ms=entry.timeout_ms,
        start_ms=entry.start_ms,
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        partitions=entry.partitions if waiting is None else waiting,
    )
