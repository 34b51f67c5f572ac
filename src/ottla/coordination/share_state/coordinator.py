"""The share coordinator: one shard for each partition of `__share_group_state` that this broker leads.

What requests mean is decided by the shards' machines; `client.py` is how the rest of the broker reaches the shard of a
share-partition, here or on another broker.
"""

import logging
from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from ottla.coordination.runtime.coordinator_shards import CoordinatorShards
from ottla.coordination.runtime.internal_topic import InternalTopic
from ottla.coordination.runtime.shard import Shard
from ottla.env.ports import Clock, Disk
from ottla.metadata.image import ClusterImage
from ottla.model.errors import OttlaError
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers

if TYPE_CHECKING:
    # The machines are imported with the first shard: a broker without share groups starts faster without them.
    from ottla.coordination.groups.group_kind import Topics
    from ottla.coordination.share_state.shard_state import ShareStateShard

TOPIC: Final = "__share_group_state"

_LOGGER: Final = logging.getLogger(__name__)

ShareShard = Shard["ShareStateShard"]


class ShareCoordinator:
    """The shards of all share-partitions coordinated by this broker, and which broker coordinates one.

    `make_machine` builds the state machine of a shard. `has_other_replicas` says whether another in-sync replica can
    take over a partition: then a corrupt one is left to it.
    """

    def __init__(
        self,
        topic: InternalTopic,
        partitions: PartitionTable,
        *,
        clock: Clock,
        disk: Disk,
        timers: Timers,
        make_machine: "Callable[[], ShareStateShard]",
        has_other_replicas: Callable[[str, int], bool],
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._make_machine = make_machine
        self._shards: CoordinatorShards[ShareStateShard] = CoordinatorShards(
            topic,
            partitions,
            clock,
            self._make_shard,
            on_active=self._on_active,
            serves_without_corrupt_batches=lambda found: not has_other_replicas(found.topic, found.index),
        )
        self.shards: Final = self._shards.all
        self.shard_of: Final = self._shards.of
        self.find: Final = topic.find
        self._image = ClusterImage()
        self._topics: Topics | None = None
        """The image's topics as the machines know them; computed when first needed."""

    def on_image(self, image: ClusterImage) -> None:
        """The image has changed, and this broker's partitions match it already."""
        before, self._image = self._image, image
        if image.topics is not before.topics:
            self._topics = None
        self._shards.refresh()
        if image.topics is not before.topics:
            for shard in self.shards():
                shard.tell(partial(shard.machine.on_metadata, self._known_topics()))

    async def close(self) -> None:
        """Unloads every shard."""
        await self._shards.close()

    def _make_shard(self, partition: Partition) -> ShareShard:
        machine = self._make_machine()
        return Shard(
            partition,
            machine,
            clock=self._clock,
            disk=self._disk,
            timers=self._timers,
            perform=partial(self._prune, partition),
            before_replay=machine.before_replay,
        )

    def _on_active(self, shard: ShareShard) -> None:
        shard.tell(partial(shard.machine.on_metadata, self._known_topics()))

    def _prune(self, partition: Partition, effect: Any) -> None:
        try:
            partition.delete_records(effect.before)
        except OttlaError as error:
            # Tried again later; it only takes space.
            _LOGGER.warning("%s-%d: cannot prune old share-group state: %s", partition.topic, partition.index, error)

    def _known_topics(self) -> "Topics":
        from ottla.coordination.groups.group_kind import Topic

        if self._topics is None:
            topics = self._image.topics
            self._topics = MappingProxyType(
                {name: Topic(topic.id, len(topic.partitions)) for name, topic in topics.items()}
            )
        return self._topics
