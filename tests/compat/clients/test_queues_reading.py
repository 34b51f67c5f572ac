"""Each client reads logs in which a queue keeps its progress, in control batches whose type the client does not know.

In a companion they stand between parked records, in a topic whose expired records become dead letters between others.
"""

import time

import pytest

from tests.compat.clients.broker_under_test import TARGET
from tests.compat.clients.foreign_client import EARLIEST, ForeignClient, Headers, Read, Sent
from tests.compat.clients.transactional import read_isolated

pytestmark = pytest.mark.skipif(TARGET != "ottla", reason="Apache Kafka has no such queues")

IN_AN_HOUR = (("ottla.delay-ms", b"3600000"),)
EXPIRED = (("ottla.ttl-ms", b"1000"),)


def record(value: bytes, headers: Headers = ()) -> Sent:
    """A record that is ten seconds old."""
    return Sent(key=b"key", value=value, headers=headers, timestamp=time.time_ns() // 1_000_000 - 10_000, partition=0)


def values(records: list[Read]) -> list[bytes | None]:
    return [record.value for record in records]


def test_a_companion_can_be_read(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs={"ottla.delay.enable": "true"})
    companion = f"{topic}.delayed"
    with client.consumer(topic, {0: EARLIEST}) as consumer, client.consumer(companion, {0: EARLIEST}) as reader:
        for value in (b"first", b"second"):
            client.send(companion, [record(b"parked", IN_AN_HOUR), record(value)])
            assert [b"parked", value] == values(reader.poll(2))
            assert [value] == values(consumer.poll(1))
    expected = [b"parked", b"first", b"parked", b"second"]
    found = client.read(companion, 4)
    assert expected == values(found)
    assert found[-1].offset > 3  # There is something between them.
    assert expected == values(read_isolated(client, companion, 4, committed=True))


def test_a_topic_can_be_read_whose_expired_records_are_dead_letters(client: ForeignClient, topic: str) -> None:
    dead_letters = f"dead.{topic}"
    configs = {"ottla.ttl.enable": "true", "errors.deadletterqueue.topic.name": dead_letters}
    client.create_topic(topic, configs=configs)
    expected = [b"first", b"second", b"third"]
    with client.consumer(topic, {0: EARLIEST}) as consumer, client.consumer(dead_letters, {0: EARLIEST}) as dead:
        for value in expected:
            client.send(topic, [record(value), record(b"expired", EXPIRED)])
            assert [value] == values(consumer.poll(1))
            assert [b"expired"] == values(dead.poll(1))
    found = client.read(topic, 3)
    assert expected == values(found)
    assert found[-1].offset > 4
    assert expected == values(read_isolated(client, topic, 3, committed=True))
