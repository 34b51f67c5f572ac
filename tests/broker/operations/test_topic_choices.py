"""Partitions as people choose them, of topics that exist."""

import pytest

from ottla.client.network.cluster import Cluster, UnknownPartitionInTopicError
from ottla.model.ids import TopicPartition
from ottla.operations.topic_choices import chosen_partitions
from ottla.testing import InProcessBroker


async def test_each_partition_once_in_order(cluster: Cluster, ottla_shared_broker: InProcessBroker) -> None:
    a, b = (ottla_shared_broker.create_topic(f"operations-choice-{name}", 3) for name in "ab")
    whole = [TopicPartition(a, index) for index in range(3)]
    assert whole == await chosen_partitions(cluster, [a])
    assert whole[1:] == await chosen_partitions(cluster, [f"{a}:2", f"{a}:2,1"])
    assert [whole[2], TopicPartition(b, 0)] == await chosen_partitions(cluster, [b, f"{a}:2"], [0])
    assert [] == await chosen_partitions(cluster, [])
    with pytest.raises(UnknownPartitionInTopicError, match=f"topic {a} has no partition 3; its partitions are 0 to 2"):
        await chosen_partitions(cluster, [f"{a}:3"])
