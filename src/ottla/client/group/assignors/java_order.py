"""The order in which Java's hash tables give back what was put into them.

Java's sticky assignors decide some ties by it. A leader of ours that decided otherwise would be right too, but a group
whose leader changes from one kind of client to the other would move partitions for nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from ottla.model.ids import TopicPartition

T = TypeVar("T")

_CAPACITY_MIN: Final = 16
_LOAD: Final = 0.75
_MASK: Final = 0xFFFFFFFF


def text_hash(text: str) -> int:
    """Java's hash of a text, unsigned."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[at] << 8 | encoded[at + 1])) & _MASK
    return value


def partition_hash(partition: TopicPartition) -> int:
    """The hash of a partition in Java's client, unsigned."""
    return ((31 + partition.partition) * 31 + text_hash(partition.topic)) & _MASK


def in_java_order(texts: Iterable[str]) -> list[str]:
    """Texts in the order of a `HashMap` that they were put into one after the other."""
    table = JavaHashSet(text_hash)
    for text in texts:
        table.add(text)
    return list(table)


class JavaHashSet(Generic[T]):
    """A set with the order of Java's `HashSet`. Its table grows with what is in it, and never shrinks."""

    def __init__(self, hash_of: Callable[[T], int]) -> None:
        self._hash_of = hash_of
        self._elements: dict[T, int] = {}
        self._capacity = _CAPACITY_MIN

    def __iter__(self) -> Iterator[T]:
        mask = self._capacity - 1
        # Elements of one slot stay in the order in which they came.
        return iter(sorted(self._elements, key=lambda element: self._elements[element] & mask))

    def __bool__(self) -> bool:
        return bool(self._elements)

    def add(self, element: T) -> None:
        """Puts an element in; one that is there stays where it is."""
        if element in self._elements:
            return
        value = self._hash_of(element)
        self._elements[element] = value ^ value >> 16
        if len(self._elements) > self._capacity * _LOAD:
            self._capacity *= 2

    def discard(self, element: T) -> None:
        """Takes an element out, if it is there."""
        self._elements.pop(element, None)
