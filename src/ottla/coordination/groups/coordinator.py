"""The group coordinator: one shard for each partition of `__consumer_offsets` that this broker leads.

Tells the shards about topics that are created, grow and are deleted, and about changed configs. What a group's requests
mean is decided by the shards' machines, the wire format is in `broker/handlers/`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from ottla.coordination.groups.gathered_joins import GatheredJoins
from ottla.coordination.runtime.coordinator_shards import CoordinatorShards
from ottla.coordination.runtime.internal_topic import InternalTopic
from ottla.coordination.runtime.shard import Shard
from ottla.env.ports import Clock, Disk
from ottla.metadata.image import ClusterImage
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import LeaderEpoch
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers

if TYPE_CHECKING:
    # The machines are imported with the first shard: a broker without groups starts faster without them.
    from ottla.coordination.groups.group_kind import Topics
    from ottla.coordination.groups.group_shard_state import GroupShard
    from ottla.coordination.groups.share.requests import ShareEffect

TOPIC: Final = "__consumer_offsets"

GroupsShard = Shard["GroupShard"]


class ShareStateClient(Protocol):
    """The share coordinator as share groups see it. Neither method raises: each share-partition has its error."""

    def initialize(
        self, group_id: str, state_epoch: int, offsets: Mapping[UUID, Mapping[int, int]], /
    ) -> Awaitable[Mapping[UUID, Mapping[int, ErrorCode]]]:
        """Initializes share-partitions, each at a start offset, or -1 if the first leader is to choose it."""

    def delete(
        self, group_id: str, partitions: Mapping[UUID, tuple[int, ...]], /
    ) -> Awaitable[Mapping[UUID, Mapping[int, ErrorCode]]]:
        """Deletes the state of share-partitions."""


class GroupCoordinator:
    """The shards of all groups coordinated by this broker, and which broker coordinates a group.

    `make_machine` builds the state machine of a shard, `configure` gives it the current configs. `has_other_replicas`
    says whether another in-sync replica can take over a partition: then a corrupt one is left to it.
    """

    def __init__(
        self,
        topic: InternalTopic,
        partitions: PartitionTable,
        *,
        clock: Clock,
        disk: Disk,
        timers: Timers,
        make_machine: "Callable[[], GroupShard]",
        configure: "Callable[[GroupShard], None]",
        has_other_replicas: Callable[[str, int], bool],
        share_state: ShareStateClient,
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._make_machine = make_machine
        self._configure = configure
        self._share_state = share_state
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._shards: CoordinatorShards[GroupShard] = CoordinatorShards(
            topic,
            partitions,
            clock,
            self._make_shard,
            on_active=self._on_active,
            serves_without_corrupt_batches=lambda found: not has_other_replicas(found.topic, found.index),
        )
        self.shards: Final = self._shards.all
        self.shard_at: Final = self._shards.get
        self.shard_of: Final = self._shards.of
        self.partition_of: Final = topic.partition_of
        self.find: Final = topic.find
        self._image = ClusterImage()
        self._topics: Topics | None = None
        """The image's topics as the machines know them; computed when first needed."""
        self._missed: dict[tuple[int, LeaderEpoch], list[str]] = {}
        """Topics deleted while the shard of a partition, led in an epoch, was being loaded."""
        self.joins: Final = GatheredJoins()
        """The joins of consumer groups that wait for others."""
        self.waiting_bytes = 0
        """Size of the JoinGroup and SyncGroup requests that wait for other members, counted by their handlers."""

    # Life

    def on_image(self, image: ClusterImage) -> None:
        """The image has changed, and this broker's partitions match it already."""
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
        """A broker config has changed."""
        for shard in self.shards():
            self._configure(shard.machine)

    async def close(self) -> None:
        """Unloads every shard; waiting requests are answered NOT_COORDINATOR."""
        await self._shards.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _make_shard(self, partition: Partition) -> GroupsShard:
        shard: GroupsShard = Shard(
            partition,
            self._make_machine(),
            clock=self._clock,
            disk=self._disk,
            timers=self._timers,
            perform=lambda effect: self._perform(shard, effect),
            leave_out=lambda effect: shard.carry_out(shard.machine.shares.on_effect_failed(effect)),
        )
        return shard

    # What shards ask for

    def _perform(self, shard: GroupsShard, effect: Any) -> None:
        """Share groups ask the share coordinator, which may be on another broker."""
        task = asyncio.get_running_loop().create_task(self._ask_share_coordinator(shard, effect))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _ask_share_coordinator(self, shard: GroupsShard, effect: "ShareEffect") -> None:
        from ottla.coordination.groups.share.requests import AlterShareState, DeleteShareState, InitializeShareState

        shares = shard.machine.shares
        match effect:
            case InitializeShareState():
                offsets = {topic_id: dict.fromkeys(each, -1) for topic_id, each in effect.topics.items()}
                outcomes = await self._share_state.initialize(effect.group_id, effect.state_epoch, offsets)
                shard.tell(lambda now_ms: shares.on_state_initialized(effect.group_id, outcomes))
            case AlterShareState():
                outcomes = await self._share_state.initialize(effect.group_id, effect.state_epoch, effect.offsets)
                # A shard that was unloaded meanwhile must not write, but answers.
                is_active, now_ms = shard.is_active, shard.now_ms()
                altered = shares.on_state_altered(effect, outcomes, now_ms) if is_active else None
                shard.carry_out(shares.on_effect_failed(effect) if altered is None else altered)
            case DeleteShareState():
                outcomes = await self._share_state.delete(effect.group_id, effect.topics)
                deleted = shares.on_state_deleted(effect, outcomes) if shard.is_active else None
                shard.carry_out(shares.on_effect_failed(effect) if deleted is None else deleted)

    def _on_active(self, shard: GroupsShard) -> None:
        """Deletes offsets of topics that were deleted, or deleted and created again, while the shard was not active."""
        topics, missed = self._known_topics(), frozenset(self._missed.pop(_key(shard), ()))
        shard.tell(partial(shard.machine.on_metadata, topics))
        gone = [name for name in shard.machine.offsets.topics() if name not in topics or name in missed]
        if gone:
            shard.tell(partial(shard.machine.on_topics_deleted, gone))

    def _known_topics(self) -> "Topics":
        from ottla.coordination.groups.group_kind import Topic

        if self._topics is None:
            topics = self._image.topics
            self._topics = MappingProxyType(
                {name: Topic(topic.id, len(topic.partitions), topic.is_parking) for name, topic in topics.items()}
            )
        return self._topics


def _key(shard: GroupsShard) -> tuple[int, LeaderEpoch]:
    return shard.partition.index, shard.leader_epoch
