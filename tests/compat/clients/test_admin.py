"""Each client's admin calls: topics, partitions, configs, offsets, deleting records, the cluster and its log dirs."""

import pytest

from tests.compat.clients.broker_under_test import Broker, settled
from tests.compat.clients.catalogue import CLUSTER_ID, LOG_DIRS, MAX_TIMESTAMP, NAMES, OFFSET_TIMESTAMP, having
from tests.compat.clients.conftest import ClientOf
from tests.compat.clients.foreign_client import EARLIEST, ForeignClient, Sent
from tests.compat.clients.shapes import FIRST_TIMESTAMP, KEEP_ALL, expected_reading, small


def test_a_topics_life(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    assert settled(lambda: _is_listed(client, topic), True)
    broker_id = client.call("describe_cluster")["brokers"][0][0]
    assert _partitions(3, broker_id) == settled(lambda: _described(client, topic), _partitions(3, broker_id))

    client.call("create_partitions", topic=topic, count=5)
    assert _partitions(5, broker_id) == settled(lambda: _described(client, topic), _partitions(5, broker_id))
    assert [(4, 0)] == client.send(topic, [Sent(value=b"in a new partition", partition=4)])

    client.call("delete_topic", topic=topic)
    assert not settled(lambda: _is_listed(client, topic), False)


def _is_listed(client: ForeignClient, topic: str) -> bool:
    return topic in client.call("list_topics")["topics"]


def _described(client: ForeignClient, topic: str) -> list[list[object]]:
    partitions: list[list[object]] = client.call("describe_topic", topic=topic)["partitions"]
    return partitions


def _partitions(count: int, broker_id: int) -> list[list[object]]:
    return [[partition, broker_id, [broker_id], [broker_id]] for partition in range(count)]


def test_a_topic_that_is_created_again_is_empty(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    client.send(topic, small(10))
    client.call("delete_topic", topic=topic)
    client.create_topic(topic, configs=KEEP_ALL)
    sent = [Sent(value=b"anew", timestamp=FIRST_TIMESTAMP, partition=0)]
    acks = client.send(topic, sent)
    assert [(0, 0)] == acks
    assert expected_reading(sent, acks) == client.read(topic, 1)


def test_topic_configs(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs={"retention.ms": "123456789", "cleanup.policy": "compact"})
    asked = ("retention.ms", "cleanup.policy", "segment.bytes", "message.timestamp.type")
    # What was not set is told all the same, with Kafka's default.
    expected = ["123456789", "compact", "1073741824", "CreateTime"]
    assert expected == settled(lambda: _configs(client, topic, asked), expected)

    # Some clients change single settings, others replace them all: so both are named.
    client.call("alter_configs", topic=topic, configs={"retention.ms": "-1", "cleanup.policy": "delete"})
    assert ["-1", "delete"] == settled(lambda: _configs(client, topic, asked[:2]), ["-1", "delete"])


def _configs(client: ForeignClient, topic: str, names: tuple[str, ...]) -> list[str]:
    found = client.call("describe_configs", kind="topic", name=topic)["configs"]
    return [found[name] for name in names]


def test_broker_configs(client: ForeignClient) -> None:
    ((broker_id, _, _),) = client.call("describe_cluster")["brokers"]
    configs = client.call("describe_configs", kind="broker", name=str(broker_id))["configs"]
    assert ("168", "1") == (configs["log.retention.hours"], configs["num.partitions"])


def test_the_first_and_the_next_offset(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, partitions=2, configs=KEEP_ALL)
    client.send(topic, small(20, partition=1))
    found = [client.find_offset(topic, partition, at)[0] for partition in (0, 1) for at in ("earliest", "latest")]
    assert [0, 0, 0, 20] == found


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_offsets_by_time(client: ForeignClient, topic: str, codec: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = [Sent(value=b"x", timestamp=FIRST_TIMESTAMP + 1000 * index, partition=0) for index in range(20)]
    client.send(topic, sent[:10], codec=codec)
    client.send(topic, sent[10:], codec=codec)
    asked = [0, FIRST_TIMESTAMP, FIRST_TIMESTAMP + 6500, FIRST_TIMESTAMP + 7000, FIRST_TIMESTAMP + 18_001]
    assert [0, 0, 7, 7, 19] == [client.find_offset(topic, 0, moment)[0] for moment in asked]


@pytest.mark.parametrize("client", having(OFFSET_TIMESTAMP), indirect=True)
def test_the_time_of_an_offset_by_time(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    client.send(topic, [Sent(value=b"x", timestamp=FIRST_TIMESTAMP + 1000 * at, partition=0) for at in range(5)])
    assert (3, FIRST_TIMESTAMP + 3000) == client.find_offset(topic, 0, FIRST_TIMESTAMP + 2001)
    # franz-go gives the end where there is no such record, others nothing; neither has a time.
    assert -1 == client.find_offset(topic, 0, FIRST_TIMESTAMP + 4001)[1]


@pytest.mark.parametrize("client", having(MAX_TIMESTAMP), indirect=True)
def test_the_record_with_the_largest_time(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    times = [FIRST_TIMESTAMP, FIRST_TIMESTAMP + 9000, FIRST_TIMESTAMP + 100]
    client.send(topic, [Sent(value=b"x", timestamp=time, partition=0) for time in times])
    assert (1, FIRST_TIMESTAMP + 9000) == client.find_offset(topic, 0, "max_timestamp")


def test_deleting_records(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(10)
    expected = expected_reading(sent, client.send(topic, sent))
    answer = client.call("delete_records", topic=topic, partition=0, offset=4)
    assert 4 == answer["low_watermark"]
    assert (4, 10) == (client.find_offset(topic, 0, "earliest")[0], client.find_offset(topic, 0, "latest")[0])
    with client.consumer(topic, {0: EARLIEST}) as consumer:
        assert expected[4:] == consumer.poll(6)


def test_the_cluster(client: ForeignClient, broker: Broker) -> None:
    found = client.call("describe_cluster")
    host, port = broker.bootstrap.split(":")
    assert [[host, int(port)]] == [[each_host, each_port] for _, each_host, each_port in found["brokers"]]
    assert found["controller"] == found["brokers"][0][0]


def test_every_client_is_told_the_same_cluster_id(client_of: ClientOf) -> None:
    told = {client_of(name).call("describe_cluster")["cluster_id"] for name in having(CLUSTER_ID)}
    assert 1 == len(told)
    assert all(told)


@pytest.mark.parametrize("client", having(LOG_DIRS), indirect=True)
def test_log_dirs(client: ForeignClient, topic: str) -> None:
    client.create_topic(topic, partitions=2, configs=KEEP_ALL)
    client.send(topic, [Sent(value=bytes(5000), partition=1)])
    sizes = client.call("log_dirs")["sizes"]
    assert 0 == sizes[f"{topic}-0"]
    assert 5000 < sizes[f"{topic}-1"] < 5200


def test_every_client_lists_the_same_topics(client_of: ClientOf, topic: str) -> None:
    client_of(NAMES[0]).create_topic(topic)
    assert settled(lambda: topic in _ordinary_topics(client_of(NAMES[0])), True)
    expected = _ordinary_topics(client_of(NAMES[0]))
    assert dict.fromkeys(NAMES, expected) == {name: _ordinary_topics(client_of(name)) for name in NAMES}


def _ordinary_topics(client: ForeignClient) -> list[str]:
    """Some clients keep the broker's own topics to themselves."""
    return sorted(name for name in client.call("list_topics")["topics"] if not name.startswith("__"))
