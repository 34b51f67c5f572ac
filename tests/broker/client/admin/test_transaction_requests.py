"""Asking about transactions where brokers are old or partitions refuse, and which of the open ones hang."""

from typing import Any

import pytest

from ottla.client.admin.hanging_transactions import OpenTransaction, find_hanging, hanging_of, open_for_longer
from ottla.client.admin.transaction_requests import (
    ActiveProducer,
    TransactionDescription,
    list_transactions,
)
from ottla.client.errors import AnswerError, UnsupportedByBrokerError
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import InvalidRequestError
from ottla.model.ids import TopicPartition
from ottla.protocol.apis import ApiKey
from ottla.protocol.fields import BrokenAnswerError
from ottla.protocol.messages import read_request, wire_error
from ottla.protocol.transaction_frames import (
    DescribedTransaction,
    describe_transaction_body,
    read_described_transaction,
)
from tests.broker.client.scripted_broker import response
from tests.broker.client.scripted_cluster import BROKER, Script, scripted_cluster

FIRST, SECOND = TopicPartition("events", 0), TopicPartition("events", 1)


def producer(producer_id: int, *, start_offset: int | None = 5, last_timestamp_ms: int = 1000) -> ActiveProducer:
    return ActiveProducer(
        producer_id=producer_id,
        producer_epoch=0,
        last_sequence=0,
        last_timestamp_ms=last_timestamp_ms,
        coordinator_epoch=None,
        start_offset=start_offset,
    )


