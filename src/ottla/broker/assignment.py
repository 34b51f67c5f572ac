"""Makes this broker hold what the cluster's image assigns to it: logs and partitions come, change and go.

The image says what should be; the folders say what is. At the start and after a crash both are compared: a folder of a
topic that was deleted meanwhile, or of an older topic of that name, goes; a partition without a folder gets one.

The image also says who leads. A broker leads a partition with other replicas only if it was given that after its
present registration: what an earlier life of it was told, the controller may have told another one since. Until it is
told anew, it waits. A partition that has no other replica is its own in every life.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.topic_settings import TopicSettings
from ottla.controller.topics_state import id_text
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import partition_key, topic_key
from ottla.model.errors import NotLeaderError, OttlaError, StorageError, UnknownPartitionError
from ottla.model.ids import TopicPartition
from ottla.replication.follower_state import FollowerState
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

_PER_BREATH: Final = 50
"""After so many partitions the event loop may do something else."""


class Assignment:
    """The broker's side of the image; `apply` may be called again after any failure."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._topics: dict[str, TopicImage] = {}
        """As they were last applied."""
        self._breath = 0
        self._turn = asyncio.Lock()

    async def apply(self, image: ClusterImage) -> None:
        """Makes what the image says true here."""
        async with self._turn:
            await self._apply(image)

    async def bring_back(self, name: TopicPartition) -> None:
        """Serves a partition that could not be opened, now that its folder is out of the way. Raises StorageError."""
        async with self._turn:
            broker = self._broker
            topic = broker.image.topics.get(name.topic)
            wanted = topic.partitions[name.partition] if topic and name.partition < len(topic.partitions) else None
            if topic is None or wanted is None or broker.id not in wanted.replicas or name in broker.partitions.held:
                return
            partition = self._add(topic, name, broker.settings_of(topic.configs))
            self._apply_role(partition, wanted, broker.image.revision_of(partition_key(*name)))

    async def _apply(self, image: ClusterImage) -> None:
        gone = [
            name
            for name, known in self._topics.items()
            if name not in image.topics or image.topics[name].id != known.id
        ]
        if gone:
            await self._remove_topics(gone)
        applied, is_newer = self._broker.store.applied_revision or 0, False
        for name, topic in image.topics.items():
            known = self._topics.get(name)
            if known is topic:
                continue
            await self._apply_topic(topic, image)
            self._topics[name] = topic
            is_newer = is_newer or image.revision_of(topic_key(name)) > applied
        if is_newer:
            self._broker.store.note_applied(image.revision)

    def settings_changed(self) -> None:
        """The broker's own configs changed, and with them the defaults of every topic."""
        for topic in self._topics.values():
            self._apply_settings(topic, self._broker.settings_of(topic.configs))

    def remove_strays(self, image: ClusterImage) -> None:
        """At the start: folders of topics that the image does not have, or has under another id, go.

        One without an id gets its topic's: a crash may have cut off its making. Records under another id are set aside.
        """
        for log in list(self._broker.store):
            topic = image.topics.get(log.partition.topic)
            folder_id = self._broker.store.topic_id(log.partition)
            if topic is not None and log.partition.partition < len(topic.partitions):
                if folder_id is None:
                    self._broker.store.set_topic_id(log.partition, id_text(topic.id))
                    continue
                if folder_id == id_text(topic.id):
                    continue
                if log.end_offset > log.start_offset:
                    # An older topic of that name, or a damaged id: too much is at stake to guess.
                    kept = self._broker.store.set_aside(log.partition)
                    _LOGGER.error(
                        "%s has the id %s, its topic %s: its records are kept in %s, and a new log begins; to serve"
                        " them, correct partition.metadata there and give the folder its name back, while stopped",
                        log.partition,
                        folder_id,
                        id_text(topic.id),
                        kept,
                    )
                    continue
            _LOGGER.warning(
                "%s belongs to a topic that was deleted (id %s); it is removed", log.partition, folder_id or "unknown"
            )
            self._broker.store.delete(log.partition)

    async def _apply_topic(self, topic: TopicImage, image: ClusterImage) -> None:
        broker = self._broker
        settings = broker.settings_of(topic.configs)
        for index, wanted in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            partition = broker.partitions.held.get(name)
            if broker.id not in wanted.replicas:
                if partition is not None:
                    await self._remove([partition], NotLeaderError, "was moved to other brokers")
                continue
            if partition is None and broker.lost_logs.is_pending(name, image.revision):
                continue
            if partition is None:
                try:
                    partition = self._add(topic, name, settings)
                except OttlaError as error:
                    _LOGGER.error("partition %s cannot be served: %s", name, error)
                    continue
                await self._breathe()
            self._apply_role(partition, wanted, image.revision_of(partition_key(*name)))
            broker.lost_logs.on_record(name, wanted, image.revision)
        self._apply_settings(topic, settings)

    def _add(self, topic: TopicImage, name: TopicPartition, settings: TopicSettings) -> Partition:
        broker = self._broker
        if name in broker.store.offline:
            raise broker.store.offline[name]
        log = broker.store.find(name)
        if log is None:
            wanted = topic.partitions[name.partition]
            reason = broker.lost_logs.reason_held_back(name, wanted)
            if reason is not None:
                raise StorageError(reason)
            start = broker.lost_logs.start_of_new_log(name, wanted)
            log = broker.store.create(name, id_text(topic.id), start_offset=start)
        partition = Partition(
            topic.name,
            name.partition,
            topic.id,
            log,
            min_insync_replicas=settings.min_insync_replicas,
            turn=broker.turn,
            clock=broker.clock,
        )
        broker.partitions.add(partition)
        return partition

    def _apply_role(self, partition: Partition, wanted: PartitionImage, revision: int) -> None:
        broker = self._broker
        if wanted.leader != broker.id or not (wanted.replicas == (broker.id,) or broker.may_lead_since(revision)):
            follower = partition.follower
            if follower is None or (follower.leader, follower.leader_epoch) != (wanted.leader, wanted.leader_epoch):
                partition.become_follower(FollowerState(wanted.leader, wanted.leader_epoch))
                broker.partitions.refresh(partition)
        elif partition.leader is None or partition.leader_epoch != wanted.leader_epoch:
            partition.become_leader(
                LeaderState(
                    broker.id,
                    replicas=wanted.replicas,
                    isr=wanted.isr,
                    leader_epoch=wanted.leader_epoch,
                    eligible=wanted.eligible,
                    high_watermark=partition.high_watermark,
                    epoch_start=partition.end_offset,
                    now=broker.clock.monotonic(),
                )
            )
            broker.partitions.refresh(partition)
        else:
            partition.on_isr(wanted.replicas, wanted.isr, wanted.eligible)

    def resign(self) -> None:
        """The broker's registration is lost: whatever another one may lead by now is no longer led here."""
        for partition in list(self._broker.partitions):
            if partition.leader is not None and len(partition.leader.replicas) > 1:
                partition.become_follower(FollowerState(NO_LEADER, partition.leader_epoch))
                self._broker.partitions.refresh(partition)

    def _apply_settings(self, topic: TopicImage, settings: TopicSettings) -> None:
        for index in range(len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            partition = self._broker.partitions.held.get(name)
            if partition is not None:
                partition.on_min_insync_replicas(settings.min_insync_replicas)
                partition.log.config = settings.log_of(name)

    async def _remove_topics(self, names: list[str]) -> None:
        gone = set(names)
        partitions = [each for each in self._broker.partitions.held.values() if each.topic in gone]
        await self._remove(partitions, UnknownPartitionError, "was deleted")
        self._broker.lost_logs.forget(gone)
        for name in names:
            self._topics.pop(name, None)

    async def _remove(self, partitions: list[Partition], kind: type[OttlaError], what: str) -> None:
        for partition in partitions:
            self._broker.partitions.remove(partition)
            partition.fail_waiting(kind(f"{partition.topic}-{partition.index} {what}"))
        try:
            await self._broker.store.delete_all([TopicPartition(each.topic, each.index) for each in partitions])
        except OttlaError as error:
            _LOGGER.error("of %d partitions that went some are not removed completely: %s", len(partitions), error)

    async def _breathe(self) -> None:
        self._breath += 1
        if self._breath % _PER_BREATH == 0:
            await asyncio.sleep(0)
