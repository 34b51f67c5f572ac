"""The partitions of this broker: those that it leads, by topic name and by topic id, and all that it has a copy of."""

from collections.abc import Callable, Iterator
from uuid import UUID

from ottla.model.errors import NotLeaderError, UnknownPartitionError, UnknownTopicIdError
from ottla.model.ids import TopicPartition
from ottla.replication.partition import Partition


class PartitionTable:
    """Partitions by name and index, or by id and index: what every produced and fetched part looks up.

    Whatever does not say otherwise is about the partitions that are led here. `is_elsewhere` says whether the cluster
    has a partition that is not, and raises the reason if this broker should lead it and cannot.
    """

    __slots__ = ("_by_id", "_by_name", "_is_elsewhere", "held")

    def __init__(self, is_elsewhere: Callable[[str | bytes, int], bool] = lambda topic, index: False) -> None:
        self.held: dict[TopicPartition, Partition] = {}
        """All that have a log here, led or copied."""
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}
        self._is_elsewhere = is_elsewhere

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition; the topic by its name, or by its id as 16 bytes. Raises if it is not led here."""
        try:
            return (self._by_id if isinstance(topic, bytes) else self._by_name)[topic][index]  # type: ignore[index]
        except KeyError:
            shown = UUID(bytes=topic) if isinstance(topic, bytes) else topic
            if self._is_elsewhere(topic, index):
                raise NotLeaderError(f"{shown}-{index} is not led here; refresh the metadata") from None
            if isinstance(topic, bytes):
                if topic in self._by_id:
                    raise UnknownPartitionError(f"topic id {shown} has no partition {index}") from None
                raise UnknownTopicIdError(f"no topic has the id {shown}") from None
            raise UnknownPartitionError(f"there is no partition {index} of a topic {topic!r} here") from None

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if it is here."""
        return self._by_name.get(topic, {}).get(index)

    def of_topic(self, topic: str) -> list[Partition]:
        """Those of one topic that are here, by index."""
        partitions = self._by_name.get(topic, {})
        return [partitions[index] for index in sorted(partitions)]

    def add(self, partition: Partition) -> None:
        """Its log is here from now on; whether it is led here is said by `refresh`."""
        self.held[TopicPartition(partition.topic, partition.index)] = partition
        self.refresh(partition)

    def refresh(self, partition: Partition) -> None:
        """From now on it is found, if it is led here, or no longer."""
        if partition.leader is not None:
            by_index = self._by_name.setdefault(partition.topic, {})
            by_index[partition.index] = partition
            self._by_id[partition.topic_id.bytes] = by_index
        else:
            self._hide(partition)

    def remove(self, partition: Partition) -> None:
        """It is no longer here."""
        del self.held[TopicPartition(partition.topic, partition.index)]
        self._hide(partition)

    def _hide(self, partition: Partition) -> None:
        by_index = self._by_name.get(partition.topic)
        if by_index is None or by_index.pop(partition.index, None) is None:
            return
        if not by_index:
            del self._by_name[partition.topic], self._by_id[partition.topic_id.bytes]
