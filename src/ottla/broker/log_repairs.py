"""Logs that something is wrong with: others take over, and this broker's copy is mended from theirs.

Three kinds of trouble (`ottla.storage.log_health`), and partitions that could not be opened at all. In each case the
broker first withdraws: it leaves the ISR, and leads no longer, as long as somebody else in sync can take over. Where
nobody can, it stays what it is, since nobody has more; requests are answered with what is wrong. Then:

- a log that failed is read anew, and ends where it was last flushed; the rest is copied again;
- one that is damaged, or cannot be read, is set aside (its folder is renamed, and kept for a person to look at), and an
  empty one takes its place, into which everything is copied;
- one that had no room is as it was; it comes back when there is room again.

Nothing is copied into a log that failed or is damaged, and the withdrawal begins a new leader epoch: so no leader can
take the broker back into the ISR for what its old log had.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from ottla.controller.topics_state import id_text
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, OttlaError, StorageError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.scanner import DamagedSegmentError

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 1.0
_PAUSE_SECONDS_MAX: Final = 60.0


class LogRepairs:
    """See the module's docstring. `run` until cancelled; `on_trouble` hears when something is wrong with a log.

    `has_heard_of` says whether another replica of a partition is known to live.
    """

    def __init__(self, broker: "Broker", has_heard_of: Callable[[TopicPartition, BrokerId], bool]) -> None:
        self._broker = broker
        self._has_heard_of = has_heard_of
        self._news = asyncio.Event()
        self._tries: dict[TopicPartition, tuple[float, float]] = {}
        """When a log may be mended again, and the pause after that; a disk that is broken fails each time."""

    def on_trouble(self) -> None:
        """Something is wrong with a log, or was."""
        self._news.set()

    def code_of(self, error: OttlaError, topic: str | bytes, index: int) -> ErrorCode:
        """What a client is told of an error: damage is nothing to give up for if others will have it in a moment."""
        if isinstance(error, DamagedSegmentError) and self.has_others(topic, index):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return error.code

    def has_others(self, topic: str | bytes, index: int) -> bool:
        """Whether a partition, by its topic's name or id, has others in sync who can take over from this broker."""
        image = self._broker.image
        found = image.topics_by_id.get(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topics.get(topic)
        if found is None or index >= len(found.partitions):
            return False
        return any(each != self._broker.id and each in image.brokers for each in found.partitions[index].isr)

    async def run(self) -> None:
        """Withdraws and mends, for ever."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            try:
                await self._look()
            except OttlaError as error:
                _LOGGER.warning("logs that are in trouble wait: %s", error)
                await self._broker.clock.sleep(_PAUSE_SECONDS)

    async def _look(self) -> None:
        broker = self._broker
        troubled = [name for name, each in broker.partitions.held.items() if each.log.health.trouble is not None]
        # Those that are not served are offline, too, or could not be created.
        names = dict.fromkeys((*troubled, *broker.store.offline, *broker.assignment.unserved))
        wanted = [name for name in names if self._is_due(name)]
        if not wanted or not broker.is_registered:
            return
        withdrawn = await broker.controller.withdraw(broker.id, wanted, self._may_take)
        await broker.wait_revision(withdrawn.revision)
        for outcome in withdrawn.outcomes:
            await self._mend(TopicPartition(outcome.topic, outcome.partition))
        if withdrawn.outcomes:
            broker.follow_leaders()

    def _is_due(self, name: TopicPartition) -> bool:
        """Whether there is something to do about a log: to leave an ISR, or to mend what can be mended."""
        broker = self._broker
        topic = broker.image.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return False
        record = topic.partitions[name.partition]
        if broker.id not in record.replicas or record.isr == (broker.id,):
            return False
        partition = broker.partitions.held.get(name)
        if partition is not None and partition.log.health.is_sound:
            return broker.id in record.isr
        is_time = self._tries.get(name, (0.0, 0.0))[0] <= broker.clock.monotonic()
        is_counted_on = broker.id in (*record.isr, *record.eligible)
        return is_counted_on or (is_time and broker.store.is_mendable(name))

    def _may_take(self, where: TopicPartition, other: BrokerId) -> bool:
        partition = self._broker.partitions.held.get(where)
        if partition is None or (partition.leader is None and not partition.log.health.is_sound):
            # Nothing is copied, so nobody can be heard of.
            return True
        return self._has_heard_of(where, other)

    # Mending

    async def _mend(self, name: TopicPartition) -> None:
        """Puts a log in order that this broker has withdrawn from; if that fails, it is tried again later."""
        broker = self._broker
        partition = broker.partitions.held.get(name)
        if partition is not None and partition.log.health.is_sound:
            # It had no room; if it has none when it is copied to, that is another refusal.
            _LOGGER.warning("%s: out of the ISR until it can be written: %s", name, partition.log.health.refusal)
            partition.log.health.refusal = None
            return
        due, pause = self._tries.get(name, (0.0, _PAUSE_SECONDS))
        now = broker.clock.monotonic()
        if due > now or not broker.store.is_mendable(name):
            return
        if now - due > _PAUSE_SECONDS_MAX:
            pause = _PAUSE_SECONDS
        self._tries[name] = now + pause, min(2 * pause, _PAUSE_SECONDS_MAX)
        try:
            if partition is None and name in broker.store.offline:
                await self._begin_offline_anew(name)
            elif partition is None:
                await broker.assignment.bring_back(name)
            elif partition.follower is not None:
                await self._renew(name, partition)
        except OttlaError as error:
            _LOGGER.error("%s cannot be mended, next try in %g s: %s", name, pause, error)

    async def _begin_offline_anew(self, name: TopicPartition) -> None:
        self._set_aside(name, self._broker.store.offline[name])
        await self._broker.assignment.bring_back(name)

    async def _renew(self, name: TopicPartition, partition: Partition) -> None:
        store = self._broker.store
        trouble = partition.log.health.trouble
        old = store.find(name)
        if old is not None and old.health.damage is None:
            try:
                log = await store.reopen(name)
            except (CorruptError, StorageError) as error:
                trouble = error
            else:
                _LOGGER.warning(
                    "%s is read anew, and copied from offset %d on, after: %s", name, log.end_offset, trouble
                )
                self._take_over(partition)
                return
        _check_followed(partition)
        if old is not None and trouble is not None:
            self._set_aside(name, trouble)
        store.create(name, id_text(partition.topic_id))
        self._take_over(partition)

    def _take_over(self, partition: Partition) -> None:
        _check_followed(partition)
        log = self._broker.store.get(TopicPartition(partition.topic, partition.index))
        log.config = partition.log.config
        partition.renew_log(log)

    def _set_aside(self, name: TopicPartition, trouble: OttlaError) -> None:
        kept = self._broker.store.set_aside(name)
        _LOGGER.error("%s is copied anew; what was here is kept in %s: %s", name, kept, trouble)


def _check_followed(partition: Partition) -> None:
    """Raises unless it is still another broker's to lead: an unclean election may have come in between."""
    if partition.follower is None:
        raise StorageError(f"{partition.topic}-{partition.index} is led here by now; its log is left alone")
