"""The records of a poll, handed out one by one by `for record in consumer`, without a cost per record. Pure.

A commit must leave out records that were polled and not yet handed out. Instead of counting them, this asks the list's
iterator how many it has left when a commit needs it.
"""

from collections import deque
from collections.abc import Iterator
from operator import length_hint

from ottla.client.fetch.fetch_plan_state import Records
from ottla.client.values import ConsumerRecord
from ottla.model.ids import TopicPartition


class RecordStream:
    """The records that were polled and not yet handed out, partition by partition."""

    def __init__(self) -> None:
        self._ahead: deque[tuple[TopicPartition, list[ConsumerRecord]]] = deque()
        self._current: tuple[TopicPartition, list[ConsumerRecord]] | None = None
        self._iterator: Iterator[ConsumerRecord] = iter(())

    def feed(self, records: Records) -> None:
        """Appends the records of another poll."""
        self._ahead.extend(records.items())

    def some(self) -> Iterator[ConsumerRecord] | None:
        """An iterator over the rest of the current partition, or over the next one; None if nothing is left."""
        while not length_hint(self._iterator):
            if not self._ahead:
                self._current = None
                return None
            self._current = self._ahead.popleft()
            self._iterator = iter(self._current[1])
        return self._iterator

    def take(self) -> Records:
        """All records that are left, at once."""
        found: Records = {}
        while (some := self.some()) is not None and self._current is not None:
            found.setdefault(self._current[0], []).extend(some)
        return found

    def undelivered(self) -> dict[TopicPartition, ConsumerRecord]:
        """The first record of each partition that was not handed out yet."""
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
        """Drops the records of a partition."""
        self._ahead = deque(each for each in self._ahead if each[0] != partition)
        if self._current is not None and self._current[0] == partition:
            # An iteration that is under way then ends.
            self._current[1].clear()
            self._current = None
