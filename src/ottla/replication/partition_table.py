"""All partitions that this broker leads, by topic name and by topic id."""

from collections.abc import Iterator
from uuid import UUID

from ottla.model.errors import UnknownPartitionError, UnknownTopicIdError
from ottla.replication.partition import Partition


class PartitionTable:
    """Partitions by name and index, or by id and index: what every produced and fetched part looks up."""

    __slots__ = ("_by_id", "_by_name")

    def __init__(self) -> None:
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition; the topic by its name, or by its id as 16 bytes. Raises if it is not here."""
        try:
            return (self._by_id if isinstance(topic, bytes) else self._by_name)[topic][index]  # type: ignore[index]
        except KeyError:
            if isinstance(topic, bytes):
                if topic in self._by_id:
                    raise UnknownPartitionError(f"topic id {UUID(bytes=topic)} has no partition {index}") from None
                raise UnknownTopicIdError(f"no topic has the id {UUID(bytes=topic)}") from None
            raise UnknownPartitionError(f"there is no partition {index} of a topic {topic!r} here") from None

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if it is here."""
        return self._by_name.get(topic, {}).get(index)

    def of_topic(self, topic: str) -> list[Partition]:
        """Those of one topic that are here, by index."""
        partitions = self._by_name.get(topic, {})
        return [partitions[index] for index in sorted(partitions)]

    def add(self, partition: Partition) -> None:
        """From now on it can be found."""
        by_index = self._by_name.setdefault(partition.topic, {})
        by_index[partition.index] = partition
        self._by_id[partition.topic_id.bytes] = by_index

    def remove(self, partition: Partition) -> None:
        """It is no longer here."""
        by_index = self._by_name[partition.topic]
        del by_index[partition.index]
        if not by_index:
            del self._by_name[partition.topic], self._by_id[partition.topic_id.bytes]
