"""Which partition a record goes to, as Java's producer decides: murmur2 of the key, or stick to one without a key.

So that records of one key meet in one partition whichever client sent them.
"""

from typing import Final

from ottla.env.ports import Random

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(key: bytes) -> int:
    """The 32 bits of Java clients' murmur2, unsigned."""
    size = len(key)
    value = (_SEED ^ size) & _MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        word = (int.from_bytes(key[at : at + 4], "little") * _MULTIPLIER) & _MASK
        word ^= word >> 24
        word = (word * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ word
    if whole < size:
        value ^= int.from_bytes(key[whole:], "little")
        value = (value * _MULTIPLIER) & _MASK
    value ^= value >> 13
    value = (value * _MULTIPLIER) & _MASK
    return value ^ (value >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key, for a topic of that many."""
    return (murmur2(key) & _POSITIVE) % partitions


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
