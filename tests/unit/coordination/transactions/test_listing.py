"""Lists and descriptions of transactional ids, with every filter."""

from dataclasses import replace

import pytest

from ottla.coordination.transactions.listing import describe_transaction, list_transactions
from ottla.coordination.transactions.records import TransactionEntry, TransactionStatus
from ottla.coordination.transactions.requests import (
    ListedTransaction,
    ListFilter,
    TransactionDescription,
    TransactionList,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import ProducerEpoch, ProducerId, TimestampMs, TopicPartition

NOW = 10_000
IDLE = TransactionEntry(
    producer_id=ProducerId(1),
    producer_epoch=ProducerEpoch(3),
    timeout_ms=60_000,
    status=TransactionStatus.EMPTY,
    last_update_ms=TimestampMs(0),
)
OPEN = replace(
    IDLE,
    producer_id=ProducerId(2),
    status=TransactionStatus.ONGOING,
    start_ms=TimestampMs(9_000),
    partitions=(TopicPartition("orders", 4),),
)
DECIDED = replace(OPEN, producer_id=ProducerId(3), status=TransactionStatus.PREPARE_ABORT, start_ms=TimestampMs(4_000))
ENTRIES = {"bills-idle": IDLE, "orders-open": OPEN, "orders-decided": DECIDED}


def listed(wanted: ListFilter) -> list[str]:
    return [line.transactional_id for line in list_transactions(ENTRIES, wanted, NOW).transactions]


def test_a_line_of_the_list() -> None:
    line = ListedTransaction(transactional_id="orders-open", producer_id=ProducerId(2), state="Ongoing")
    assert TransactionList(transactions=(line,)) == list_transactions({"orders-open": OPEN}, ListFilter(), NOW)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (ListFilter(), ["bills-idle", "orders-open", "orders-decided"]),
        (ListFilter(states=("Ongoing",)), ["orders-open"]),
        (ListFilter(states=("PrepareAbort", "Empty")), ["bills-idle", "orders-decided"]),
        (ListFilter(states=("CompleteCommit",)), []),
        (ListFilter(states=("ongoing",)), []),
        (ListFilter(producer_ids=frozenset({ProducerId(3), ProducerId(9)})), ["orders-decided"]),
        (ListFilter(duration_ms=0), ["bills-idle", "orders-open", "orders-decided"]),
        (ListFilter(duration_ms=1_000), ["bills-idle", "orders-decided"]),
        (ListFilter(duration_ms=999, states=("Ongoing",)), ["orders-open"]),
    ],
)
def test_filters(wanted: ListFilter, expected: list[str]) -> None:
    assert expected == listed(wanted)


def test_unknown_states_are_reported() -> None:
    found = list_transactions(ENTRIES, ListFilter(states=("Sleeping", "Ongoing", "Sleeping")), NOW)
    assert ("Sleeping",) == found.unknown_states
    assert 1 == len(found.transactions)


def test_every_state_has_the_name_that_kafka_gives_it() -> None:
    assert [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
        "PrepareEpochFence",
    ] == [status.wire_name for status in TransactionStatus]  # fmt: skip


def test_a_description() -> None:
    expected = TransactionDescription(
        transactional_id="orders-open",
        state="Ongoing",
        timeout_ms=60_000,
        start_ms=TimestampMs(9_000),
        producer_id=ProducerId(2),
        producer_epoch=ProducerEpoch(3),
        partitions=(TopicPartition("orders", 4),),
    )
    assert expected == describe_transaction("orders-open", OPEN, None)
    assert replace(expected, partitions=()) == describe_transaction("orders-open", OPEN, ())


@pytest.mark.parametrize(
    ("name", "error"), [("x", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)]
)
def test_no_such_id(name: str, error: ErrorCode) -> None:
    assert TransactionDescription(transactional_id=name, error=error) == describe_transaction(name, None, None)
