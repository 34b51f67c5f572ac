"""Records that a poll gave, handed out one by one, without a cost for each: how `for record in consumer` works.

A commit must not count what was polled and not yet handed out. Instead of counting, this asks the list's iterator how
much it has left, when somebody wants to know. Pure.
"""

from collections import deque
from collections.abc import Iterator
from operator import length_hint

from ottla.client.consumer.fetch_plan_state import Records
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition


class RecordStream:
    """What was polled and not yet handed out, a partition's records after the other's."""

    def __init__(self) -> None:
        self._ahead: deque[tuple[TopicPartition, list[ConsumerRecord]]] = deque()
        self._current: tuple[TopicPartition, list[ConsumerRecord]] | None = None
        self._iterator: Iterator[ConsumerRecord] = iter(())

    def feed(self, records: Records) -> None:
        """More, behind what there is."""
        self._ahead.extend(records.items())

    def some(self) -> Iterator[ConsumerRecord] | None:
        """What is left of the partition at hand, or the next one's; None if nothing is left. Iterate to hand out."""
        while not length_hint(self._iterator):
            if not self._ahead:
                self._current = None
                return None
            self._current = self._ahead.popleft()
            self._iterator = iter(self._current[1])
        return self._iterator

    def take(self) -> Records:
        """All that is left, at once."""
        found: Records = {}
        while (some := self.some()) is not None and self._current is not None:
            found.setdefault(self._current[0], []).extend(some)
        return found

    def undelivered(self) -> dict[TopicPartition, ConsumerRecord]:
        """The first record of each partition that was not handed out."""
        found: dict[TopicPartition, ConsumerRecord] = {}
        if self._current is not None:
            partition, records = self._current
            left = length_hint(self._iterator)
            if left:
                found[partition] = records[len(records) - left]
        for partition, records in self._ahead:
            found.setdefault(partition, records[0])
        return found

    def drop(self, partition: TopicPartition) -> None:
        """What is left of a partition is not wanted any more."""
        self._ahead = deque(each for each in self._ahead if each[0] != partition)
        if self._current is not None and self._current[0] == partition:
            # Whoever iterates over it finds its end.
            self._current[1].clear()
            self._current = None
