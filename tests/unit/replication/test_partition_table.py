"""The table of partitions: found by name or id, forgotten when they go."""

import asyncio
from uuid import UUID

import pytest

from ottla.model.errors import UnknownPartitionError, UnknownTopicIdError
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from tests.unit.replication.rig import PartitionRig


def partition(topic: str, index: int, topic_id: int) -> Partition:
    made = asyncio.run(PartitionRig.make()).partition
    made.topic, made.index, made.topic_id = topic, index, UUID(int=topic_id)
    return made


def test_partitions_are_found_until_they_are_removed() -> None:
    table = PartitionTable()
    a1, a0, b0 = partition("a", 1, 7), partition("a", 0, 7), partition("b", 0, 8)
    for each in (a1, a0, b0):
        table.add(each)
    assert [a0, a1] == table.of_topic("a")
    assert (a1, a1, b0) == (table.find("a", 1), table.find(UUID(int=7).bytes, 1), table.get("b", 0))
    assert (3, {a0, a1, b0}) == (len(table), set(table))
    table.remove(a1)
    assert None is table.get("a", 1)
    with pytest.raises(UnknownPartitionError, match="no partition 1"):
        table.find(UUID(int=7).bytes, 1)
    table.remove(a0)
    with pytest.raises(UnknownTopicIdError):
        table.find(UUID(int=7).bytes, 0)
    for topic, index in (("a", 0), ("b", 1), ("b", -1), ("", 0)):
        with pytest.raises(UnknownPartitionError):
            table.find(topic, index)
    assert (1, []) == (len(table), table.of_topic("a"))


def test_a_topic_of_the_same_name_gets_a_new_id() -> None:
    table = PartitionTable()
    old, new = partition("a", 0, 7), partition("a", 0, 9)
    table.add(old)
    table.remove(old)
    table.add(new)
    assert new is table.find(UUID(int=9).bytes, 0)
    with pytest.raises(UnknownTopicIdError):
        table.find(UUID(int=7).bytes, 0)
