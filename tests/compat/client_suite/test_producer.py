"""The producers against Ottla and against Apache Kafka: records, retries, transactions of both versions, fencing."""

import asyncio
from typing import Any

import pytest

from ottla.client.admin.group_offsets import committed_offsets
from ottla.client.errors import AnswerError
from ottla.client.network.cluster import Cluster
from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.blocking_producer import Producer
from ottla.client.producer.errors import ProducerFencedError, TransactionFailedError
from ottla.client.producer.partitioner import partition_for_key
from ottla.client.producer.transactions import producer_transactions as producer_transactions
from ottla.client.values import OffsetAndMetadata
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.transport.addresses import parse_address
from tests.broker.client.producer_log import make_topic, read_topic, values
from tests.compat.clients.broker_under_test import TARGET, Broker

SOON_S = 60


@pytest.fixture(params=[1, 2])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of transactions that the client uses; brokers that can the newer one serve both."""
    version: int = request.param
    if version == 2 and TARGET == "kafka-3.9":
        pytest.skip("transactions of version 2 came with Kafka 4.0")

    async def chosen(cluster: Cluster, transactional_id: str) -> int:
        return version

    if version == 1:
        monkeypatch.setattr(producer_transactions, "transaction_version", chosen)
    return version


def transactional(bootstrap: str, name: str, **more: Any) -> Producer:
    producer = Producer(bootstrap_servers=bootstrap, transactional_id=name, **more)
    producer.init_transactions()
    return producer


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_in_order_by_key(bootstrap: str, topic: str, codec: Any) -> None:
    make_topic(bootstrap, topic, 3)
    with Producer(bootstrap_servers=bootstrap, compression_type=codec, batch_size=2000) as producer:
        deliveries = [
            producer.send(topic, b"%d" % number, key=b"%d" % (number % 10), headers=[("n", b"%d" % number)])
            for number in range(2000)
        ]
        producer.flush(SOON_S)
        metadata = [delivery.get(0) for delivery in deliveries]
    found = read_topic(bootstrap, topic, 3)
    for number, written in enumerate(metadata):
        assert partition_for_key(b"%d" % (number % 10), 3) == written.partition
        record = found[written.partition][written.offset]
        assert (b"%d" % number, [("n", b"%d" % number)]) == (record.value, list(record.headers))
    assert 2000 == sum(map(len, found.values()))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements_to_a_topic_made_by_sending(bootstrap: str, topic: str, acks: Any) -> None:
    async def send() -> list[int]:
        async with AsyncProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
            return [(await producer.send_and_wait(topic, b"%d" % number)).offset for number in range(5)]

    assert ([-1] * 5 if acks == 0 else [0, 1, 2, 3, 4]) == asyncio.run(send())
    if acks != 0:
        assert [b"%d" % number for number in range(5)] == values(read_topic(bootstrap, topic)[0])


def test_batches_too_large_are_split_and_records_too_large_refused(bootstrap: str, topic: str) -> None:
    make_topic(bootstrap, topic, 1, max_message_bytes="400")
    with Producer(bootstrap_servers=bootstrap, linger_ms=500) as producer:
        deliveries = [producer.send(topic, b"%03d" % number * 10) for number in range(100)]
        producer.flush(SOON_S)
        assert list(range(100)) == [delivery.get(0).offset for delivery in deliveries]
        with pytest.raises(AnswerError) as refusal:
            producer.send(topic, b"x" * 1000).get(SOON_S)
        assert ErrorCode.MESSAGE_TOO_LARGE is refusal.value.error_code
        assert 100 == producer.send(topic, b"after").get(SOON_S).offset
    expected = [b"%03d" % number * 10 for number in range(100)] + [b"after"]
    assert expected == values(read_topic(bootstrap, topic)[0])


def test_transactions(bootstrap: str, topic: str, version: int) -> None:
    make_topic(bootstrap, topic, 2)
    with transactional(bootstrap, topic) as producer:
        for number in range(6):
            producer.begin_transaction()
            for index in (0, 1):
                for part in range(20):
                    producer.send(topic, b"%d.%d" % (number, part), partition=index)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        # An empty one, too.
        producer.begin_transaction()
        producer.commit_transaction()
    expected = [b"%d.%d" % (number, part) for number in (0, 2, 4) for part in range(20)]
    found = read_topic(bootstrap, topic, 2, committed=True)
    assert {0: expected, 1: expected} == {index: values(each) for index, each in found.items()}


def test_offsets_in_transactions(bootstrap: str, topic: str, version: int) -> None:
    make_topic(bootstrap, topic)
    partition = TopicPartition(topic, 0)

    def committed() -> list[int]:
        async def ask() -> list[int]:
            async with Cluster([parse_address(bootstrap)]) as cluster:
                return [each.offset for each in (await committed_offsets(cluster, topic)).values()]

        return asyncio.run(ask())

    with transactional(bootstrap, topic) as producer:
        for offset, end in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(topic, b"x")
            producer.send_offsets_to_transaction({partition: OffsetAndMetadata(offset)}, topic)
            end()
    assert [5] == committed()


def test_a_zombie_is_fenced(bootstrap: str, topic: str, version: int) -> None:
    make_topic(bootstrap, topic)
    zombie = transactional(bootstrap, topic)
    zombie.begin_transaction()
    zombie.send(topic, b"old").get(SOON_S)
    with transactional(bootstrap, topic) as heir:
        heir.begin_transaction()
        heir.send(topic, b"new")
        heir.commit_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.commit_transaction()
        with pytest.raises(ProducerFencedError):
            zombie.begin_transaction()
    zombie.close()
    assert [b"new"] == values(read_topic(bootstrap, topic, committed=True)[0])


def test_a_failed_transaction_is_aborted_and_another_begun(bootstrap: str, topic: str, version: int) -> None:
    make_topic(bootstrap, topic, 1, max_message_bytes="400")
    with transactional(bootstrap, topic) as producer:
        for number in range(3):
            producer.begin_transaction()
            producer.send(topic, b"good")
            producer.send(topic, b"x" * 1000)
            with pytest.raises(TransactionFailedError):
                producer.commit_transaction()
            producer.abort_transaction()
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            producer.commit_transaction()
    assert [b"0", b"1", b"2"] == values(read_topic(bootstrap, topic, committed=True)[0])


def test_nothing_is_lost_or_doubled_while_the_broker_is_killed(broker: Broker, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 2)
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=300, linger_ms=1) as producer:
        deliveries = []
        for number in range(1500):
            deliveries.append(producer.send(topic, b"%d" % number, partition=number % 2))
            if number == 700:
                broker.kill()
        broker.start()
        producer.flush(SOON_S)
        offsets = [delivery.get(0).offset for delivery in deliveries]
    found = read_topic(broker.bootstrap, topic, 2)
    for index in (0, 1):
        assert [b"%d" % number for number in range(index, 1500, 2)] == values(found[index])
        assert sorted(offsets[index::2]) == offsets[index::2]
