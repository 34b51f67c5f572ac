"""Consume, transform, produce: what a group has read and what was made of it are committed together, or not at all."""

import time

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.clients.broker_under_test import Broker
from tests.compat.clients.catalogue import SENDS_OFFSETS, having
from tests.compat.clients.foreign_client import ForeignClient
from tests.compat.clients.shapes import KEEP_ALL, small
from tests.compat.clients.transactional import read_isolated, transactional_producer, transform

TIMEOUT_S = 30
PARTITIONS = 2
COUNT = 20
FIRST_PART = 8


class GroupOffsets:
    """What a group has committed, as somebody else sees it."""

    def __init__(self, broker: Broker, group: str, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self._group = group
        self._topic = topic

    def now(self) -> dict[int, int]:
        """By partition, whatever transactions are under way."""
        found = self._ask(require_stable=False)
        assert found is not None
        return found

    def settled(self) -> dict[int, int]:
        """By partition, once no transaction is under way: its end is decided before its markers are written."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := self._ask(require_stable=True)) is None:
            assert time.monotonic() < deadline, f"{self._group} has offsets that are not stable"
        return found

    def _ask(self, *, require_stable: bool) -> dict[int, int] | None:
        """None when some are not stable."""
        partitions = [TopicPartition(self._topic, partition) for partition in range(PARTITIONS)]
        asked = [ConsumerGroupTopicPartitions(self._group, partitions)]
        (answer,) = self._admin.list_consumer_group_offsets(asked, require_stable=require_stable).values()
        found = answer.result(TIMEOUT_S).topic_partitions
        if any(each.error for each in found):
            return None
        return {each.partition: each.offset for each in found if each.offset >= 0}


@pytest.fixture
def offsets(broker: Broker, topic: str) -> GroupOffsets:
    """Of the group with the topic's name, in the topic."""
    return GroupOffsets(broker, topic, topic)


@pytest.mark.parametrize("client", having(SENDS_OFFSETS), indirect=True)
def test_offsets_are_committed_with_the_transaction(client: ForeignClient, topic: str, offsets: GroupOffsets) -> None:
    client.create_topic(topic, partitions=PARTITIONS, configs=KEEP_ALL)
    with transactional_producer(client, topic) as producer:
        producer.begin()
        producer.send(topic, small(1))
        producer.send_offsets(topic, [(topic, 0, 7), (topic, 1, 9)])
        assert {} == offsets.now()
        producer.abort()
        assert {} == offsets.settled()

        producer.begin()
        producer.send_offsets(topic, [(topic, 0, 17), (topic, 1, 19)])
        assert {} == offsets.now()
        producer.commit()
        assert {0: 17, 1: 19} == offsets.settled()

        producer.begin()
        producer.send(topic, small(1))
        producer.send_offsets(topic, [(topic, 0, 27)])
        assert {0: 17, 1: 19} == offsets.now()
        producer.commit()
        assert {0: 27, 1: 19} == offsets.settled()


def test_consume_transform_produce(client: ForeignClient, topic: str, offsets: GroupOffsets) -> None:
    """By members of a group that come and go: what one of them aborted, the next one does again."""
    source, target = topic, f"{topic}-target"
    for each in (source, target):
        client.create_topic(each, partitions=PARTITIONS, configs=KEEP_ALL)
    sent = [record for partition in range(PARTITIONS) for record in small(COUNT // PARTITIONS, partition=partition)]
    client.send(source, sent)

    def run(count: int, *, commit: bool) -> None:
        transform(client, transactional_id=topic, group=topic, source=source, target=target, count=count, commit=commit)

    run(COUNT, commit=False)
    assert {} == offsets.settled()
    run(FIRST_PART, commit=True)
    assert FIRST_PART == sum(offsets.settled().values())
    run(COUNT - FIRST_PART, commit=True)
    assert dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS) == offsets.settled()

    found = read_isolated(client, target, COUNT, committed=True, partitions=PARTITIONS)
    expected = [(record.partition, record.key, record.value + b"!") for record in sent if record.value is not None]
    assert expected == [(record.partition, record.key, record.value) for record in found]
