"""A producer whose transactional id another one took over, or whose transaction took too long, changes nothing more."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import BY_NAME, TRANSACTION_V2, having
from tests.compat.clients.foreign_client import EARLIEST, ClientError, ForeignClient
from tests.compat.clients.shapes import KEEP_ALL, expected_reading, small
from tests.compat.clients.transactional import (
    TransactionalProducer,
    isolated_consumer,
    read_isolated,
    transactional_producer,
)

TRANSACTION_TIMEOUT_MS = 3000
"""So long that a record is written into the transaction before, also on a machine that stalls."""

FENCED_LOCALLY = -144
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
PRODUCER_FENCED = 90

FENCED_AT_END = {"confluent-kafka": FENCED_LOCALLY, "kafkajs": INVALID_PRODUCER_EPOCH}
"""What a client's commit and abort say when they are not fenced with Kafka's own code; kafkajs asks in a version that
is older than that code.
"""
FENCED_AT_SEND = {"confluent-kafka": FENCED_LOCALLY, "aiokafka": PRODUCER_FENCED}
"""What a client's send says when it is not the old epoch."""


@pytest.mark.parametrize("step", ["commit", "abort", "send"])
def test_a_second_producer_fences_the_first(client: ForeignClient, topic: str, step: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(3)
    steps: dict[str, Callable[[TransactionalProducer], object]] = {
        "commit": TransactionalProducer.commit,
        "abort": TransactionalProducer.abort,
        "send": lambda producer: producer.send(topic, sent[1:2]),
    }
    expected_code = (
        FENCED_AT_SEND.get(client.name, INVALID_PRODUCER_EPOCH)
        if step == "send"
        else FENCED_AT_END.get(client.name, PRODUCER_FENCED)
    )
    with transactional_producer(client, topic) as zombie:
        zombie.begin()
        zombie.send(topic, sent[:1])
        with transactional_producer(client, topic) as producer:
            with pytest.raises(ClientError) as caught:
                steps[step](zombie)
            assert expected_code == caught.value.code
            producer.begin()
            acks = producer.send(topic, sent[2:])
            producer.commit()
    assert expected_reading(sent[2:], acks) == read_isolated(client, topic, 1, committed=True)


def test_what_a_client_left_open_when_it_crashed_is_aborted(
    client: ForeignClient, broker: Broker, topic: str, tmp_path: Path
) -> None:
    """By the next one with its transactional id, long before the transaction's time is over."""
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(2)
    crashing = BY_NAME[client.name].start(broker.bootstrap, tmp_path / "crashing.log")
    try:
        number = crashing.next_number()
        crashing.call("open_transactional", id=number, transactional_id=topic, transaction_timeout_ms=None)
        lost = TransactionalProducer(crashing, number)
        lost.begin()
        lost.send(topic, sent[:1])
        crashing.kill()
    finally:
        crashing.close()
    with transactional_producer(client, topic) as producer:
        producer.begin()
        acks = producer.send(topic, sent[1:])
        producer.commit()
    assert expected_reading(sent[1:], acks) == read_isolated(client, topic, 1, committed=True)


def test_a_transaction_that_takes_too_long_is_aborted(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(3)
    with (
        transactional_producer(client, topic, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS) as late,
        client.producer() as plain,
        isolated_consumer(client, topic, {0: EARLIEST}, committed=True) as reader,
    ):
        late.begin()
        late.send(topic, sent[:1])
        expected = expected_reading(sent[1:2], plain.send(topic, sent[1:2]))
        assert expected == reader.poll(1)
        with pytest.raises(ClientError) as caught:
            late.commit()
        # With an epoch for each transaction it is plain that this one is over, not that another producer came.
        code = INVALID_TXN_STATE if client.name in having(TRANSACTION_V2) else PRODUCER_FENCED
        assert FENCED_AT_END.get(client.name, code) == caught.value.code
        with transactional_producer(client, topic) as producer:
            producer.begin()
            acks = producer.send(topic, sent[2:])
            producer.commit()
        assert expected_reading(sent[2:], acks) == reader.poll(1)
