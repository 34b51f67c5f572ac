"""All groups that this broker coordinates: one shard for each partition of `__consumer_offsets` that it leads.

Tells the shards what they need to know of the world: topics that come, grow and go, and the broker's configs. What a
group's requests mean is in `ottla.coordination`, what they look like on the wire in `handlers/`.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinator_shards import CoordinatorShards
from ottla.controller.decisions import NewTopic
from ottla.coordination.runtime.shard import Shard
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.model.ids import LeaderEpoch
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.coordination.groups.consumer.group import Topics
    from ottla.coordination.groups.consumer_offsets_shard_state import ConsumerOffsetsShard

TOPIC: Final = "__consumer_offsets"

GroupsShard = Shard["ConsumerOffsetsShard"]


class GroupCoordinator:
    """See the module's docstring."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._shards: CoordinatorShards[ConsumerOffsetsShard] = CoordinatorShards(
            broker, TOPIC, self._make_shard, self._on_active, skips_corrupt=True
        )
        self._image = ClusterImage()
        self._topics: Topics | None = None
        """Those of the image as groups know them, once somebody has asked."""
        self._missed: dict[tuple[int, LeaderEpoch], list[str]] = {}
        """Topics that went while the shard of a partition, led in an epoch, was being loaded."""
        self.waiting_bytes = 0
        """Of joins and syncs that wait for other members, as their handlers count them."""

    def shards(self) -> list[GroupsShard]:
        """Those that are here, by partition; some may still be loading."""
        return self._shards.all()

    def shard_at(self, index: int) -> GroupsShard | None:
        """The shard of a partition of the topic, if it is here."""
        return self._shards.get(index)

    def shard_of(self, group_id: str) -> GroupsShard:
        """The shard of a group. Raises CoordinatorNotAvailableError or NotCoordinatorError."""
        return self._shards.of(group_id)

    def partition_of(self, group_id: str) -> int:
        """The partition of the topic that has a group. Raises CoordinatorNotAvailableError while there is none."""
        return self._shards.partition_of(group_id)

    async def find(self, group_id: str) -> BrokerImage:
        """The broker that coordinates a group; the first group ever makes the topic."""
        return await self._shards.find(group_id, self._new_topic)

    # Life

    def on_image(self, image: ClusterImage) -> None:
        """The cluster is this now, and what concerns this broker is true already."""
        before, self._image = self._image, image
        if image.topics is not before.topics:
            self._topics = None
        self._shards.refresh()
        if image.topics is before.topics or not self.shards():
            return
        topics = self._known_topics()
        gone = [
            name
            for name, known in before.topics.items()
            if name not in image.topics or image.topics[name].id != known.id
        ]
        if gone:
            loading = [_key(shard) for shard in self.shards() if not shard.is_active]
            self._missed = {key: [*self._missed.get(key, ()), *gone] for key in loading}
        for shard in self.shards():
            shard.tell(partial(shard.machine.on_metadata, topics))
            if gone:
                shard.tell(partial(shard.machine.on_topics_deleted, gone))

    def on_config(self) -> None:
        """An operator has changed configs of the broker."""
        if self.shards():
            from ottla.broker.coordinator_machines import configure_groups

            for shard in self.shards():
                configure_groups(shard.machine, self._broker.config)

    async def close(self) -> None:
        """Gives up every shard; who waits for a group is told to ask elsewhere."""
        await self._shards.close()

    def _make_shard(self, partition: Partition) -> GroupsShard:
        from ottla.broker.coordinator_machines import group_machine

        broker = self._broker
        machine = group_machine(broker.config, broker.world.random)
        return Shard(partition, machine, clock=broker.clock, disk=broker.world.disk, timers=broker.timers)

    def _on_active(self, shard: GroupsShard) -> None:
        """Topics may have gone while nobody looked, and others come under their names: their offsets are still in the
        log."""
        topics, missed = self._known_topics(), frozenset(self._missed.pop(_key(shard), ()))
        shard.tell(partial(shard.machine.on_metadata, topics))
        gone = [name for name in shard.machine.offsets.topics() if name not in topics or name in missed]
        if gone:
            shard.tell(partial(shard.machine.on_topics_deleted, gone))

    def _known_topics(self) -> "Topics":
        from ottla.broker.coordinator_machines import topics_of

        if self._topics is None:
            self._topics = topics_of(self._image)
        return self._topics

    def _new_topic(self, broker_count: int) -> NewTopic:
        config = self._broker.config
        return NewTopic(
            name=TOPIC,
            partition_count=config.offsets_topic_num_partitions,
            replication_factor=min(config.offsets_topic_replication_factor, broker_count),
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )


def _key(shard: GroupsShard) -> tuple[int, LeaderEpoch]:
    return shard.partition.index, shard.leader_epoch
