"""The queue shards of this broker: one for each partition of a parking companion, or of a topic with a TTL, that is led
here.

Loaded when a partition is led here, closed when it is not. Also watches the wall clock: records are due by it, and
timers run by the monotonic clock, so that a clock that was set wakes every shard.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from ottla.env.ports import Clock, Disk
from ottla.metadata.configs.queue_settings import CompanionMark
from ottla.metadata.image import ClusterImage, TopicImage
from ottla.model.ids import ProducerId, TopicPartition
from ottla.queues.kinds.expiry_queue import ExpiryMark
from ottla.queues.kinds.kind import Kind
from ottla.queues.queue_shard import QueueCounts, QueueShard
from ottla.queues.sinks import Sinks
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from ottla.replication.timers import Timers

_LOGGER: Final = logging.getLogger(__name__)

Mark = CompanionMark | ExpiryMark
"""Why a topic has shards."""

CLOCK_CHECK_MS: Final = 500
"""How often the wall clock is compared with the monotonic clock, while there are shards."""
_CLOCK_SET_MS: Final = 10
"""Less is reading inaccuracy."""


class QueueShards:
    """`mark_of` says whether a topic has shards and what for, and `make_kind` makes the queue of a partition.

    `batch_bytes_max` is the size limit of batches of a topic.
    """

    def __init__(
        self,
        partitions: PartitionTable,
        sinks: Sinks,
        *,
        image: Callable[[], ClusterImage],
        clock: Clock,
        disk: Disk,
        timers: Timers,
        next_producer_id: Callable[[], Awaitable[ProducerId]],
        mark_of: Callable[[TopicImage], Mark | None],
        make_kind: Callable[[Mark, TopicPartition], Kind],
        batch_bytes_max: Callable[[str], int],
    ) -> None:
        self._partitions = partitions
        self._sinks = sinks
        self._image = image
        self._clock = clock
        self._disk = disk
        self._timers = timers
        self._next_producer_id = next_producer_id
        self._mark_of = mark_of
        self._make_kind = make_kind
        self._batch_bytes_max = batch_bytes_max
        self._shards: dict[TopicPartition, QueueShard] = {}
        self._marks: dict[TopicPartition, Mark] = {}
        """What each shard was made for."""
        self._past: dict[tuple[str, str], QueueCounts] = {}
        """What shards have done that are closed."""
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self._is_watching = False
        self._lead_ms = self._wall_lead_ms()

    def __iter__(self) -> Iterator[QueueShard]:
        return iter(self._shards.values())

    def get(self, name: TopicPartition) -> QueueShard | None:
        """The shard of a companion's partition, if it is led here."""
        return self._shards.get(name)

    def totals(self) -> dict[tuple[str, str], QueueCounts]:
        """What was done for each kind and companion topic since the broker started."""
        totals: dict[tuple[str, str], QueueCounts] = {}
        for key, counts in self._past.items():
            totals.setdefault(key, QueueCounts()).add(counts)
        for shard in self._shards.values():
            totals.setdefault((shard.kind.name, shard.name.topic), QueueCounts()).add(shard.counts)
        return totals

    def on_image(self, image: ClusterImage) -> None:
        """Starts shards of partitions that this broker leads now, and closes those of others."""
        if self._is_closed:
            return
        led: dict[TopicPartition, tuple[Partition, Mark]] = {}
        for topic in image.topics.values():
            mark = self._mark_of(topic)
            if mark is not None:
                for partition in self._partitions.of_topic(topic.name):
                    led[TopicPartition(topic.name, partition.index)] = (partition, mark)
        for name, shard in list(self._shards.items()):
            found = led.get(name)
            if (
                found is None
                or found[0] is not shard.partition
                or found[0].leader_epoch != shard.leader_epoch
                or found[1] != self._marks[name]
            ):
                self._close(name)
        for name, (partition, mark) in led.items():
            known = self._shards.get(name)
            if known is None:
                self._start(name, partition, mark)
            else:
                known.wake()  # The target may have grown.

    def _start(self, name: TopicPartition, partition: Partition, mark: Mark) -> None:
        def target_partitions() -> int:
            if isinstance(mark, ExpiryMark):
                return 0
            target = self._image().topics.get(mark.topic)
            return len(target.partitions) if target is not None else 0

        self._marks[name] = mark
        shard = self._shards[name] = QueueShard(
            partition,
            self._sinks,
            make_kind=lambda: self._make_kind(mark, name),
            clock=self._clock,
            disk=self._disk,
            timers=self._timers,
            next_producer_id=self._next_producer_id,
            target_partitions=target_partitions,
            batch_bytes_max=self._batch_bytes_max,
            is_led=lambda: self._partitions.get(name.topic, name.partition) is partition,
            moves_start=not isinstance(mark, ExpiryMark),
        )
        shard.start()
        self._watch_clock()

    def _close(self, name: TopicPartition) -> None:
        shard, mark = self._shards.pop(name), self._marks.pop(name)
        shard.close()
        topic = self._image().topics.get(name.topic)
        if topic is not None:
            self._past.setdefault((shard.kind.name, name.topic), QueueCounts()).add(shard.counts)
        else:
            self._past.pop((shard.kind.name, name.topic), None)
        is_deleted = topic is None or topic.id != shard.partition.topic_id
        if is_deleted and not isinstance(mark, ExpiryMark) and (shard.undelivered or not shard.is_up_to_date):
            _LOGGER.warning(
                "queue %s: topic %s was deleted with %s%d parked records; %d of them are on their way",
                name, name.topic, "" if shard.is_up_to_date else "at least ", shard.undelivered, shard.on_their_way,
            )  # fmt: skip
        task = asyncio.get_running_loop().create_task(shard.wait_closed())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes every shard."""
        self._is_closed = True
        for name in list(self._shards):
            self._close(name)
        await asyncio.gather(*self._closing, return_exceptions=True)

    # The wall clock

    def _wall_lead_ms(self) -> int:
        return self._clock.now_ms() - int(self._clock.monotonic() * 1000)

    def _watch_clock(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._lead_ms = self._wall_lead_ms()
            self._timers.after(CLOCK_CHECK_MS, self._check_clock)

    def _check_clock(self) -> None:
        self._is_watching = False
        if not self._shards:
            return
        lead_ms = self._wall_lead_ms()
        if abs(lead_ms - self._lead_ms) >= _CLOCK_SET_MS:
            for shard in self._shards.values():
                shard.wake()
        self._watch_clock()
