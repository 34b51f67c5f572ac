"""The iteration order of Java's hash tables.

Java's sticky assignors break some ties by it. With another order a group would move partitions needlessly when its
leader changes from one kind of client to the other.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from ottla.model.ids import TopicPartition

T = TypeVar("T")

_CAPACITY_MIN: Final = 16
_LOAD: Final = 0.75
_MASK: Final = 0xFFFFFFFF


def text_hash(text: str) -> int:
    """Java's `String.hashCode`, unsigned."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[at] << 8 | encoded[at + 1])) & _MASK
    return value


def partition_hash(partition: TopicPartition) -> int:
    """`TopicPartition.hashCode` of Java's client, unsigned."""
    return ((31 + partition.partition) * 31 + text_hash(partition.topic)) & _MASK


def in_java_order(texts: Iterable[str]) -> list[str]:
    """Strings in the order of a `HashMap` into which they were put one after the other."""
    table = JavaHashSet(text_hash)
    for text in texts:
        table.add(text)
    return list(table)


class JavaHashSet(Generic[T]):
    """A set with the order of Java's `HashSet`. Its table grows with its elements and never shrinks."""

    def __init__(self, hash_of: Callable[[T], int]) -> None:
        self._hash_of = hash_of
        self._elements: dict[T, int] = {}
        self._capacity = _CAPACITY_MIN

    def __iter__(self) -> Iterator[T]:
        mask = self._capacity - 1
        # Elements of one slot stay in insertion order.
        return iter(sorted(self._elements, key=lambda element: self._elements[element] & mask))

    def __bool__(self) -> bool:
        return bool(self._elements)

    def add(self, element: T) -> None:
        """Adds an element; one that is there keeps its place."""
        if element in self._elements:
            return
        value = self._hash_of(element)
        self._elements[element] = value ^ value >> 16
        if len(self._elements) > self._capacity * _LOAD:
            self._capacity *= 2

    def discard(self, element: T) -> None:
        """Removes an element, if it is there."""
        self._elements.pop(element, None)
