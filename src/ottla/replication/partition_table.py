"""The partitions of this broker: those that it leads, by topic name and topic id; all replicas; those not served."""

from collections.abc import Callable, Iterator
from uuid import UUID

from ottla.metadata.image import NO_LEADER, ClusterImage
from ottla.model.errors import NotLeaderError, OttlaError, StorageError, UnknownPartitionError, UnknownTopicIdError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.replication.partition import Partition


class PartitionTable:
    """Partitions by name and index, or by id and index: looked up for each partition of a Produce or Fetch request.

    Unless said otherwise, a method is about the partitions that this broker, `me`, leads. `image` says which others
    the cluster has.
    """

    __slots__ = ("_by_id", "_by_name", "_image", "_me", "held", "unserved")

    def __init__(self, me: BrokerId = NO_LEADER, image: Callable[[], ClusterImage] = ClusterImage) -> None:
        self._me = me
        self._image = image
        self.held: dict[TopicPartition, Partition] = {}
        """Partitions with a log here, led or followed."""
        self.unserved: dict[TopicPartition, OttlaError] = {}
        """Partitions assigned to this broker that have no log here, and why."""
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[bytes, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(map(len, self._by_name.values()))

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The partition; the topic by its name, or by its id as 16 bytes. Raises if this broker does not lead it."""
        try:
            return (self._by_id if isinstance(topic, bytes) else self._by_name)[topic][index]  # type: ignore[index]
        except KeyError:
            shown = UUID(bytes=topic) if isinstance(topic, bytes) else topic
            if self._is_elsewhere(topic, index):
                raise NotLeaderError(f"this broker does not lead {shown}-{index}; refresh the metadata") from None
            if isinstance(topic, bytes):
                if topic in self._by_id:
                    raise UnknownPartitionError(f"topic id {shown} has no partition {index}") from None
                raise UnknownTopicIdError(f"no topic has the id {shown}") from None
            raise UnknownPartitionError(f"this broker has no partition {index} of topic {topic!r}") from None

    def _is_elsewhere(self, topic: str | bytes, index: int) -> bool:
        """Whether another broker leads a partition. Raises StorageError if this broker should and cannot serve it."""
        image = self._image()
        found = image.topics_by_id.get(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return False
        reason = self.unserved.get(TopicPartition(found.name, index))
        if reason is not None and found.partitions[index].leader == self._me:
            raise StorageError(str(reason))
        return True

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if it is led here."""
        return self._by_name.get(topic, {}).get(index)

    def of_topic(self, topic: str) -> list[Partition]:
        """The partitions of a topic that are led here, by index."""
        partitions = self._by_name.get(topic, {})
        return [partitions[index] for index in sorted(partitions)]

    def add(self, partition: Partition) -> None:
        """Adds a partition whose log is here."""
        self.held[TopicPartition(partition.topic, partition.index)] = partition
        self.refresh(partition)

    def refresh(self, partition: Partition) -> None:
        """To be called when a partition became leader or follower: `find` finds those that are led here."""
        if partition.leader is not None:
            by_index = self._by_name.setdefault(partition.topic, {})
            by_index[partition.index] = partition
            self._by_id[partition.topic_id.bytes] = by_index
        else:
            self._hide(partition)

    def remove(self, partition: Partition) -> None:
        """Removes a partition whose log is no longer here."""
        del self.held[TopicPartition(partition.topic, partition.index)]
        self._hide(partition)

    def _hide(self, partition: Partition) -> None:
        by_index = self._by_name.get(partition.topic)
        if by_index is None or by_index.pop(partition.index, None) is None:
            return
        if not by_index:
            del self._by_name[partition.topic], self._by_id[partition.topic_id.bytes]
