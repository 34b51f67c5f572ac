"""Makes this broker hold what the cluster's image assigns to it: logs and partitions come, change and go.

The image says what should be; the folders say what is. At the start both are compared: a folder whose topic is known to
have been deleted goes, one that the image does not know is set aside, a partition without a folder gets one.

The image also says who leads. A broker leads a partition with other replicas only if it was given that after its
present registration: what an earlier life of it was told, the controller may have told another one since. Until it is
told anew, it waits. A partition that has no other replica is its own in every life.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ottla.broker.metadata_recovery import epoch_evidence, older_message
from ottla.broker.topic_settings import TopicSettings
from ottla.controller.topics_state import id_text
from ottla.metadata.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import partition_key, topic_key
from ottla.model.errors import (
    CorruptError,
    NotLeaderError,
    OlderMetadataError,
    OttlaError,
    StorageError,
    UnknownPartitionError,
)
from ottla.model.ids import TopicPartition
from ottla.replication.follower_state import FollowerState
from ottla.replication.leader_state import LeaderState
from ottla.replication.partition import Partition
from ottla.storage import names
from ottla.storage.ids import parse_id
from ottla.storage.log import Log

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_LOGGER: Final = logging.getLogger(__name__)

_PER_BREATH: Final = 50
"""After so many partitions the event loop may do something else."""

_RETRY_SECONDS: Final = 1.0
_RETRY_SECONDS_MAX: Final = 30.0
"""A partition that cannot be served is tried again after pauses from the one to the other."""


class Assignment:
    """The broker's side of the image; `apply` may be called again after any failure."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._topics: dict[str, TopicImage] = {}
        """As they were last applied."""
        self.unserved: dict[TopicPartition, OttlaError] = {}
        """Partitions that the image assigns to this broker and that have no log here, and why."""
        self._has_unserved = asyncio.Event()
        self._revision = 0
        """Of the image that was applied last."""
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
            settings = broker.settings_of(topic.configs)
            partition = self._add(topic, name, settings, broker.image.revision)
            self._apply_role(partition, wanted, broker.image.revision_of(partition_key(*name)))
            broker.lost_logs.on_record(name, wanted, broker.image.revision)
            partition.on_min_insync_replicas(settings.min_insync_replicas)
            partition.log.config = settings.log_of(name)

    async def retry_forever(self) -> None:
        """Serves partitions whose log could not be created or opened, as soon as that works, until cancelled."""
        pause = _RETRY_SECONDS
        while True:
            await self._has_unserved.wait()
            await self._broker.clock.sleep(pause)
            if await self._retry():
                self._broker.on_served()
                pause = _RETRY_SECONDS
            else:
                pause = min(2 * pause, _RETRY_SECONDS_MAX)
            if not self.unserved:
                self._has_unserved.clear()
                pause = _RETRY_SECONDS
                self.note_applied(self._revision)

    async def _retry(self) -> int:
        """Tries each partition that is not served once; answers how many are served now."""
        served = 0
        for name in list(self.unserved):
            try:
                _, record = self._record_of(name, self._broker.image)
                if record is not None and record.replicas == (self._broker.id,):
                    # If others have it, a log that cannot be opened counts as lost and is copied again.
                    log = await self._broker.store.reopen_offline(name)
                    if log is not None:
                        self._sort_out(log, self._broker.image)
                await self.bring_back(name)
            except OttlaError as error:
                self._note_unserved(name, error)
                continue
            # Served, or by now the image does not assign it to this broker.
            self.unserved.pop(name, None)
            if name in self._broker.partitions.held:
                served += 1
                _LOGGER.info("partition %s is served now", name)
        return served

    def _note_unserved(self, name: TopicPartition, error: OttlaError) -> None:
        # Not the error itself: its traceback would keep files open.
        self.unserved[name] = StorageError(str(error))
        self._has_unserved.set()

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
        self._revision = image.revision
        if is_newer:
            self.note_applied(image.revision)

    def note_applied(self, revision: int) -> None:
        """Notes that every folder of this revision was made, unless one is missing: after a restart, a folder that was
        never made must not be taken for a lost one."""
        if not self.unserved:
            self._broker.store.note_applied(revision)

    def settings_changed(self) -> None:
        """The broker's own configs changed, and with them the defaults of every topic."""
        for topic in self._topics.values():
            self._apply_settings(topic, self._broker.settings_of(topic.configs))

    def sort_out_folders(self, image: ClusterImage) -> None:
        """At the start: compares each partition's folder with what the image says of it.

        Records are removed only where the metadata store remembers that their topic was deleted, or that the partition
        was moved to other brokers. Whatever else the image does not know is set aside. Raises OlderMetadataError.
        """
        store = self._broker.store
        for log in store:
            self._check_epoch(log, image)
        for log in list(store):
            self._sort_out(log, image)

    def _check_epoch(self, log: Log, image: ClusterImage) -> None:
        topic, record = self._record_of(log.partition, image)
        identity, seen = self._broker.store.identity(log.partition), self._broker.store.seen_of(log.partition)
        if topic is None or record is None or self._broker.id not in record.replicas:
            return
        is_comparable = seen is None or seen.history == image.history
        if is_comparable and identity.topic_id == id_text(topic.id) and log.epochs.latest > record.leader_epoch:
            why = epoch_evidence(log.partition, log.epochs.latest, record.leader_epoch)
            raise OlderMetadataError(older_message(why))

    def _sort_out(self, log: Log, image: ClusterImage) -> None:
        store, name = self._broker.store, log.partition
        identity = store.identity(name)
        topic, record = self._record_of(name, image)
        is_here = record is not None and self._broker.id in record.replicas
        topic_id = parse_id(identity.topic_id or "")
        if topic_id is None and topic is not None and record is not None and is_here:
            if log.epochs.latest > record.leader_epoch:
                store.take_offline(name, _newer_epoch(log, identity.problem, record))
                return
            _LOGGER.warning("%s: %s; it is written again with the id of topic %s", name, identity.problem, topic.name)
            try:
                store.set_topic_id(name, id_text(topic.id))
            except StorageError as error:
                # On a full disk, for example. The log itself can be read, and the next start tries again.
                _LOGGER.error("%s; the partition is served without it", error)
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
            store.take_offline(name, _wrong_id(log, identity.topic_id, topic))
        else:
            self._set_aside(log, f"the metadata does not have it (topic id {identity.topic_id or 'unknown'})")

    @staticmethod
    def _record_of(name: TopicPartition, image: ClusterImage) -> tuple[TopicImage | None, PartitionImage | None]:
        topic = image.topics.get(name.topic)
        if topic is None or name.partition >= len(topic.partitions):
            return topic, None
        return topic, topic.partitions[name.partition]

    def _remove_folder(self, log: Log, why: str) -> None:
        _LOGGER.warning("partition %s is removed with %s: %s", log.partition, _count(log), why)
        self._broker.store.delete(log.partition)

    def _set_aside(self, log: Log, why: str) -> None:
        count, store = _count(log), self._broker.store
        kept = store.set_aside(log.partition)
        _LOGGER.error("partition %s is set aside: %s; its %s are kept in %s", log.partition, why, count, kept)

    async def _apply_topic(self, topic: TopicImage, image: ClusterImage) -> None:
        broker = self._broker
        settings = broker.settings_of(topic.configs)
        for index, wanted in enumerate(topic.partitions):
            name = TopicPartition(topic.name, index)
            partition = broker.partitions.held.get(name)
            if broker.id not in wanted.replicas:
                self.unserved.pop(name, None)
                if partition is not None:
                    await self._remove([partition], NotLeaderError, "was moved to other brokers")
                continue
            if partition is None and broker.lost_logs.is_pending(name, image.revision):
                continue
            if partition is None:
                try:
                    partition = self._add(topic, name, settings, image.revision)
                except OttlaError as error:
                    _LOGGER.error("partition %s cannot be served: %s", name, error)
                    # One that is held back waits for another record, not for another try.
                    if broker.lost_logs.reason_held_back(name, wanted, image.revision) is None:
                        self._note_unserved(name, error)
                    continue
                await self._breathe()
            self._apply_role(partition, wanted, image.revision_of(partition_key(*name)))
            broker.lost_logs.on_record(name, wanted, image.revision)
        self._apply_settings(topic, settings)

    def _add(self, topic: TopicImage, name: TopicPartition, settings: TopicSettings, revision: int) -> Partition:
        broker = self._broker
        if name in broker.store.offline:
            raise broker.store.offline[name]
        log = broker.store.find(name)
        if log is None:
            wanted = topic.partitions[name.partition]
            reason = broker.lost_logs.reason_held_back(name, wanted, revision)
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
        self.unserved.pop(name, None)
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
        for unserved in [each for each in self.unserved if each.topic in gone]:
            del self.unserved[unserved]

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
