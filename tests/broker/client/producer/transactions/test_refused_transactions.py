"""A broker refuses a record of a producer: what happens to the records behind it, and to the transactions."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.consumer.async_consumer import AsyncConsumer
from ottla.client.errors import AnswerError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.errors import ProducerFencedError, TransactionAbortedError, TransactionFailedError
from ottla.metadata import features
from ottla.model.error_codes import ErrorCode
from ottla.model.queue_names import DELAY_MS
from ottla.security.connection_context import ConnectionContext
from ottla.security.resources import Operation, ResourceType
from tests.broker.running_broker import make_topic
from tests.waiting import PATIENCE_SECONDS, until

Refusal = Literal["queue gate", "record size", "authorizer"]
CODES = {
    "queue gate": ErrorCode.INVALID_RECORD,
    "record size": ErrorCode.MESSAGE_TOO_LARGE,
    "authorizer": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
TOPICS = {"queue gate": "t.delayed", "record size": "t", "authorizer": "forbidden"}


class DeniesOneTopic:
    """An authorizer that allows everything except writing to the topic `forbidden`."""

    allows_all = False
    version = 0

    def allows(self, _: ConnectionContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        return (operation, resource_type, name) != (Operation.WRITE, ResourceType.TOPIC, "forbidden")

    def allows_any(self, *_: object) -> bool:
        return True


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Broker]:
    config = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    async with Broker(BrokerConfig.parse(settings=config), authorizer=DeniesOneTopic()) as broker:
        await make_topic(broker, "t", 2, ottla_delay_enable="true", max_message_bytes="10000")
        await make_topic(broker, "forbidden", 2)
        yield broker


@asynccontextmanager
async def served_topics(folder: Path) -> AsyncIterator[Broker]:
    async with serving(folder) as broker, asyncio.timeout(2 * PATIENCE_SECONDS):
        yield broker


def producer_of(broker: Broker, **options: Any) -> AsyncProducer:
    """A producer whose records each are a batch."""
    return AsyncProducer(bootstrap_servers=f"127.0.0.1:{broker.port}", batch_size=0, linger_ms=0, **options)


def send_refused(producer: AsyncProducer, refusal: Refusal) -> Coroutine[None, None, Awaitable[object]]:
    """Sends a record that the broker refuses."""
    headers = [(DELAY_MS, b"soon")] if refusal == "queue gate" else []
    value = bytes(20_000) if refusal == "record size" else b"refused"
    return producer.send(TOPICS[refusal], value, partition=0, headers=headers)


async def send_together(*sends: Coroutine[None, None, Awaitable[object]]) -> list[Awaitable[object]]:
    """Appends all records within one turn of the loop, so before the broker answers. The topics must be known."""
    return await asyncio.gather(*sends)


async def outcome(delivery: Awaitable[object]) -> Exception | None:
    try:
        await delivery
    except Exception as error:
        return error
    return None


async def read(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    async with AsyncConsumer(
        topic,
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        found = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
        return found


@pytest.fixture(params=[1, 2], ids=["transactions v1", "transactions v2"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of transactions that a new cluster begins with."""
    supported = {**features.SUPPORTED_FEATURES, "transaction.version": features.FeatureRange(0, request.param)}
    monkeypatch.setattr(features, "SUPPORTED_FEATURES", supported)
    return int(request.param)


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("refusal", get_args(Refusal))
async def test_records_behind_a_refused_one_fail_at_once_and_the_next_transaction_works(
    tmp_path: Path, version: int, refusal: Refusal, in_flight: int
) -> None:
    async with served_topics(tmp_path) as broker:
        async with producer_of(
            broker, transactional_id="x", max_in_flight_requests_per_connection=in_flight
        ) as producer:
            await producer.init_transactions()
            assert producer._core.transactions().state.version == version
            # The partition knows the producer, so several batches are in flight from now on.
            producer.begin_transaction()
            await producer.send("t", b"before", partition=0)
            await producer.commit_transaction()

            producer.begin_transaction()
            topic = TOPICS[refusal]
            await producer.partitions_for(topic)
            await producer.send("t", b"good", partition=1)
            refused, *behind = await send_together(
                send_refused(producer, refusal),
                *(producer.send(topic, b"behind %d" % number, partition=0) for number in range(50)),
            )
            await producer.flush(PATIENCE_SECONDS)

            error = await outcome(refused)
            assert isinstance(error, AnswerError if version == 2 or refusal != "authorizer" else TransactionFailedError)
            assert CODES[refusal].name in str(error)
            errors = [await outcome(each) for each in behind]
            assert all(errors)
            not_sent = [each for each in errors if isinstance(each, TransactionAbortedError)]
            assert not_sent or version == 1
            for each in not_sent:
                assert "not sent because the transaction of 'x' failed: " in str(each)
                assert str(error) in str(each)
            with pytest.raises(TransactionFailedError, match=CODES[refusal].name):
                await producer.send("t", b"too late", partition=0)
            with pytest.raises(TransactionFailedError, match=CODES[refusal].name):
                await producer.commit_transaction()
            await producer.abort_transaction()

            producer.begin_transaction()
            for number in range(5):
                await producer.send("t.delayed" if topic == "t.delayed" else "t", b"next %d" % number, partition=0)
            await producer.commit_transaction()
        assert [b"before", *(b"next %d" % number for number in range(5))] == await read(broker, "t", 6)


