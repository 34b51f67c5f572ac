"""The partition queues of a topic, and the choice of a partition for a record.

Pure. `sender.py` updates the routes from metadata; every `send` reads them.
"""

from collections.abc import Callable
from uuid import UUID

from ottla.client.network.cluster_view import TopicView
from ottla.client.producer.batching.partition_queue_state import PartitionQueue
from ottla.client.producer.partitioner import Partitioner
from ottla.env.ports import Random
from ottla.model.buffer import Buffer
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.records.murmur2 import partition_for_key


class TopicRoutes:
    """The queues of one topic by partition, kept for the life of the producer."""

    __slots__ = (
        "_random",
        "_sticky",
        "_sticky_bytes_left",
        "_sticky_size",
        "all",
        "available",
        "name",
        "queues",
        "topic_id",
    )

    def __init__(self, name: str, random: Random, sticky_size: int) -> None:
        self.name = name
        self.topic_id: UUID | None = None
        self.queues: list[PartitionQueue] = []
        self.all: list[int] = []
        self.available: list[int] = []
        """The partitions that have a leader."""
        self._random = random
        self._sticky = -1
        self._sticky_size = max(sticky_size, 1)
        self._sticky_bytes_left = self._sticky_size

    def update(self, view: TopicView, queue_of: Callable[[TopicPartition], PartitionQueue]) -> None:
        """Takes over leaders from metadata, except for older leader epochs."""
        is_same = self.topic_id is None or view.id is None or view.id == self.topic_id
        self.topic_id = view.id
        for partition in view.partitions[len(self.queues) :]:
            self.queues.append(queue_of(TopicPartition(self.name, partition.index)))
        for queue, partition in zip(self.queues, view.partitions, strict=False):
            if not is_same or partition.leader_epoch >= queue.leader_epoch or partition.leader_epoch < 0:
                queue.leader, queue.leader_epoch = partition.leader, partition.leader_epoch
        self.all = list(range(len(self.queues)))
        self.available = [index for index in self.all if self.queues[index].leader is not None]

    def choose(self, key: Buffer | None, size: int) -> PartitionQueue:
        """The queue for a record of about `size` bytes: by its key, else that of the sticky partition."""
        queues = self.queues
        if len(queues) == 1:
            return queues[0]
        if key is not None:
            return queues[partition_for_key(key, len(queues))]
        self._sticky_bytes_left -= size
        if self._sticky_bytes_left < 0 or self._sticky < 0:
            self._move_on(size)
        return queues[self._sticky]

    def choose_by(self, partitioner: Partitioner, key: bytes | None) -> PartitionQueue:
        """The queue that a custom partitioner chooses. Raises `MisuseError` if the partition does not exist."""
        try:
            index = partitioner(key, self.all, self.available)
        except Exception as error:
            raise MisuseError(f"the partitioner failed for topic {self.name}: {error!r}") from error
        if not isinstance(index, int) or not 0 <= index < len(self.queues):
            raise MisuseError(
                f"the partitioner returned {index!r} for topic {self.name} with partitions 0 to {len(self.all) - 1}"
            )
        return self.queues[index]

    def _move_on(self, size: int) -> None:
        """Chooses another sticky partition, if possible one with a leader, and closes the batch of the last one."""
        if self._sticky >= 0:
            left = self.queues[self._sticky]
            if left.batches:
                left.batches[-1].is_closed = True
        choice = [index for index in self.available if index != self._sticky] or self.available or self.all
        self._sticky = choice[self._random.randrange(len(choice))]
        self._sticky_bytes_left = self._sticky_size - size
