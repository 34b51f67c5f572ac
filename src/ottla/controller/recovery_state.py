"""Recovers lost metadata from the partition folders of the brokers. Pure.

An empty store adopts all topics that are found in the folders. A store that was restored from an older backup has
topics, but not what happened to them since; topics that it does not have stay unknown. In both cases the brokers with a
folder of a partition become its replicas. The replica whose log goes furthest, by last leader epoch and end offset,
leads and is the only one in sync: everything that was committed in the newest epoch is in the longest log of that
epoch, and everything committed before is in all logs of that epoch. The others copy from it. This is true only if all
brokers have reported their folders, so that nothing is decided earlier.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from ottla.env.ports import Random
from ottla.metadata.configs.topic_configs import RECOVERED
from ottla.metadata.image import ClusterImage, PartitionImage, TopicImage
from ottla.metadata.records import (
    PRODUCER_IDS_KEY,
    ClaimsRecord,
    ConfigsRecord,
    FolderClaim,
    ProducerIdsRecord,
    TopicRecord,
    encode,
    partition_key,
    partition_record,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Operation, Put
from ottla.model.base64_ids import new_id
from ottla.model.ids import BrokerId, LeaderEpoch

KEEP_EVERYTHING: Final = {"retention.ms": "-1", RECOVERED: "true"}
"""Configs of an adopted topic: its own are lost, and no default may delete records that it was to keep. The mark, which
clients cannot set, says that it may have been a companion (`companions_state.py`)."""
LEADER_EPOCHS_SKIPPED: Final = 100
"""More elections of one partition than are possible after brokers last recorded the newest leader epoch."""
PRODUCER_IDS_SKIPPED: Final = 1_000_000
"""More producer ids than brokers can have allocated after they last recorded the newest one."""


class Holder(NamedTuple):
    """A broker with a folder of a partition."""

    broker: BrokerId
    claim: FolderClaim


def decide_empty_store(claims: Mapping[BrokerId, ClaimsRecord], random: Random) -> list[Operation]:
    """All topics found in the folders, for an empty store."""
    operations: list[Operation] = []
    taken: set[UUID] = set()
    epoch = _newest_epoch(claims)
    holders = _holders(claims)
    counts = Counter(name for name, _ in holders)
    # Names with many folders first: a single folder with the id of another topic must not take that id from it.
    for name in sorted(counts, key=lambda each: (-counts[each], each)):
        of_topic = {index: found for (topic, index), found in holders.items() if topic == name}
        topic_id = _topic_id(of_topic.values(), taken)
        if topic_id is None:
            if any(each.claim.topic_id is not None for found in of_topic.values() for each in found):
                continue
            topic_id = new_id(random.randbytes)
        taken.add(topic_id)
        operations += [
            Put(topic_key(name), encode(TopicRecord(id=topic_id)), 0),
            Put(topic_configs_key(name), encode(ConfigsRecord(configs=KEEP_EVERYTHING)), 0),
        ]
        operations += _partitions(name, topic_id, of_topic, {}, ClusterImage(), epoch)
    return [*operations, *_producer_ids(ClusterImage(), claims)]


def decide_older_store(image: ClusterImage, claims: Mapping[BrokerId, ClaimsRecord]) -> list[Operation]:
    """The topics of an older store, with partitions updated from the folders."""
    operations: list[Operation] = []
    epoch = _newest_epoch(claims)
    holders = _holders(claims)
    by_topic: dict[str, dict[int, list[Holder]]] = {}
    for (name, index), found in holders.items():
        by_topic.setdefault(name, {})[index] = found
    for name, topic in image.topics.items():
        of_topic = by_topic.get(name, {})
        known = dict(enumerate(topic.partitions))
        changed = _partitions(name, topic.id, of_topic, known, image, epoch)
        if changed:
            key = topic_key(name)
            operations.append(Put(key, encode(TopicRecord(id=topic.id)), image.revision_of(key)))
        operations += changed
    return [*operations, *_producer_ids(image, claims)]


def unknown_topics(image: ClusterImage, claims: Mapping[BrokerId, ClaimsRecord]) -> list[str]:
    """The topics that only exist as folders, which will be set aside."""
    return sorted(
        {
            claim.topic
            for record in claims.values()
            for claim in record.folders
            if not _belongs(claim, image.topics.get(claim.topic))
        }
    )


def _belongs(claim: FolderClaim, topic: TopicImage | None) -> bool:
    return topic is not None and claim.topic_id in (None, topic.id)


def _holders(claims: Mapping[BrokerId, ClaimsRecord]) -> dict[tuple[str, int], list[Holder]]:
    found: dict[tuple[str, int], list[Holder]] = {}
    for broker, record in sorted(claims.items()):
        for claim in record.folders:
            found.setdefault((claim.topic, claim.partition), []).append(Holder(broker, claim))
    return found


def _topic_id(partitions: Iterable[Sequence[Holder]], taken: set[UUID]) -> UUID | None:
    """The id of most folders of a topic, then of those with most records; the other folders belong to another topic."""
    counts: Counter[UUID] = Counter()
    records: Counter[UUID] = Counter()
    for found in partitions:
        for _, claim in found:
            if claim.topic_id is not None and claim.topic_id not in taken:
                counts[claim.topic_id] += 1
                records[claim.topic_id] += claim.end_offset
    return max(counts, key=lambda each: (counts[each], records[each], each.bytes), default=None)


def _partitions(
    name: str,
    topic_id: UUID,
    holders: Mapping[int, Sequence[Holder]],
    known: Mapping[int, PartitionImage],
    image: ClusterImage,
    epoch: int,
) -> list[Operation]:
    """The records of a topic's partitions: those with folders, and those between them."""
    held = {
        index: of_topic
        for index, found in holders.items()
        if (of_topic := [each for each in found if each.claim.topic_id in (None, topic_id)])
    }
    if not held:
        return []
    somewhere = _recovered(0, next(iter(held.values())), None, epoch)
    operations: list[Operation] = []
    for index in range(max(max(held) + 1, len(known))):
        before = known.get(index)
        if index in held:
            partition = _recovered(index, held[index], before, epoch)
        elif before is None:
            # No broker has it: it begins empty, on the brokers of another partition of the topic.
            partition = replace(somewhere, leader_epoch=LeaderEpoch(max(epoch, 0) + LEADER_EPOCHS_SKIPPED))
        else:
            continue
        key = partition_key(name, index)
        operations.append(Put(key, encode(partition_record(partition)), image.revision_of(key)))
    return operations