@pytest.mark.parametrize("refusal", ["queue gate", "record size"])
async def test_a_commit_fails_at_once(tmp_path: Path, version: int, refusal: Refusal) -> None:
    assert version
    async with served_topics(tmp_path) as broker:
        async with producer_of(broker, transactional_id="x") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.partitions_for(TOPICS[refusal])
            await send_together(
                send_refused(producer, refusal),
                *(producer.send(TOPICS[refusal], b"behind %d" % number, partition=0) for number in range(20)),
            )
            async with asyncio.timeout(PATIENCE_SECONDS):
                with pytest.raises(TransactionFailedError, match=CODES[refusal].name):
                    await producer.commit_transaction()
            await producer.abort_transaction()
            producer.begin_transaction()
            await producer.send("t", b"next", partition=0)
            await producer.commit_transaction()
        assert [b"next"] == await read(broker, "t", 1)


async def test_an_abort_while_a_record_is_retried(tmp_path: Path, version: int) -> None:
    assert version
    async with served_topics(tmp_path) as broker:
        async with producer_of(broker, transactional_id="x") as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send("t", b"before", partition=0)
            await producer.commit_transaction()
            producer.begin_transaction()
            state = broker.partitions.of_topic("t")[0]._state
            state.is_short = True  # Refuses with NOT_ENOUGH_REPLICAS.
            retried = await producer.send("t", b"retried", partition=0)
            await until(lambda: producer._core.accumulator.retried > 0)
            state.is_short = False
            await producer.abort_transaction()
            assert isinstance(await outcome(retried), TransactionAbortedError)
            producer.begin_transaction()
            await producer.send("t", b"next", partition=0)
            await producer.commit_transaction()
        assert [b"before", b"next"] == await read(broker, "t", 2)


async def test_records_of_a_fenced_producer_fail_at_once(tmp_path: Path) -> None:
    async with served_topics(tmp_path) as broker:
        async with producer_of(broker, transactional_id="x", max_in_flight_requests_per_connection=1) as producer:
            await producer.init_transactions()
            producer.begin_transaction()
            await producer.send_and_wait("t", b"fenced", partition=0)
            async with producer_of(broker, transactional_id="x") as other:
                await other.init_transactions()
                sent = await send_together(*(producer.send("t", b"fenced", partition=0) for _ in range(50)))
                await producer.flush(PATIENCE_SECONDS)
                errors = [await outcome(each) for each in sent]
                assert isinstance(errors[0], ProducerFencedError)
                assert all(isinstance(each, ProducerFencedError | TransactionAbortedError) for each in errors)
                other.begin_transaction()
                await other.send("t", b"good", partition=0)
                await other.commit_transaction()
        assert [b"good"] == await read(broker, "t", 1)


@pytest.mark.parametrize("in_flight", [1, 5])
@pytest.mark.parametrize("refusal", get_args(Refusal))
async def test_without_a_transaction_the_records_behind_a_refused_one_are_sent(
    tmp_path: Path, refusal: Refusal, in_flight: int
) -> None:
    async with served_topics(tmp_path) as broker:
        topic = "t" if refusal == "record size" else "t.delayed"
        async with producer_of(broker, max_in_flight_requests_per_connection=in_flight) as producer:
            await producer.send_and_wait(topic, b"before", partition=0)
            await producer.partitions_for(TOPICS[refusal])
            good = [producer.send(topic, b"%d" % number, partition=0) for number in range(30)]
            bad = [send_refused(producer, refusal) for _ in range(3)]
            all_sent = await send_together(*good[:5], bad[0], *good[5:15], bad[1], bad[2], *good[15:])
            refused = [all_sent[place] for place in (5, 16, 17)]
            sent = [each for each in all_sent if each not in refused]
            await producer.flush(PATIENCE_SECONDS)
            for each in refused:
                error = await outcome(each)
                assert isinstance(error, AnswerError)
                assert error.error_code is CODES[refusal]
            assert [None] * 30 == [await outcome(each) for each in sent]
        assert [b"before", *(b"%d" % number for number in range(30))] == await read(broker, "t", 31)
