"""What each client hears when it asks for something wrong: Kafka's error code, and a broker that carries on."""

import pytest

from tests.compat.clients.catalogue import RESET, having
from tests.compat.clients.foreign_client import ClientError, ForeignClient, Sent
from tests.compat.clients.shapes import KEEP_ALL, expected_reading, small

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


def test_a_topic_that_exists(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic)
    with pytest.raises(ClientError) as caught:
        client.create_topic(topic)
    assert TOPIC_ALREADY_EXISTS == caught.value.code


def test_a_topic_that_does_not_exist(client: ForeignClient, topic: str) -> None:
    with pytest.raises(ClientError) as caught:
        client.call("delete_topic", topic=topic)
    assert UNKNOWN_TOPIC_OR_PARTITION == caught.value.code


def test_a_bad_name_for_a_topic(client: ForeignClient) -> None:
    with pytest.raises(ClientError) as caught:
        client.create_topic("not/a/name")
    assert INVALID_TOPIC == caught.value.code


def test_fewer_partitions_than_there_are(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    with pytest.raises(ClientError) as caught:
        client.call("create_partitions", topic=topic, count=2)
    assert INVALID_PARTITIONS == caught.value.code


def test_a_bad_value_of_a_config(client: ForeignClient, topic: str) -> None:
    with pytest.raises(ClientError) as caught:
        client.create_topic(topic, configs={"retention.ms": "soon"})
    assert INVALID_CONFIG == caught.value.code


def test_a_record_larger_than_the_topic_allows(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs={**KEEP_ALL, "max.message.bytes": "10000"})
    with pytest.raises(ClientError) as caught:
        client.send(topic, [Sent(value=bytes(20_000), partition=0)])
    assert MESSAGE_TOO_LARGE == caught.value.code
    assert [(0, 0)] == client.send(topic, [Sent(value=b"small", partition=0)])


def test_deleting_records_that_are_not_there(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    client.send(topic, small(3))
    with pytest.raises(ClientError) as caught:
        client.call("delete_records", topic=topic, partition=0, offset=4)
    assert OFFSET_OUT_OF_RANGE == caught.value.code


@pytest.mark.parametrize("client", having(RESET), indirect=True)
def test_an_offset_beyond_the_end_goes_back_to_the_start(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(10)
    expected = expected_reading(sent, client.send(topic, sent))
    with client.consumer(topic, {0: 500}, reset="earliest") as consumer:
        assert expected == consumer.poll(10)


@pytest.mark.parametrize("client", having(RESET), indirect=True)
def test_an_offset_that_was_deleted_goes_to_the_start(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(10)
    expected = expected_reading(sent, client.send(topic, sent))
    client.call("delete_records", topic=topic, partition=0, offset=6)
    with client.consumer(topic, {0: 2}, reset="earliest") as consumer:
        assert expected[6:] == consumer.poll(4)
