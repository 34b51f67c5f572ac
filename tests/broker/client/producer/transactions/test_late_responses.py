"""Responses of the transaction coordinator that come late: they belong to the transaction that asked."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ottla.broker.broker import Broker
from ottla.broker.configs.configuration import BrokerConfig
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.errors import TransactionFailedError
from ottla.metadata import features
from ottla.protocol.apis import ApiKey
from tests.broker.client.holding_relay import HoldingRelay, holding_relay
from tests.broker.client.producer.transactions.test_refused_transactions import DeniesOneTopic
from tests.broker.running_broker import make_topic
from tests.waiting import until


@pytest.fixture(autouse=True)
def transactions_v1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers add partitions to their transactions themselves."""
    supported = {**features.SUPPORTED_FEATURES, "transaction.version": features.FeatureRange(0, 1)}
    monkeypatch.setattr(features, "SUPPORTED_FEATURES", supported)


@asynccontextmanager
async def transacting(folder: Path) -> AsyncIterator[tuple[HoldingRelay, AsyncProducer]]:
    """A producer that has committed a transaction, and reaches its broker by a relay only."""
    config = {"log.dirs": str(folder / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    async with (
        Broker(BrokerConfig.parse(settings=config), authorizer=DeniesOneTopic()) as broker,
        holding_relay(broker.port) as relay,
    ):
        await make_topic(broker, "good", 2)
        await make_topic(broker, "forbidden")
        async with AsyncProducer(
            bootstrap_servers=f"127.0.0.1:{relay.port}", transactional_id="x", linger_ms=0, retry_backoff_ms=1
        ) as producer:
            await producer.init_transactions()
            await commit_one(producer, b"first")
            yield relay, producer


async def commit_one(producer: AsyncProducer, value: bytes) -> None:
    """A transaction that writes to the topic `good` only."""
    producer.begin_transaction()
    delivery = await producer.send("good", value, partition=0)
    await producer.commit_transaction()
    await delivery


async def test_a_refused_partition_is_not_asked_for_again(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (relay, producer):
        producer.begin_transaction()
        with pytest.raises(TransactionFailedError, match="TOPIC_AUTHORIZATION_FAILED"):
            await producer.send_and_wait("forbidden", b"refused")
        asked = relay.asked.count(ApiKey.ADD_PARTITIONS_TO_TXN)
        # Ten turns of the sender, each long after the backoff.
        for _ in range(10):
            await asyncio.sleep(0.01)
            producer._core.sender.wake()
        assert asked == relay.asked.count(ApiKey.ADD_PARTITIONS_TO_TXN)
        await producer.abort_transaction()
        await commit_one(producer, b"next")


async def test_a_late_refusal_does_not_fail_the_next_transaction(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (relay, producer):
        producer.begin_transaction()
        relay.held = ApiKey.ADD_PARTITIONS_TO_TXN
        await producer.send("forbidden", b"refused")
        await until(lambda: relay.is_holding)
        asyncio.get_running_loop().call_later(0.1, relay.release)
        await producer.abort_transaction()
        assert not relay.is_holding, "the transaction ended while its partitions were being added"
        await commit_one(producer, b"next")
        await commit_one(producer, b"after it")


async def test_an_abort_ends_partitions_that_were_added_late(tmp_path: Path) -> None:
    async with transacting(tmp_path) as (relay, producer):
        producer.begin_transaction()
        relay.held = ApiKey.ADD_PARTITIONS_TO_TXN
        await producer.send("good", b"aborted", partition=1)
        await until(lambda: relay.is_holding)
        ends = relay.asked.count(ApiKey.END_TXN)
        asyncio.get_running_loop().call_later(0.1, relay.release)
        await producer.abort_transaction()
        assert ends + 1 == relay.asked.count(ApiKey.END_TXN), "the coordinator has the partition in a transaction"
        await commit_one(producer, b"next")