def _newest_epoch(claims: Mapping[BrokerId, ClaimsRecord]) -> int:
    return max((record.leader_epoch for record in claims.values()), default=-1)


def _recovered(index: int, holders: Sequence[Holder], before: PartitionImage | None, epoch: int) -> PartitionImage:
    longest = max((claim.last_epoch, claim.end_offset) for _, claim in holders)
    equal = [broker for broker, claim in holders if (claim.last_epoch, claim.end_offset) == longest]
    leader = equal[index % len(equal)]
    epochs = [epoch, *(max(claim.last_epoch, claim.known_epoch) for _, claim in holders)]
    if before is not None:
        epochs.append(before.leader_epoch)
    return PartitionImage(
        replicas=(leader, *(broker for broker, _ in holders if broker != leader)),
        isr=(leader,),
        leader=leader,
        leader_epoch=LeaderEpoch(max(epochs) + LEADER_EPOCHS_SKIPPED),
        partition_epoch=0 if before is None else before.partition_epoch + 1,
    )


def _producer_ids(image: ClusterImage, claims: Mapping[BrokerId, ClaimsRecord]) -> list[Operation]:
    """A producer id must not be allocated twice: a log would take the new producer's batches for retries of the old
    one."""
    highest = max([image.next_producer_id, *(record.next_producer_id for record in claims.values())])
    record = ProducerIdsRecord(next_id=highest + PRODUCER_IDS_SKIPPED)
    return [Put(PRODUCER_IDS_KEY, encode(record), image.revision_of(PRODUCER_IDS_KEY))]
