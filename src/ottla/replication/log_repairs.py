"""Repairs logs with a failure or damage: another replica takes over, and this broker copies its log from there again.

There are three kinds of trouble (`ottla.storage.log_health`), and partitions that could not be opened at all. In each
case the broker first withdraws: it leaves the ISR and stops leading, if another in-sync replica can take over. If none
can, it stays in its role, since no other replica has more; requests are answered with the error. Then:

- a log that failed is opened again and ends where it was last flushed; the rest is copied again;
- a log that is damaged or cannot be read is set aside (its folder is renamed and kept for the operator), and an empty
  log takes its place, into which everything is copied;
- a log without disk space is unchanged, and its broker stays eligible to lead; it comes back when there is space.

Nothing is copied into a log that failed or is damaged, and the withdrawal begins a new leader epoch: so no leader can
take the broker back into the ISR for what its old log had.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from ottla.controller.controller import Controller
from ottla.env.ports import Clock
from ottla.metadata.image_follower import ImageFollower
from ottla.model.base64_ids import id_text
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, OttlaError, StorageError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from ottla.replication.replica_fetcher import ReplicaFetchers
from ottla.storage.log_store import LogStore
from ottla.storage.segments.scanner import DamagedSegmentError

_LOGGER: Final = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 1.0
_PAUSE_SECONDS_MAX: Final = 60.0


class LogRepairs:
    """Withdraws from and repairs the logs of one broker. `run` until cancelled.

    `trouble` is set when a log has a failure or damage. `bring_back` serves a partition that could not be opened, now
    that its folder is out of the way. Nothing is done while the broker is not registered.
    """

    def __init__(
        self,
        me: BrokerId,
        logs: LogStore,
        partitions: PartitionTable,
        metadata: ImageFollower,
        controller: Controller,
        fetchers: ReplicaFetchers,
        clock: Clock,
        *,
        trouble: asyncio.Event,
        is_registered: Callable[[], bool],
        bring_back: Callable[[TopicPartition], Awaitable[None]],
    ) -> None:
        self._me = me
        self._logs = logs
        self._partitions = partitions
        self._metadata = metadata
        self._controller = controller
        self._fetchers = fetchers
        self._clock = clock
        self._trouble = trouble
        self._is_registered = is_registered
        self._bring_back = bring_back
        self._tries: dict[TopicPartition, tuple[float, float]] = {}
        """When a log may be repaired again, and the pause after that: on a broken disk each repair fails."""

    def code_of(self, error: OttlaError, topic: str | bytes, index: int) -> ErrorCode:
        """The error code for a client: damage is retriable if another replica is about to take over."""
        if isinstance(error, DamagedSegmentError) and self.has_others(topic, index):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return error.code

    def has_others(self, topic: str | bytes, index: int) -> bool:
        """Whether a partition, by its topic's name or id, has another in-sync replica that can take over."""
        image = self._metadata.image
        found = image.topics_by_id.get(UUID(bytes=topic)) if isinstance(topic, bytes) else image.topics.get(topic)
        if found is None or index >= len(found.partitions):
            return False
        return any(each != self._me and each in image.brokers for each in found.partitions[index].isr)

    async def run(self) -> None:
        """Withdraws and repairs, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._trouble.wait()
            except TimeoutError:
                pass
            self._trouble.clear()
            try:
                await self._look()
            except OttlaError as error:
                _LOGGER.warning("log repairs paused, retrying in %g s: %s", _PAUSE_SECONDS, error)
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _look(self) -> None:
        troubled = [name for name, each in self._partitions.held.items() if each.log.health.trouble is not None]
        # A partition that is not served is offline, too, or its log could not be created.
        names = dict.fromkeys((*troubled, *self._logs.offline, *self._partitions.unserved))
        wanted = [name for name in names if self._is_due(name)]
        if not wanted or not self._is_registered():
            return
        withdrawn = await self._controller.withdraw(self._me, wanted, self._may_take, self._is_sound)
        await self._metadata.wait_revision(withdrawn.revision)
        for outcome in withdrawn.outcomes:
            await self._repair(TopicPartition(outcome.topic, outcome.partition))
        if withdrawn.outcomes:
            self._fetchers.refresh()

    def _is_due(self, name: TopicPartition) -> bool:
        """Whether there is something to do about a log: to leave an ISR, or to repair what can be repaired."""
        topic = self._metadata.image.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return False
        record = topic.partitions[name.partition]
        if self._me not in record.replicas or record.isr == (self._me,):
            return False
        partition = self._partitions.held.get(name)
        if partition is not None and partition.log.health.is_sound:
            return self._me in record.isr
        is_time = self._tries.get(name, (0.0, 0.0))[0] <= self._clock.monotonic()
        is_counted_on = self._me in (*record.isr, *record.eligible)
        return is_counted_on or (is_time and self._logs.is_mendable(name))

    def _may_take(self, where: TopicPartition, other: BrokerId) -> bool:
        partition = self._partitions.held.get(where)
        if partition is None or (partition.leader is None and not partition.log.health.is_sound):
            # Nothing is copied, so there is no fetch that would show whether the other replica is alive.
            return True
        return self._fetchers.has_heard_of(where, other)

    def _is_sound(self, where: TopicPartition) -> bool:
        """Whether a log has all its records, and only could not be written."""
        partition = self._partitions.held.get(where)
        return partition is not None and partition.log.health.is_sound

    # Repairs

    async def _repair(self, name: TopicPartition) -> None:
        """Repairs a log that this broker has withdrawn from; if that fails, it is tried again later."""
        partition = self._partitions.held.get(name)
        if partition is not None and partition.log.health.is_sound:
            # It had no disk space; if there is still none when it is copied to, that is another refusal.
            _LOGGER.warning(
                "partition %s: left the ISR until its log can be written: %s", name, partition.log.health.refusal
            )
            partition.log.health.refusal = None
            return
        due, pause = self._tries.get(name, (0.0, _PAUSE_SECONDS))
        now = self._clock.monotonic()
        if due > now or not self._logs.is_mendable(name):
            return
        if now - due > _PAUSE_SECONDS_MAX:
            pause = _PAUSE_SECONDS
        self._tries[name] = now + pause, min(2 * pause, _PAUSE_SECONDS_MAX)
        try:
            if partition is None:
                if name in self._logs.offline:
                    self._set_aside(name, self._logs.offline[name])
                await self._bring_back(name)
            elif partition.follower is not None:
                await self._renew(name, partition)
        except OttlaError as error:
            _LOGGER.error("partition %s: cannot repair the log, retrying in %g s: %s", name, pause, error)

    async def _renew(self, name: TopicPartition, partition: Partition) -> None:
        trouble = partition.log.health.trouble
        old = self._logs.find(name)
        if old is not None and old.health.damage is None:
            try:
                log = await self._logs.reopen(name)
            except (CorruptError, StorageError) as error:
                trouble = error
            else:
                _LOGGER.warning(
                    "partition %s: reopened the log after an error, replicating from offset %d: %s",
                    name, log.end_offset, trouble,
                )  # fmt: skip
                self._take_over(partition)
                return
        _check_followed(partition)
        if old is not None and trouble is not None:
            self._set_aside(name, trouble)
        self._logs.create(name, id_text(partition.topic_id))
        self._take_over(partition)

    def _take_over(self, partition: Partition) -> None:
        _check_followed(partition)
        log = self._logs.get(TopicPartition(partition.topic, partition.index))
        log.config = partition.log.config
        partition.replace_log(log)

    def _set_aside(self, name: TopicPartition, trouble: OttlaError) -> None:
        kept = self._logs.set_aside(name)
        _LOGGER.error(
            "partition %s: copying the log again from the leader; the old log is kept in %s: %s", name, kept, trouble
        )


def _check_followed(partition: Partition) -> None:
    """Raises unless another broker still leads: an unclean election may have come in between."""
    if partition.follower is None:
        raise StorageError(f"this broker now leads {partition.topic}-{partition.index}; its log is not replaced")
