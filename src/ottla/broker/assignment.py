"""Makes this broker hold what the cluster's image assigns to it: logs and partitions come, change and go.

The image says what should be; the folders say what is. At the start and after a crash both are compared: a folder of a
topic that was deleted meanwhile, or of an older topic of that name, goes; a partition without a folder gets one.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.topic_settings import TopicSettings
from ottla.controller.topics_state import id_text
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.model.errors import OttlaError, UnknownPartitionError
from ottla.model.ids import TopicPartition
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

    async def apply(self, image: ClusterImage) -> None:
        """Makes what the image says true here."""
        gone = [
            name
            for name, known in self._topics.items()
            if name not in image.topics or image.topics[name].id != known.id
        ]
        if gone:
            await self._remove_topics(gone)
        for name, topic in image.topics.items():
            known = self._topics.get(name)
            if known is topic:
                continue
            await self._apply_topic(topic)
            self._topics[name] = topic

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

    async def _apply_topic(self, topic: TopicImage) -> None:
        broker = self._broker
        settings = broker.settings_of(topic.configs)
        for index, image in enumerate(topic.partitions):
            partition = broker.partitions.get(topic.name, index)
            if partition is not None:
                partition.on_image(image.isr, image.leader_epoch)
            elif broker.id in image.replicas:
                try:
                    self._add(topic, index, image, settings)
                except OttlaError as error:
                    _LOGGER.error("%s-%d cannot be served: %s", topic.name, index, error)
                await self._breathe()
        self._apply_settings(topic, settings)

    def _add(self, topic: TopicImage, index: int, image: PartitionImage, settings: TopicSettings) -> None:
        broker = self._broker
        name = TopicPartition(topic.name, index)
        if name in broker.store.offline:
            raise broker.store.offline[name]
        log = broker.store.find(name) or broker.store.create(name, id_text(topic.id))
        leader = LeaderState(
            broker.id,
            replicas=image.replicas,
            isr=image.isr,
            leader_epoch=image.leader_epoch,
            high_watermark=log.high_watermark,
        )
        broker.partitions.add(
            Partition(
                topic.name,
                index,
                topic.id,
                log,
                leader,
                min_insync_replicas=settings.min_insync_replicas,
                turn=broker.turn,
                clock=broker.clock,
            )
        )

    def _apply_settings(self, topic: TopicImage, settings: TopicSettings) -> None:
        for partition in self._broker.partitions.of_topic(topic.name):
            partition.min_insync_replicas = settings.min_insync_replicas
            partition.log.config = settings.log_of(TopicPartition(topic.name, partition.index))

    async def _remove_topics(self, names: list[str]) -> None:
        gone: list[TopicPartition] = []
        for name in names:
            for partition in self._broker.partitions.of_topic(name):
                self._broker.partitions.remove(partition)
                partition.fail_waiting(UnknownPartitionError(f"{name}-{partition.index} was deleted"))
                gone.append(TopicPartition(name, partition.index))
            self._topics.pop(name, None)
        try:
            await self._broker.store.delete_all(gone)
        except OttlaError as error:
            _LOGGER.error("of %d deleted partitions some are not removed completely: %s", len(gone), error)

    async def _breathe(self) -> None:
        self._breath += 1
        if self._breath % _PER_BREATH == 0:
            await asyncio.sleep(0)