def known(*partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription(
        transactional_id="etl",
        state="Ongoing",
        coordinator=0,
        producer_id=1,
        producer_epoch=0,
        timeout_ms=60_000,
        start_ms=0,
        partitions=partitions,
    )


# Frames


def test_a_transaction_is_asked_for_as_the_protocol_has_it() -> None:
    body = b"".join(describe_transaction_body("etl-7"))
    assert ("etl-7",) == read_request(ApiKey.DESCRIBE_TRANSACTIONS, 0, memoryview(body)).transactional_ids


ANSWER = (
    bytes.fromhex("00000001 00 00000000 02 0000")
    + b"\x04etl\x08Ongoing"
    + bytes.fromhex("0000ea60 ffffffffffffffff 0000000000000009 0003 02")
    + b"\x07events"
    + bytes.fromhex("03 00000000 00000001 00 00 00")
)


def test_an_answer_without_a_start_is_read() -> None:
    expected = DescribedTransaction(0, "etl", "Ongoing", 60_000, -1, 9, 3, (FIRST, SECOND))
    assert expected == read_described_transaction(memoryview(ANSWER))


def test_an_answer_about_nothing_is_none() -> None:
    assert read_described_transaction(memoryview(bytes.fromhex("00000001 00 00000000 01 00"))) is None


@pytest.mark.parametrize("size", range(4, len(ANSWER) - 2))
def test_an_answer_that_ends_early_is_broken(size: int) -> None:
    with pytest.raises(BrokenAnswerError):
        read_described_transaction(memoryview(ANSWER[:size]))


# Lists


def transactions(*, unknown: tuple[str, ...] = (), error: ErrorCode = ErrorCode.NONE) -> Any:
    state = {"transactional_id": "etl", "producer_id": 1, "transaction_state": "Ongoing"}
    return response(
        ApiKey.LIST_TRANSACTIONS,
        2,
        error_code=wire_error(error),
        unknown_state_filters=unknown,
        transaction_states=[state],
    )


async def test_filters_that_a_broker_is_too_old_for_are_refused_rather_than_left_out() -> None:
    script = Script({ApiKey.LIST_TRANSACTIONS: lambda: transactions()})

    async def list_filtered(version_max: int, **filters: Any) -> None:
        script.versions_max = {ApiKey.LIST_TRANSACTIONS: version_max}
        async with scripted_cluster(script) as cluster:
            (found,) = await list_transactions(cluster, **filters)
            assert ("etl", BROKER) == (found.transactional_id, found.coordinator)

    await list_filtered(0)
    await list_filtered(1, duration_ms=5)
    await list_filtered(2, pattern="e.*")
    with pytest.raises(UnsupportedByBrokerError, match="cannot filter transactions by duration"):
        await list_filtered(0, duration_ms=5)
    with pytest.raises(UnsupportedByBrokerError, match="cannot filter transactions by pattern"):
        await list_filtered(1, pattern="e.*")


async def test_a_state_that_the_broker_does_not_know_is_named() -> None:
    answer = transactions(unknown=("PrepareEpochFence",))
    async with scripted_cluster(Script({ApiKey.LIST_TRANSACTIONS: lambda: answer})) as cluster:
        with pytest.raises(InvalidRequestError, match=f"broker {BROKER}: unknown state PrepareEpochFence"):
            await list_transactions(cluster, states=["PrepareEpochFence"])


async def test_a_coordinator_that_loads_is_asked_again() -> None:
    answers = [transactions(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), transactions()]
    script = Script({ApiKey.LIST_TRANSACTIONS: lambda: answers.pop(0)})
    async with scripted_cluster(script) as cluster:
        assert ["etl"] == [each.transactional_id for each in await list_transactions(cluster)]


# What hangs


def test_only_what_is_open_and_silent_for_longer_than_the_timeout_is_looked_at() -> None:
    producers = {
        FIRST: [producer(1), producer(2, start_offset=None), producer(3, last_timestamp_ms=1001)],
        SECOND: [producer(4, start_offset=0)],
    }
    found = open_for_longer(producers, now_ms=1100, timeout_ms=99)
    assert [(FIRST, 1), (SECOND, 4)] == [(each.partition, each.producer.producer_id) for each in found]


def test_what_a_coordinator_knows_in_that_partition_does_not_hang() -> None:
    first, second, stranger = (
        OpenTransaction(partition=FIRST, producer=producer(1)),
        OpenTransaction(partition=SECOND, producer=producer(1)),
        OpenTransaction(partition=FIRST, producer=producer(2)),
    )
    hanging = hanging_of([first, second, stranger], {1: known(FIRST)})
    assert [(SECOND, "etl"), (FIRST, None)] == [(each.partition, each.transactional_id) for each in hanging]


async def test_one_that_was_ended_while_we_looked_does_not_hang() -> None:
    """Its marker is written between the question to the leader and that to the coordinator, which then forgets it."""

    def producers(start_offset: int) -> Any:
        state = {"producer_id": 1, "coordinator_epoch": -1, "current_txn_start_offset": start_offset}
        partition = {"partition_index": 0, "active_producers": [state]}
        return response(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "events", "partitions": [partition]}])

    nothing = response(ApiKey.LIST_TRANSACTIONS, 2)

    async def hanging(second_start: int) -> list[OpenTransaction]:
        answers = [producers(7), producers(second_start)]
        script = Script(
            {
                ApiKey.DESCRIBE_PRODUCERS: lambda: answers.pop(0),
                ApiKey.LIST_TRANSACTIONS: lambda: nothing,
            }
        )
        async with scripted_cluster(script) as cluster:
            return await find_hanging(cluster, [FIRST], timeout_ms=0, broker=BROKER)

    assert [] == await hanging(-1)
    assert [FIRST] == [each.partition for each in await hanging(7)]
    assert [] == await hanging(9), "a new one has begun since"


async def test_a_partition_that_is_not_there_is_no_reason_to_try_again() -> None:
    partition = {"partition_index": 0, "error_code": wire_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    answer = response(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": "events", "partitions": [partition]}])
    script = Script({ApiKey.DESCRIBE_PRODUCERS: lambda: answer})
    with pytest.raises(AnswerError, match="producers of events-0: the topic or partition does not exist"):
        async with scripted_cluster(script) as cluster:
            await find_hanging(cluster, [FIRST], timeout_ms=0, broker=BROKER)
    assert 1 == script.asked.count(ApiKey.DESCRIBE_PRODUCERS)
