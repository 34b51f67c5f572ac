"""Assembles the queues of a broker: which topics are companions, and what kind of queue each is, comes from configs."""

from collections.abc import Awaitable, Callable
from typing import Final

from ottla.broker.configs.config_view import ConfigView
from ottla.controller.companions_state import dead_letter_cycle
from ottla.env.ports import Clock
from ottla.env.world import World
from ottla.metadata.configs.queue_settings import QueueSettings
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.dead_letters import DeadLetterHeaders, dead_letter_partition
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.queue_names import CompanionKind, dead_letter_topic
from ottla.queues.dead_letters import DeadLetterPlace
from ottla.queues.kinds.delay_queue import DelayQueue
from ottla.queues.kinds.expiry_queue import ExpiryMark, ExpiryQueue
from ottla.queues.kinds.half_queue import HalfQueue, HalfSettings
from ottla.queues.kinds.kind import Kind
from ottla.queues.kinds.retry_queue import RetryQueue, group_of
from ottla.queues.queue_shards import Mark, QueueShards
from ottla.queues.sinks import Sinks
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers


def build_queues(
    world: World,
    timers: Timers,
    partitions: PartitionTable,
    configs: ConfigView,
    *,
    sinks: Sinks,
    image: Callable[[], ClusterImage],
    next_producer_id: Callable[[], Awaitable[ProducerId]],
) -> QueueShards:
    """The queues without any shard; they start theirs when they are told of an image."""
    companions = _Companions(configs, image, world.clock)
    return QueueShards(
        partitions,
        sinks,
        image=image,
        clock=world.clock,
        disk=world.disk,
        timers=timers,
        next_producer_id=next_producer_id,
        mark_of=companions.mark_of,
        make_kind=companions.make_kind,
        batch_bytes_max=companions.batch_bytes_max,
    )


class _Companions:
    """What the configs say about companions."""

    def __init__(self, configs: ConfigView, image: Callable[[], ClusterImage], clock: Clock) -> None:
        self._configs = configs
        self._image = image
        self._clock = clock

    def mark_of(self, topic: TopicImage) -> Mark | None:
        """The mark of a companion that parks records, or of a topic with a TTL."""
        if not topic.configs:
            return None
        queue = self._configs.settings_of(topic.configs).queue
        if queue is None:
            return None
        if queue.has_ttl:
            # The controller refuses a cycle, but cannot see one in two changes that are made at the same time.
            is_cycle = dead_letter_cycle(self._image().topics, topic.name, queue)
            return ExpiryMark(topic.name, queue.ttl_ms, "" if is_cycle else queue.dead_letter_name)
        mark = queue.companion
        return mark if mark is not None and mark.kind in _KINDS else None

    def make_kind(self, mark: Mark, name: TopicPartition) -> Kind:
        """The queue on one partition of a companion, or of a topic with a TTL."""
        target = TopicPartition(mark.topic, name.partition)
        if isinstance(mark, ExpiryMark):
            place = (lambda: self.dead_letters_of(target)) if mark.dead_letters else None
            return ExpiryQueue(target, mark.ttl_ms, place, since=self._clock.now_ms())
        return _KINDS[mark.kind](self, name.topic, target)

    def settings_of(self, topic: str) -> QueueSettings | None:
        """The queue settings of a topic; None if it does not exist or has no queues."""
        found = self._image().topics.get(topic)
        return self._configs.settings_of(found.configs).queue if found is not None else None

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; 0 if it does not exist."""
        found = self._image().topics.get(topic)
        return len(found.partitions) if found is not None else 0

    def dead_letters_of(self, target: TopicPartition) -> DeadLetterPlace:
        """Where the dead letters of a partition go."""
        queue = self.settings_of(target.topic)
        name = queue.dead_letters_of(target.topic) if queue is not None else dead_letter_topic(target.topic)
        sink = self._image().topics.get(name)
        count = len(sink.partitions) if sink is not None else 0
        headers = DeadLetterHeaders.SPRING if queue is not None and queue.has_spring_headers else _KIP1191
        return DeadLetterPlace(
            TopicPartition(name, dead_letter_partition(target.partition, count) if count else target.partition), headers
        )

    def batch_bytes_max(self, topic: str) -> int:
        """The size limit of batches of a topic; the default if it does not exist."""
        found = self._image().topics.get(topic)
        return self._configs.settings_of(found.configs if found is not None else {}).log.batch_bytes_max


_KIP1191: Final = DeadLetterHeaders.KIP1191


def _delayed(companions: _Companions, _: str, target: TopicPartition) -> Kind:
    return DelayQueue(target, lambda: companions.dead_letters_of(target))


def _retry(companions: _Companions, name: str, target: TopicPartition) -> Kind:
    def keeps_key_order() -> bool:
        settings = companions.settings_of(target.topic)
        return settings is not None and settings.retry_keeps_key_order

    group = group_of(name, target.topic)
    return RetryQueue(target, group, lambda: companions.dead_letters_of(target), keeps_key_order)


def _half(companions: _Companions, _: str, target: TopicPartition) -> Kind:
    def settings() -> HalfSettings:
        # Without any queue enabled, a topic has no settings for them.
        queue = companions.settings_of(target.topic) or QueueSettings()
        return HalfSettings(
            check_interval_ms=queue.half_check_interval_ms,
            check_max=queue.half_check_max,
            partitions=max(1, companions.partitions_of(target.topic)),
        )

    return HalfQueue(target, lambda: companions.dead_letters_of(target), settings)


_KINDS: Final[dict[CompanionKind, Callable[[_Companions, str, TopicPartition], Kind]]] = {
    CompanionKind.DELAYED: _delayed,
    CompanionKind.RETRY: _retry,
    CompanionKind.HALF: _half,
}
"""The kinds of queues that are built."""
