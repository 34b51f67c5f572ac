"""Decides, before a broker opens its logs, whether the metadata store can be trusted with them; recovers a lost one.

Each data dir remembers how new the metadata was that it was last used with
(`ottla.storage.data_dirs.metadata_seen`). A store with less was restored from a backup, and the broker does not
start: the store's ISRs and leader epochs are out of date, and it does not know the topics made
since. A store without any metadata was lost, or is new and gets a data dir of Apache Kafka or of a single broker.

An empty store recovers by itself, an older one when the operator says so (`accept_older_metadata`). No broker serves
meanwhile: each writes into the store which partition folders it has, and when all brokers that the data dirs know of
have done so, one of them decides (`ottla.controller.recovery_state`). A broker that will not come back is left out by
the operator (`recover_without`). Nothing in a folder is changed here; folders that the recovered metadata does not
know are set aside when the logs are opened (`assignment.py`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from ottla.broker.startup.folder_claims import cluster_id_of, read_claims, seen_by
from ottla.controller.recovery_state import decide_empty_store, decide_older_store, unknown_topics
from ottla.controller.topics_state import DELETIONS_REMEMBERED_MAX
from ottla.env.ports import Clock, Disk, Random
from ottla.env.wait_first import wait_first
from ottla.metadata.changes import image_of
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import (
    CLAIMS_PREFIX,
    CLUSTER_KEY,
    RECOVERY_KEY,
    TOPIC_PREFIXES,
    ClaimsRecord,
    ClusterRecord,
    RecoveryRecord,
    claims_key,
    decode,
    encode,
)
from ottla.metadata.store import Check, ConflictError, Delete, Entry, MetadataStore, Operation, Put
from ottla.model.errors import OlderMetadataError, StorageError
from ottla.model.ids import BrokerId, TopicPartition
from ottla.storage.data_dirs.metadata_seen import MetadataSeen, history_number, next_history

_LOGGER: Final = logging.getLogger(__name__)
_POLL_SECONDS: Final = 0.2


class StartStoppedError(StorageError):
    """The broker was stopped while its start waited for the metadata store or for other brokers."""


class MetadataRecovery:
    """One broker's part in a recovery. `on_waiting` is called once if it has to wait for other brokers; when `stopped`
    is set, it waits no longer.

    `session_seconds` is how long a registration may outlive its broker.
    """

    def __init__(
        self,
        store: MetadataStore,
        disk: Disk,
        clock: Clock,
        random: Random,
        *,
        data_dirs: Sequence[str],
        broker_id: BrokerId,
        session_seconds: float,
        accept_older_metadata: bool = False,
        recover_without: Collection[BrokerId] = (),
        on_waiting: Callable[[], None] = lambda: None,
        stopped: asyncio.Event | None = None,
    ) -> None:
        self._store = store
        self._disk = disk
        self._clock = clock
        self._random = random
        self._data_dirs = data_dirs
        self._id = broker_id
        self._session_seconds = session_seconds
        self._accepts_older = accept_older_metadata
        self._without = frozenset(recover_without)
        self._on_waiting = on_waiting
        self._stopped = stopped or asyncio.Event()

    async def run(self) -> None:
        """Returns when the store has the metadata that the data dirs belong to, or is a new cluster's.

        Raises OlderMetadataError for a store that is behind the data dirs.
        """
        while True:
            revision, entries = await self._store.snapshot()
            found = {entry.key: entry for entry in entries}
            try:
                if RECOVERY_KEY in found:
                    await self._take_part()
                    return
                if CLUSTER_KEY not in found:
                    cluster_id = cluster_id_of(self._disk, self._data_dirs)
                    if cluster_id is None:
                        return
                    await self._begin(cluster_id, found, self._known_brokers(ClusterImage()), adopts_topics=True)
                    continue
                image = image_of(revision, entries)
                why = self._why_older(image)
                if why is None:
                    return
                if not self._accepts_older:
                    raise OlderMetadataError(older_message(why))
                await self._wait_no_brokers()
                await self._begin(image.cluster_id, found, self._known_brokers(image), adopts_topics=False)
            except ConflictError:
                # Another broker was faster; look at what it committed.
                continue

    # Is the store older than the data?

    def _why_older(self, image: ClusterImage) -> str | None:
        """What shows that the store is older than the data dirs; None if nothing does."""
        if cluster_id_of(self._disk, self._data_dirs) != image.cluster_id:
            return None  # A new data dir, or another cluster's, which is refused when it is opened.
        all_seen = seen_by(self._disk, self._data_dirs)
        for seen in all_seen:
            if seen.is_newer_than(image.history, image.revision):
                at, newest = _position(image.history, image.revision), _position(seen.history, seen.revision)
                return f"it is at {at}, and this broker has seen {newest}"
            if seen.history == image.history and (why := _older_record(seen, image)) is not None:
                return why
        if self._accepts_older and all(seen.history == image.history for seen in all_seen):
            # Otherwise this is checked when the logs are open, at less cost.
            for claim in read_claims(self._disk, self._data_dirs).folders:
                topic = image.topics.get(claim.topic)
                if topic is None or topic.id != claim.topic_id or claim.partition >= len(topic.partitions):
                    continue
                known = topic.partitions[claim.partition].leader_epoch
                if claim.last_epoch > known:
                    return epoch_evidence(TopicPartition(claim.topic, claim.partition), claim.last_epoch, known)
        return None

    def _known_brokers(self, image: ClusterImage) -> tuple[BrokerId, ...]:
        """All brokers that may have folders: those in the store and in the data dirs."""
        known = {self._id, *replicas_and_registered(image)}
        for seen in seen_by(self._disk, self._data_dirs):
            known.update(seen.brokers)
        return tuple(sorted(known))

    async def _wait_no_brokers(self) -> None:
        """Waits until no broker is registered: one that serves with the older store must stop first."""
        deadline = self._clock.monotonic() + self._session_seconds
        while True:
            image = image_of(*await self._store.snapshot())
            if not image.brokers:
                return
            if self._clock.monotonic() >= deadline:
                raise OlderMetadataError(
                    "the metadata store is older than the data of this broker, but"
                    f" {_listed(image.brokers)} is running with it: stop all brokers, then start this one first"
                )
            await self._clock.sleep(_POLL_SECONDS)

    # Recovery

    async def _begin(
        self, cluster_id: str, found: dict[str, Entry], awaited: tuple[BrokerId, ...], *, adopts_topics: bool
    ) -> None:
        expected = found[CLUSTER_KEY].revision if CLUSTER_KEY in found else 0
        histories = [seen.history for seen in seen_by(self._disk, self._data_dirs)]
        if CLUSTER_KEY in found:
            histories.append(decode(CLUSTER_KEY, found[CLUSTER_KEY].value, ClusterRecord).history)
        cluster = ClusterRecord(id=cluster_id, history=next_history(histories, self._random))
        recovery = RecoveryRecord(awaited=awaited, adopts_topics=adopts_topics)
        await self._store.commit([Put(CLUSTER_KEY, encode(cluster), expected), Put(RECOVERY_KEY, encode(recovery), 0)])
        _LOGGER.warning(
            "the metadata store %s: recovering the metadata of cluster %s from the partition folders of %s",
            "is empty" if adopts_topics else "is older than the data",
            cluster_id,
            _listed(awaited),
        )

    async def _take_part(self) -> None:
        """Reports the folders of this broker, and waits until all brokers have done so and the outcome is committed."""
        claims = await self._disk.in_background(read_claims, self._disk, self._data_dirs)
        is_told = False
        waited_for: list[BrokerId] = []
        while True:
            revision, entries = await self._store.snapshot()
            found = {entry.key: entry for entry in entries}
            if RECOVERY_KEY not in found:
                return
            recovery = decode(RECOVERY_KEY, found[RECOVERY_KEY].value, RecoveryRecord)
            theirs = decode(CLUSTER_KEY, found[CLUSTER_KEY].value, ClusterRecord).id
            if cluster_id_of(self._disk, self._data_dirs) not in (None, theirs):
                raise StorageError(
                    f"the metadata store is recovering cluster {theirs}, but {self._data_dirs[0]} belongs to another"
                    " cluster: start the broker with its own metadata store, or with another --data folder"
                )
            if not is_told:
                await self._tell(recovery, found[RECOVERY_KEY].revision, claims)
                is_told = True
                continue
            told = {
                BrokerId(int(key.removeprefix(CLAIMS_PREFIX))): decode(key, entry.value, ClaimsRecord)
                for key, entry in found.items()
                if key.startswith(CLAIMS_PREFIX)
            }
            missing = [broker for broker in recovery.awaited if broker not in told]
            if not missing:
                await self._decide(recovery, image_of(revision, entries), found, told)
                return
            if missing != waited_for:
                if not waited_for:
                    self._on_waiting()
                waited_for = missing
                _LOGGER.warning(
                    "recovering lost metadata: waiting for %s to report its partition folders; start it. If its data"
                    " is lost, restart this broker with --recover-without %s",
                    _listed(missing),
                    ",".join(map(str, missing)),
                )
            await wait_first(self._wait_change(revision), self._stopped.wait())
            if self._stopped.is_set():
                raise StartStoppedError(f"stopped while recovering lost metadata: {_listed(missing)} did not report")

    async def _wait_change(self, revision: int) -> None:
        async for _ in self._store.follow(revision):
            return

    async def _tell(self, recovery: RecoveryRecord, revision: int, claims: ClaimsRecord) -> None:
        operations: list[Operation] = [Put(claims_key(self._id), encode(claims))]
        awaited = tuple(each for each in recovery.awaited if each == self._id or each not in self._without)
        if awaited == recovery.awaited:
            operations.append(Check(RECOVERY_KEY, revision))
        else:
            left_out = [each for each in recovery.awaited if each not in awaited]
            _LOGGER.warning("recovering lost metadata without %s (--recover-without)", _listed(left_out))
            shorter = RecoveryRecord(awaited=awaited, adopts_topics=recovery.adopts_topics)
            operations.append(Put(RECOVERY_KEY, encode(shorter), revision))
        await self._store.commit(operations)

    async def _decide(
        self,
        recovery: RecoveryRecord,
        image: ClusterImage,
        found: dict[str, Entry],
        claims: dict[BrokerId, ClaimsRecord],
    ) -> None:
        is_new = recovery.adopts_topics
        decided = decide_empty_store(claims, self._random) if is_new else decide_older_store(image, claims)
        ends: list[Operation] = [Delete(RECOVERY_KEY, found[RECOVERY_KEY].revision)]
        ends += [Delete(key, entry.revision) for key, entry in found.items() if key.startswith(CLAIMS_PREFIX)]
        await self._store.commit([*ends, *decided])
        after = image_of(*await self._store.snapshot())
        _LOGGER.warning(
            "recovered the metadata of cluster %s: %d topics with the folders of %s; %s",
            after.cluster_id,
            len(after.topics),
            _listed(claims),
            "configs of topics and brokers are lost: topics keep everything until you set retention.ms again"
            if is_new
            else f"configs are those of the older store; folders of topics that it does not know are set aside"
            f" ({', '.join(unknown_topics(after, claims)) or 'none'})",
        )


def older_message(why: str) -> str:
    """The error message for a metadata store that is older than the data."""
    return (
        f"the metadata store is older than the data of this broker: {why}. It was probably restored from a backup, and"
        " does not know what happened since. Restore the newest metadata; or, if that is lost, stop all brokers and"
        " start them with --accept-older-metadata: topics that the store does not know are then set aside, not deleted"
    )


def epoch_evidence(partition: TopicPartition, epoch: int, known: int) -> str:
    """The evidence that a log is newer than the metadata store."""
    return f"the log of {partition} has leader epoch {epoch}, and the store knows only {known}"


def replicas_and_registered(image: ClusterImage) -> set[BrokerId]:
    """The brokers that are registered or have replicas."""
    found = set(image.brokers)
    for topic in image.topics.values():
        for partition in topic.partitions:
            found.update(partition.replicas)
    return found


def _older_record(seen: MetadataSeen, image: ClusterImage) -> str | None:
    """The evidence that the store lacks the newest topic or partition record that was seen; None if it has it."""
    key, revision = seen.newest_key, image.revision_of(seen.newest_key)
    if revision >= seen.newest_key_revision:
        return None
    if revision:
        return f"it has {key} of revision {revision}, and this broker has seen revision {seen.newest_key_revision}"
    is_deleted = key.split("/")[1] in image.deleted_topics.values()
    if is_deleted or len(image.deleted_topics) >= DELETIONS_REMEMBERED_MAX:
        return None
    return f"it does not have {key}, which this broker has seen, and no deletion of that topic"


class SeenMetadata:
    """What data dirs remember of the newest image; computed once for each image."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._seen = MetadataSeen(history="", revision=-1)

    def newest(self) -> MetadataSeen:
        """What to remember now."""
        image = self._image()
        if (self._seen.history, self._seen.revision) != (image.history, image.revision):
            self._seen = seen_in(image)
        return self._seen


def seen_in(image: ClusterImage) -> MetadataSeen:
    """What a data dir remembers of an image that was applied."""
    epochs = (partition.leader_epoch for topic in image.topics.values() for partition in topic.partitions)
    newest = max(
        ((revision, key) for key, revision in image.revisions.items() if key.startswith(TOPIC_PREFIXES)),
        default=(0, ""),
    )
    return MetadataSeen(
        newest_key=newest[1],
        newest_key_revision=newest[0],
        history=image.history,
        revision=image.revision,
        brokers=tuple(sorted(replicas_and_registered(image))),
        next_producer_id=image.next_producer_id,
        leader_epoch=max(epochs, default=-1),
    )


def _position(history: str, revision: int) -> str:
    number = history_number(history)
    return f"revision {revision} after recovery {number}" if number else f"revision {revision}"


def _listed(brokers: Collection[BrokerId]) -> str:
    numbers = ", ".join(map(str, sorted(brokers)))
    return f"broker {numbers}" if len(brokers) == 1 else f"brokers {numbers}"
