"""Which partition a record goes to, as Java's producer decides: murmur2 of the key, or stick to one without a key.

So that records of one key meet in one partition whichever client sent them. The producer's own choice needs none of
the callables here; they are for those who want another one, and show what a custom one looks like.
"""

from collections.abc import Callable, Sequence

from ottla.client.producer.murmur2 import murmur2, partition_for_key
from ottla.env.ports import Random
from ottla.env.real_random import RealRandom

__all__ = ["Partitioner", "RandomPartitioner", "RoundRobinPartitioner", "StickyChoice", "murmur2", "partition_for_key"]

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""Given a serialized key, all partitions of the topic and those that have a leader now, answers one of them."""


class StickyChoice:
    """For records without a key: one partition until `move_on`, then another, so that batches fill up."""

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
        """Says that a batch is full: the next one goes to another partition, if there is one."""
        if self._partitions > 1:
            step = 1 + self._random.randrange(self._partitions - 1)
            self._current = (self._current + step) % self._partitions


class RoundRobinPartitioner:
    """Every record goes to the next partition that has a leader, whatever its key; one instance serves one topic."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        choice = available or all_partitions
        self._next += 1
        return choice[(self._next - 1) % len(choice)]


class RandomPartitioner:
    """A key's partition is Java's; records without one go anywhere, each for itself."""

    def __init__(self, random: Random | None = None) -> None:
        self._random: Random = random or RealRandom()

    def __call__(self, key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]) -> int:
        if key is not None:
            return all_partitions[partition_for_key(key, len(all_partitions))]
        choice = available or all_partitions
        return choice[self._random.randrange(len(choice))]
