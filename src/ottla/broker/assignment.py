"""Makes this broker hold the partitions that the cluster's image assigns to it: creates, changes and removes logs.

At the start, folders are compared with the image: a folder of a deleted topic is removed, one that the image does not
have is set aside, a partition without a folder gets one.

A broker leads a partition with other replicas only if it was elected after its present registration: the controller may
have elected another broker since it elected this one before. Until it is elected again, it waits. A partition without
other replicas is always led.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Set
from typing import Final

from ottla.broker.configs.topic_settings import TopicSettings
from ottla.broker.schema_validation.schema_gate import ProduceGate
from ottla.broker.startup.metadata_recovery import epoch_evidence, older_message
from ottla.env.ports import Clock
from ottla.metadata.configs.topic_configs import COMPANION_OF
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import partition_key, topic_key
from ottla.model.base64_ids import id_text, parse_id
from ottla.model.errors import (
    CorruptError,
    NotLeaderError,
    OlderMetadataError,
    OttlaError,
    StorageError,
    UnknownPartitionError,
)
from ottla.model.ids import BrokerId, TopicPartition
from ottla.replication.follower_state import FollowerState
from ottla.replication.leader_state import LeaderState
from ottla.replication.lost_logs import LostLogs
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable
from ottla.storage.data_dirs import names
from ottla.storage.log import Log
from ottla.storage.log_store import LogStore
from ottla.transport.turn import Turn

_LOGGER: Final = logging.getLogger(__name__)

_PER_BREATH: Final = 50
"""Partitions that are created before the event loop may do something else."""

_RETRY_SECONDS: Final = 1.0
_RETRY_SECONDS_MAX: Final = 30.0
"""The pauses between attempts to serve a partition, doubled each time."""

GateOf = Callable[[TopicImage, int, Mapping[str, TopicImage]], ProduceGate | None]
"""What checks the batches produced to a partition of a topic; the mapping has all topics by name."""


class Assignment:
    """Applies images to the partitions and logs of one broker; `apply` may be called again after any failure.

    `settings_of` resolves a topic's configs; `gate_of` makes the gate of a partition; `may_lead_since`
    says whether a partition's record of some revision was made for the broker's present registration.
    """

    def __init__(
        self,
        me: BrokerId,
        logs: LogStore,
        partitions: PartitionTable,
        lost_logs: LostLogs,
        image: Callable[[], ClusterImage],
        turn: Turn,
        clock: Clock,
        *,
        settings_of: Callable[[Mapping[str, str]], TopicSettings],
        gate_of: GateOf,
        may_lead_since: Callable[[int], bool],
    ) -> None:
        self._me = me
        self._logs = logs
        self._partitions = partitions
        self._lost_logs = lost_logs
        self._image = image
        self._loop_turn = turn
        self._clock = clock
        self._settings_of = settings_of
        self._gate_of = gate_of
        self._may_lead_since = may_lead_since
        self._topics: dict[str, TopicImage] = {}
        """As they were last applied."""
        self._has_unserved = asyncio.Event()
        self._revision = 0
        """Of the image that was applied last."""
        self._breath = 0
        self._applying = asyncio.Lock()

    async def apply(self, image: ClusterImage) -> None:
        """Creates, changes and removes partitions as the image says."""
        async with self._applying:
            await self._apply(image)

    async def bring_back(self, name: TopicPartition) -> None:
        """Serves a partition that could not be opened, now that its folder is out of the way. Raises StorageError."""
        async with self._applying:
            image = self._image()
            topic, wanted = self._record_of(name, image)
            if topic is None or wanted is None or self._me not in wanted.replicas or name in self._partitions.held:
                return
            settings = self._settings_of(topic.configs)
            partition = self._add(topic, name, settings, image)
            self._apply_role(partition, wanted, image.revision_of(partition_key(*name)))
            self._lost_logs.on_record(name, wanted, image.revision)
            partition.on_min_insync_replicas(settings.min_insync_replicas)
            partition.log.config = settings.log_of(name)

    async def retry_forever(self, on_served: Callable[[], None]) -> None:
        """Tries again to serve partitions whose log could not be created or opened, until cancelled.

        `on_served` is called when some of them are served.
        """
        pause = _RETRY_SECONDS
        while True:
            await self._has_unserved.wait()
            await self._clock.sleep(pause)
            if await self._retry():
                on_served()
                pause = _RETRY_SECONDS
            else:
                pause = min(2 * pause, _RETRY_SECONDS_MAX)
            if not self._partitions.unserved:
                self._has_unserved.clear()
                pause = _RETRY_SECONDS
                self.note_applied(self._revision)

    async def _retry(self) -> int:
        """Tries once to serve each partition that is not; returns how many are served now."""
        served = 0
        for name in list(self._partitions.unserved):
            try:
                _, record = self._record_of(name, self._image())
                if record is not None and record.replicas == (self._me,):
                    # If there are other replicas, a log that cannot be opened counts as lost and is copied again.
                    log = await self._logs.reopen_offline(name)
                    if log is not None:
                        self._sort_out(log, self._image())
                await self.bring_back(name)
            except OttlaError as error:
                self._note_unserved(name, error)
                continue
            # It is served, or the image no longer assigns it to this broker.
            self._partitions.unserved.pop(name, None)
            if name in self._partitions.held:
                served += 1
                _LOGGER.info("partition %s is served again", name)
        return served

    def _note_unserved(self, name: TopicPartition, error: OttlaError) -> None:
        # Not the error itself: its traceback would keep files open.
        self._partitions.unserved[name] = StorageError(str(error))
        self._has_unserved.set()

    async def _apply(self, image: ClusterImage) -> None:
        gone = [
            name
            for name, known in self._topics.items()
            if name not in image.topics or image.topics[name].id != known.id
        ]
        if gone:
            await self._remove_topics(gone)
        applied, is_newer = self._logs.applied_revision or 0, False
        reconfigured = set()
        for name, topic in image.topics.items():
            known = self._topics.get(name)
            if known is topic:
                continue
            await self._apply_topic(topic, image)
            self._topics[name] = topic
            if known is None or known.configs is not topic.configs:
                reconfigured.add(name)
            is_newer = is_newer or image.revision_of(topic_key(name)) > applied
        self._apply_gates(reconfigured, image)
        self._revision = image.revision
        if is_newer:
            self.note_applied(image.revision)

    def note_applied(self, revision: int) -> None:
        """Notes that every folder of this revision was created, unless one is missing: after a restart, a folder that
        was never created must not be taken for a lost one."""
        if not self._partitions.unserved:
            self._logs.note_applied(revision)

    def settings_changed(self) -> None:
        """Applies the topics' settings again, after a change of the broker's configs."""
        for topic in self._topics.values():
            self._apply_settings(topic, self._settings_of(topic.configs))
        self._apply_gates(self._topics.keys(), self._image())

    def sort_out_folders(self, image: ClusterImage) -> None:
        """At the start: compares each partition's folder with the image.

        Records are removed only if the metadata store remembers that their topic was deleted, or that the partition
        was moved to other brokers. All else that the image does not have is set aside. Raises OlderMetadataError.
        """
        for log in self._logs:
            self._check_epoch(log, image)
        for log in list(self._logs):
            self._sort_out(log, image)

    def _check_epoch(self, log: Log, image: ClusterImage) -> None:
        topic, record = self._record_of(log.partition, image)
        identity, seen = self._logs.identity(log.partition), self._logs.seen_of(log.partition)
        if topic is None or record is None or self._me not in record.replicas:
            return
        is_comparable = seen is None or seen.history == image.history
        if is_comparable and identity.topic_id == id_text(topic.id) and log.epochs.latest > record.leader_epoch:
            why = epoch_evidence(log.partition, log.epochs.latest, record.leader_epoch)
            raise OlderMetadataError(older_message(why))

    def _sort_out(self, log: Log, image: ClusterImage) -> None:
        store, name = self._logs, log.partition
        identity = store.identity(name)
        topic, record = self._record_of(name, image)
        is_here = record is not None and self._me in record.replicas
        topic_id = parse_id(identity.topic_id or "")
        if topic_id is None and topic is not None and record is not None and is_here:
            if log.epochs.latest > record.leader_epoch:
                store.take_offline(name, _newer_epoch(log, identity.problem, record))
                return
            _LOGGER.warning(
                "partition %s: %s; writing it again with the id of topic %s", name, identity.problem, topic.name
            )
            try:
                store.set_topic_id(name, id_text(topic.id))
            except StorageError as error:
                # The disk may be full, for example. The log itself can be read, and the next start tries again.
                _LOGGER.error("%s; serving the partition without it", error)
        elif topic is not None and topic_id == topic.id and record is not None:
            seen = store.seen_of(name)
            if not is_here and seen is not None and seen.history == image.history:
                self._remove_folder(log, "it was moved to other brokers")
            elif not is_here:
                self._set_aside(log, "the metadata has its topic, but no replica on this broker")
        elif topic_id in image.deleted_topics:
            self._remove_folder(log, f"its topic (id {identity.topic_id}) was deleted")
        elif log.end_offset == 0:
            self._remove_folder(log, "the metadata does not have it")
        elif topic is not None and is_here:
            seen = store.seen_of(name)
            if seen is None or seen.history == image.history:
                store.take_offline(name, _wrong_id(log, identity.topic_id, topic))
                return
            # The metadata was recovered from an older store, which had the topic before it was deleted and recreated.
            found, known = identity.topic_id, id_text(topic.id)
            self._set_aside(
                log, f"it belongs to another topic named {name.topic} (id {found}); the metadata has {known}"
            )
            store.create(name, known)
        else:
            self._set_aside(log, f"the metadata does not have it (topic id {identity.topic_id or 'unknown'})")

    @staticmethod
    def _record_of(name: TopicPartition, image: ClusterImage) -> tuple[TopicImage | None, PartitionImage | None]:
        topic = image.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return topic, None
        return topic, topic.partitions[name.partition]

    def _remove_folder(self, log: Log, why: str) -> None:
        _LOGGER.warning("removing partition %s with its %s: %s", log.partition, _count(log), why)
        self._logs.delete(log.partition)

    def _set_aside(self, log: Log, why: str) -> None:
        count = _count(log)
        kept = self._logs.set_aside(log.partition)
        _LOGGER.error("partition %s is set aside: %s; its %s are kept in %s", log.partition, why, count, kept)

    async def _apply_topic(self, topic: TopicImage, image: ClusterImage) -> None:
        settings = self._settings_of(topic.configs)
        for index, wanted in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            partition = self._partitions.held.get(name)
            if self._me not in wanted.replicas:
                self._partitions.unserved.pop(name, None)
                if partition is not None:
                    await self._remove([partition], NotLeaderError, "was moved to other brokers")
                continue
            if partition is None and self._lost_logs.is_pending(name, image.revision):
                continue
            if partition is None:
                try:
                    partition = self._add(topic, name, settings, image)
                except OttlaError as error:
                    _LOGGER.error("partition %s cannot be served: %s", name, error)
                    # A partition that is held back waits for another record, not for another attempt.
                    if self._lost_logs.reason_held_back(name, wanted, image.revision) is None:
                        self._note_unserved(name, error)
                    continue
                await self._breathe()
            self._apply_role(partition, wanted, image.revision_of(partition_key(*name)))
            self._lost_logs.on_record(name, wanted, image.revision)
        self._apply_settings(topic, settings)

    def _add(self, topic: TopicImage, name: TopicPartition, settings: TopicSettings, image: ClusterImage) -> Partition:
        if name in self._logs.offline:
            raise self._logs.offline[name]
        log = self._logs.find(name)
        if log is None:
            wanted = topic.partitions[name.partition]
            reason = self._lost_logs.reason_held_back(name, wanted, image.revision)
            if reason is not None:
                raise StorageError(reason)
            lost = self._lost_logs.range_before_new_log(name, wanted)
            log = self._logs.create(name, id_text(topic.id), lost=lost)
        partition = Partition(
            topic.name,
            name.partition,
            topic.id,
            log,
            min_insync_replicas=settings.min_insync_replicas,
            turn=self._loop_turn,
            clock=self._clock,
        )
        partition.ttl_ms = settings.ttl_ms
        partition.gate = self._gate_of(topic, name.partition, image.topics)
        self._partitions.add(partition)
        self._partitions.unserved.pop(name, None)
        return partition

    def _apply_role(self, partition: Partition, wanted: PartitionImage, revision: int) -> None:
        may_lead = wanted.replicas == (self._me,) or self._may_lead_since(revision)
        if wanted.leader != self._me or not may_lead:
            follower = partition.follower
            if follower is None or (follower.leader, follower.leader_epoch) != (wanted.leader, wanted.leader_epoch):
                partition.become_follower(FollowerState(wanted.leader, wanted.leader_epoch))
                self._partitions.refresh(partition)
        elif partition.leader is None or partition.leader_epoch != wanted.leader_epoch:
            partition.become_leader(
                LeaderState(
                    self._me,
                    replicas=wanted.replicas,
                    isr=wanted.isr,
                    leader_epoch=wanted.leader_epoch,
                    eligible=wanted.eligible,
                    epoch_start=partition.end_offset,
                    now=self._clock.monotonic(),
                )
            )
            self._partitions.refresh(partition)
        elif revision != partition.record_revision:
            # Only a newer record settles an ISR proposal. The record may have been applied before: that another
            # partition of the topic has changed says nothing about what is being committed for this one.
            partition.on_isr(wanted.replicas, wanted.isr, wanted.eligible)
        partition.record_revision = revision

    def resign(self) -> None:
        """Stops leading all partitions that another broker may lead by now: the registration is lost."""
        for partition in list(self._partitions):
            if partition.leader is not None and len(partition.leader.replicas) > 1:
                partition.become_follower(FollowerState(NO_LEADER, partition.leader_epoch))
                self._partitions.refresh(partition)

    def _apply_settings(self, topic: TopicImage, settings: TopicSettings) -> None:
        for index in range(len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            partition = self._partitions.held.get(name)
            if partition is not None:
                partition.on_min_insync_replicas(settings.min_insync_replicas)
                partition.log.config = settings.log_of(name)
                partition.ttl_ms = settings.ttl_ms

    def _apply_gates(self, owners: Set[str], image: ClusterImage) -> None:
        """Makes the gates of these topics and of their companions again: they depend on the configs of the topics."""
        for topic in image.topics.values() if owners else ():
            if topic.name in owners or (topic.configs and topic.configs.get(COMPANION_OF) in owners):
                for index in range(len(topic.partitions)):
                    partition = self._partitions.held.get(TopicPartition(topic.name, index))
                    if partition is not None:
                        partition.gate = self._gate_of(topic, index, image.topics)

    async def _remove_topics(self, names: list[str]) -> None:
        gone = set(names)
        partitions = [each for each in self._partitions.held.values() if each.topic in gone]
        await self._remove(partitions, UnknownPartitionError, "was deleted")
        self._lost_logs.forget(gone)
        for name in names:
            self._topics.pop(name, None)
        for unserved in [each for each in self._partitions.unserved if each.topic in gone]:
            del self._partitions.unserved[unserved]

    async def _remove(self, partitions: list[Partition], kind: type[OttlaError], what: str) -> None:
        for partition in partitions:
            self._partitions.remove(partition)
            partition.fail_waiting(kind(f"{partition.topic}-{partition.index} {what}"))
        try:
            await self._logs.delete_all([TopicPartition(each.topic, each.index) for each in partitions])
        except OttlaError as error:
            _LOGGER.error("some of %d removed partitions were not deleted completely: %s", len(partitions), error)

    async def _breathe(self) -> None:
        self._breath += 1
        if self._breath % _PER_BREATH == 0:
            await asyncio.sleep(0)


def _count(log: Log) -> str:
    return f"{log.end_offset - log.start_offset} records (offsets {log.start_offset} to {log.end_offset})"


def _newer_epoch(log: Log, problem: str | None, record: PartitionImage) -> CorruptError:
    return CorruptError(
        f"{problem}, and {log.folder} with its {_count(log)} has leader epoch {log.epochs.latest}, but the topic only"
        f" {record.leader_epoch}: it seems to belong to another topic; move it out of the data dir"
    )


def _wrong_id(log: Log, found: str | None, topic: TopicImage) -> CorruptError:
    file = f"{log.folder}/{names.PARTITION_METADATA}"
    return CorruptError(
        f"{file} has the topic id {found}, but topic {topic.name} has {id_text(topic.id)}: if its {_count(log)} belong"
        " to that topic, remove the file while the broker is stopped; otherwise move the folder out of the data dir"
    )
