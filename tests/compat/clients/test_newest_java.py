"""Kafka 4.4's Java client, which asks for newer versions of some requests than the client before: ApiVersions 5,
TxnOffsetCommit 6 and DeleteGroups 3. What both do alike is tested with the other clients."""

import pytest

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import CODECS, NEWEST_JAVA
from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.clients.shapes import KEEP_ALL, small
from tests.compat.clients.test_transactions_offsets import PARTITIONS, GroupOffsets
from tests.compat.clients.transactional import read_isolated, transactional_producer, transform

pytestmark = pytest.mark.parametrize("client", [NEWEST_JAVA.name], indirect=True)

COUNT = 20


@pytest.fixture
def offsets(broker: Broker, topic: str) -> GroupOffsets:
    """Of the group with the topic's name, in the topic."""
    return GroupOffsets(broker, topic, topic)


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_the_newest_client(client: ForeignClient, topic: str, codec: str) -> None:
    client.create_topic(topic, configs=KEEP_ALL)
    sent = small(COUNT)
    client.send(topic, sent, codec=codec)
    assert [each.value for each in sent] == [each.value for each in client.read(topic, COUNT)]


def test_offsets_of_the_newest_client_in_a_transaction(
    client: ForeignClient, topic: str, offsets: GroupOffsets
) -> None:
    """By topic id, if the broker knows TxnOffsetCommit 6."""
    client.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
    with transactional_producer(client, topic) as producer:
        producer.begin()
        producer.send(topic, small(1))
        producer.send_offsets(topic, [(topic, 0, 7), (topic, 1, 9)])
        producer.abort()
        assert {} == offsets.settled()
        producer.begin()
        producer.send_offsets(topic, [(topic, 0, 17), (topic, 1, 19)])
        producer.commit()
        assert {0: 17, 1: 19} == offsets.settled()


def test_the_newest_client_consumes_transforms_and_produces(
    client: ForeignClient, topic: str, offsets: GroupOffsets
) -> None:
    target = f"{topic}-target"
    for each in (topic, target):
        client.create_topic(each, partitions=PARTITIONS, configs=KEEP_ALL)
    client.send(topic, [record for at in range(PARTITIONS) for record in small(COUNT // PARTITIONS, partition=at)])
    for is_committed in (False, True):
        transform(
            client, transactional_id=topic, group=topic, source=topic, target=target, count=COUNT, commit=is_committed
        )
        assert (COUNT if is_committed else 0) == sum(offsets.settled().values())
    assert COUNT == len(read_isolated(client, target, COUNT, partitions=PARTITIONS, committed=True))
