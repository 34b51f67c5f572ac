"""Positions as offsets of the partitions of a topic."""

import time

import pytest

from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.ids import TopicPartition
from ottla.operations.position_offsets import bounds_of, chosen_partitions, resolve
from ottla.operations.positions import AtOffset, AtTime, Beginning, End, FromEnd, Position
from ottla.testing import InProcessBroker

READ_UNCOMMITTED = 0
TOPIC = "operations-positions"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture(scope="module")
def topic(ottla_shared_broker: InProcessBroker) -> str:
    return ottla_shared_broker.create_topic(TOPIC, 2)


async def test_positions_between_the_bounds(topic: str, cluster: Cluster, producer: AsyncProducer) -> None:
    """Five records in one partition, a second apart, and one in the other."""
    start_ms = time.time_ns() // 1_000_000 - 60_000
    for number in range(5):
        await producer.send_and_wait(topic, b"", partition=0, timestamp_ms=start_ms + 1000 * number)
    await producer.send_and_wait(topic, b"", partition=1, timestamp_ms=start_ms)
    bounds = {P0: (1, 5), P1: (0, 1)}  # as if the first record had been deleted
    offsets: dict[Position, tuple[int, int]] = {
        Beginning(): (1, 0),
        End(): (5, 1),
        AtOffset(0): (1, 0),
        AtOffset(3): (3, 1),
        AtOffset(9): (5, 1),
        FromEnd(2): (3, 0),
        FromEnd(9): (1, 0),
        AtTime(start_ms + 2001): (3, 1),
        AtTime(start_ms + 2000): (2, 1),
        AtTime(start_ms + 9000): (5, 1),
        AtTime(-1): (0, 0),
    }
    assert offsets == {each: tuple((await resolve(cluster, each, bounds)).values()) for each in offsets}
    found = [
        await bounds_of(cluster, [P0, P1], start, end, isolation_level=READ_UNCOMMITTED)
        for start, end in ((Beginning(), End()), (AtOffset(2), FromEnd(1)), (End(), Beginning()))
    ]
    assert [{P0: (0, 5), P1: (0, 1)}, {P0: (2, 4), P1: (1, 1)}, {P0: (5, 5), P1: (1, 1)}] == found


async def test_partitions_of_a_topic(topic: str, cluster: Cluster, ottla_shared_broker: InProcessBroker) -> None:
    assert [P0, P1] == await chosen_partitions(cluster, topic, None)
    assert [P0, P1] == await chosen_partitions(cluster, topic, [1, 0, 1])
    with pytest.raises(UnknownPartitionInTopicError) as refused:
        await chosen_partitions(cluster, topic, [0, 2])
    assert f"topic {topic} has no partition 2; it has 2 partitions, from 0" == str(refused.value)
    single = ottla_shared_broker.create_topic("operations-single")
    with pytest.raises(UnknownPartitionInTopicError) as refused:
        await chosen_partitions(cluster, single, [-1])
    assert f"topic {single} has no partition -1; it has 1 partition, from 0" == str(refused.value)
