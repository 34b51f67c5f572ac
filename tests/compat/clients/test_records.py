"""Each client writes and reads: large records, many partitions, idempotence, positions inside a batch, append time."""

from pathlib import Path

import pytest

from tests.compat.clients.catalogue import AUTO_CREATE, having
from tests.compat.clients.foreign_client import EARLIEST, ForeignClient, Sent
from tests.compat.clients.shapes import (
    FIRST_TIMESTAMP,
    KEEP_ALL,
    expected_reading,
    first_batch,
    producer_id_of,
    small,
)

PARTITIONS = 12


def test_a_record_near_the_default_limit(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = [Sent(key=b"large", value=b"0123456789" * 90_000, timestamp=FIRST_TIMESTAMP, partition=0)]
    acks = client.send(topic, sent)
    assert [(0, 0)] == acks
    assert expected_reading(sent, acks) == client.read(topic, 1)


def test_a_record_of_five_megabytes_where_the_topic_allows_it(client: ForeignClient, topic: str) -> None:
    """Fetch limits are smaller by default; the first batch comes whole all the same."""
    client.create_topic(topic, configs={**KEEP_ALL, "max.message.bytes": "6000000"})
    sent = [
        Sent(value=b"before", timestamp=FIRST_TIMESTAMP, partition=0),
        Sent(value=bytes(range(250)) * 20_000, timestamp=FIRST_TIMESTAMP + 1, partition=0),
        Sent(value=b"behind", timestamp=FIRST_TIMESTAMP + 2, partition=0),
    ]
    with client.producer(request_bytes_max=6_000_000) as producer:
        acks = [ack for record in sent for ack in producer.send(topic, [record])]
    assert expected_reading(sent, acks) == client.read(topic, 3)


def test_many_partitions_by_key(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
    sent = small(1000, partition=None)
    acks = client.send(topic, sent)
    assert set(range(PARTITIONS)) == {partition for partition, _ in acks}
    assert expected_reading(sent, acks) == client.read(topic, len(sent), partitions=PARTITIONS)


def test_an_idempotent_producer(client: ForeignClient, topic: str, data: Path) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(300)
    with client.producer(idempotent=True) as producer:
        acks = [ack for at in range(0, 300, 100) for ack in producer.send(topic, sent[at : at + 100])]
    assert [(0, offset) for offset in range(300)] == acks
    assert producer_id_of(first_batch(data, topic)) >= 0
    assert expected_reading(sent, acks) == client.read(topic, 300)


def test_a_producer_that_is_not_idempotent(client: ForeignClient, topic: str, data: Path) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(10)
    acks = client.send(topic, sent, idempotent=False)
    assert -1 == producer_id_of(first_batch(data, topic))
    assert expected_reading(sent, acks) == client.read(topic, 10)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_reading_from_inside_a_batch(client: ForeignClient, topic: str, codec: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(100)
    expected = expected_reading(sent, client.send(topic, sent, codec=codec))
    with client.consumer(topic, {0: 37}) as consumer:
        assert expected[37:] == consumer.poll(63)


def test_a_consumer_sees_what_is_written_later(client: ForeignClient, topic: str) -> None:
    """An empty partition is waited for, and what comes is delivered once."""
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(30)
    with client.consumer(topic, {0: EARLIEST}) as consumer, client.producer() as producer:
        for at in range(0, 30, 10):
            expected = expected_reading(sent[at : at + 10], producer.send(topic, sent[at : at + 10]))
            assert expected == consumer.poll(10)


def test_the_broker_sets_the_time_where_the_topic_says_so(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    acks = client.send(topic, small(10))
    found = client.read(topic, 10)
    assert [(0, offset) for offset in range(10)] == acks == [(record.partition, record.offset) for record in found]
    assert all(record.timestamp > FIRST_TIMESTAMP + 10 for record in found)
    assert [record.timestamp for record in found] == sorted(record.timestamp for record in found)


@pytest.mark.parametrize("client", having(AUTO_CREATE), indirect=True)
def test_writing_creates_a_topic(client: ForeignClient, topic: str) -> None:
    sent = [Sent(key=b"key", value=b"value")]
    assert [(0, 0)] == client.send(topic, sent)
    assert [(b"key", b"value")] == [(record.key, record.value) for record in client.read(topic, 1)]
