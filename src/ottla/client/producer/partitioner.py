"""Partitioners: callables that choose the partition of a record, for the producer option `partitioner`.

Without the option a producer chooses as Java's producer does: by murmur2 of the key, so that a key has the same
partition for all clients, and a sticky partition for records without a key. The classes here are alternatives, and
examples of a custom partitioner.
"""

from collections.abc import Callable, Sequence

from ottla.env.ports import Random
from ottla.env.real_random import RealRandom
from ottla.records.murmur2 import murmur2, partition_for_key

__all__ = ["Partitioner", "RandomPartitioner", "RoundRobinPartitioner", "StickyChoice", "murmur2", "partition_for_key"]

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""Takes the serialized key, all partitions of the topic and those that have a leader, and returns one of them."""


class StickyChoice:
    """For records without a key: one partition until `move_on`, then another one, so that batches fill up."""

    __slots__ = ("_current", "_partitions", "_random")

    def __init__(self, partitions: int, random: Random) -> None:
        self._partitions = partitions
        self._random = random
        self._current = random.randrange(partitions)

    @property
    def current(self) -> int:
        """The partition that records without a key go to now."""
        return self._current

    def move_on(self) -> None:
        """Chooses another partition, if there is one; call it when a batch is full."""
        if self._partitions > 1:
            step = 1 + self._random.randrange(self._partitions - 1)
            self._current = (self._current + step) % self._partitions


class RoundRobinPartitioner:
    """Sends each record to the next partition that has a leader, regardless of its key. Use one for each topic."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        choice = available or all_partitions
        self._next += 1
        return choice[(self._next - 1) % len(choice)]


class RandomPartitioner:
    """Chooses by key as Java's producer does, and a random partition for each record without a key."""

    def __init__(self, random: Random | None = None) -> None:
        self._random: Random = random or RealRandom()

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is not None:
            return all_partitions[partition_for_key(key, len(all_partitions))]
        choice = available or all_partitions
        return choice[self._random.randrange(len(choice))]
