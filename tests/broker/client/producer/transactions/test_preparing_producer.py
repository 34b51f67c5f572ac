"""Transactions that one fills and another ends, and what the log tells about them afterwards."""

import asyncio

import pytest

from ottla.client.admin.options import AdminConfig
from ottla.client.admin.transaction_inspection import inspect_transaction
from ottla.client.admin.transaction_outcome import TransactionOutcome
from ottla.client.network.cluster import Cluster
from ottla.client.producer.transactions.preparing_producer import PreparedTransaction, PreparingProducer
from ottla.client.producer.transactions.transaction_requests import end_transaction, transaction_version
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.testing import InProcessBroker
from tests.waiting import wait_until


async def end(cluster: Cluster, prepared: PreparedTransaction, *, committed: bool) -> None:
    version = await transaction_version(cluster, prepared.transactional_id)
    await end_transaction(cluster, prepared.transactional_id, prepared.identity, committed=committed, version=version)


def outcome(bootstrap: str, topic: str, first_offset: int, producer_id: int) -> TransactionOutcome:
    async def ask() -> TransactionOutcome:
        async with AdminConfig(bootstrap_servers=bootstrap).cluster() as cluster:
            return await inspect_transaction(cluster, TopicPartition(topic, 0), first_offset, producer_id)

    return asyncio.run(ask())


def finish(bootstrap: str, prepared: PreparedTransaction, *, committed: bool) -> None:
    async def work() -> None:
        async with AdminConfig(bootstrap_servers=bootstrap).cluster() as cluster:
            await end(cluster, prepared, committed=committed)

    asyncio.run(work())


def wait_ended(producer: PreparingProducer) -> None:
    wait_until(lambda: not producer.describe().is_under_way, "the transaction has ended")


def test_what_was_prepared_is_ended_by_somebody_else(broker: InProcessBroker, topic: str) -> None:
    bootstrap = broker.bootstrap
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id="task") as producer:
        found = []
        for committed in (True, False, True):
            producer.begin()
            first = producer.send(topic, b"a").get(60).offset
            producer.send(topic, b"b")
            prepared = producer.prepare()
            assert TransactionOutcome.OPEN is outcome(bootstrap, topic, first, prepared.producer_id)
            finish(bootstrap, prepared, committed=committed)
            wait_ended(producer)
            found.append(outcome(bootstrap, topic, first, prepared.producer_id))
        assert [TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED, TransactionOutcome.COMMITTED] == found


def test_closing_leaves_what_is_prepared(broker: InProcessBroker, topic: str) -> None:
    bootstrap = broker.bootstrap
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id="task") as producer:
        producer.begin()
        first = producer.send(topic, b"a").get(60).offset
        prepared = producer.prepare()
    assert TransactionOutcome.OPEN is outcome(bootstrap, topic, first, prepared.producer_id)
    finish(bootstrap, prepared, committed=True)
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id="task") as producer:
        wait_ended(producer)
    assert TransactionOutcome.COMMITTED is outcome(bootstrap, topic, first, prepared.producer_id)


def test_closing_aborts_what_is_not_prepared(broker: InProcessBroker, topic: str) -> None:
    bootstrap = broker.bootstrap
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id="task") as producer:
        producer.begin()
        first = producer.send(topic, b"a").get(60).offset
        producer_id = producer.describe().producer_id
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id="task") as producer:
        wait_ended(producer)
    assert TransactionOutcome.ABORTED is outcome(bootstrap, topic, first, producer_id)


def test_the_log_knows_after_the_id_was_taken_anew(broker: InProcessBroker, topic: str) -> None:
    bootstrap = broker.bootstrap
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id="task") as producer:
        producer.begin()
        first = producer.send(topic, b"a").get(60).offset
        prepared = producer.prepare()
        producer.begin()
        assert TransactionOutcome.ABORTED is outcome(bootstrap, topic, first, prepared.producer_id)


def test_records_that_are_gone_tell_nothing(broker: InProcessBroker, topic: str) -> None:
    bootstrap = broker.bootstrap
    with PreparingProducer(bootstrap_servers=bootstrap, transactional_id="task") as producer:
        producer.begin()
        producer.send(topic, b"a").get(60)
        prepared = producer.prepare()
    finish(bootstrap, prepared, committed=True)
    assert TransactionOutcome.UNKNOWN is outcome(bootstrap, topic, 0, prepared.producer_id + 1)
    assert TransactionOutcome.UNKNOWN is outcome(bootstrap, topic, 99, prepared.producer_id)


def test_nothing_cannot_be_prepared(broker: InProcessBroker) -> None:
    with PreparingProducer(bootstrap_servers=broker.bootstrap, transactional_id="task") as producer:
        with pytest.raises(MisuseError, match="has no transaction with records"):
            producer.prepare()
        producer.begin()
        with pytest.raises(MisuseError, match="has no transaction with records"):
            producer.prepare()


def test_it_needs_a_name() -> None:
    with pytest.raises(MisuseError, match="PreparingProducer needs a transactional_id"):
        PreparingProducer(bootstrap_servers="nowhere:1")
