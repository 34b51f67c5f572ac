"""Each client reads a topic with a TTL: it gets what has not expired, and comes behind what has."""

import time

import pytest

from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.foreign_client import EARLIEST, ForeignClient, Sent
from tests.compat.clients.shapes import expected_reading

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka has no TTL for records")

TTL = {"ottla.ttl.enable": "true"}


def record(value: bytes, ttl: bytes | None = None) -> Sent:
    """A record that is ten seconds old."""
    headers = () if ttl is None else (("ottla.ttl-ms", ttl),)
    return Sent(key=b"k", value=value, headers=headers, timestamp=time.time_ns() // 1_000_000 - 10_000, partition=0)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_only_records_that_have_not_expired_are_read(client: ForeignClient, topic: str, codec: str) -> None:
    client.create_topic(topic, configs=TTL)
    sent = [record(b"%d" % at, (None, b"1000", b"3600000", b"5000")[at % 4]) for at in range(100)]
    acks = client.send(topic, sent, codec=codec)
    live = [at for at in range(100) if at % 2 == 0]
    expected = expected_reading([sent[at] for at in live], [acks[at] for at in live])
    assert expected == client.read(topic, len(live))


def test_a_consumer_passes_over_batches_that_have_expired(client: ForeignClient, topic: str) -> None:
    """In front of what it gets, in between, and at the end, where it stands until something new comes."""
    client.create_topic(topic, configs=TTL)
    with client.consumer(topic, {0: EARLIEST}) as consumer, client.producer() as producer:
        for round_ in range(3):
            for at in range(3):
                producer.send(topic, [record(b"expired %d" % at, b"1"), record(b"expired too", b"1")])
            live = [record(b"live %d" % round_), record(b"the batch's end has expired", b"1")]
            acks = producer.send(topic, live)
            assert expected_reading(live[:1], acks[:1]) == consumer.poll(1)
            assert [] == consumer.poll(1, timeout_ms=300)


def test_positions_inside_a_batch_whose_rest_has_expired(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=TTL)
    client.send(topic, [record(b"%d" % at, None if at < 5 else b"1") for at in range(20)])
    later = [record(b"later")]
    with client.consumer(topic, {0: 7}) as consumer:
        assert [] == consumer.poll(1, timeout_ms=300)
        assert expected_reading(later, client.send(topic, later)) == consumer.poll(1)
