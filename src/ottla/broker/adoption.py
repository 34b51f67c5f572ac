"""Takes over a data dir that a broker without our metadata wrote: Apache Kafka's, or ours after its metadata was lost.

At the very first start of a cluster, the folders that are there become its topics, with the ids that they carry, and
the cluster takes over the id that the data dir has. Nothing in the folders is changed. The topics' configs are not in
them; so that no default deletes what a topic was to keep, each gets `retention.ms=-1` until somebody sets its configs
again. Once a cluster has metadata, that alone says what exists.
"""

import logging
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ottla.controller.topics_state import new_id
from ottla.env.ports import Disk, Random
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import (
    CLUSTER_KEY,
    ClusterRecord,
    ConfigsRecord,
    TopicRecord,
    encode,
    partition_key,
    partition_record,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import MetadataStore, Operation, Put
from ottla.model.errors import CorruptError
from ottla.model.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.storage import names
from ottla.storage.checkpoints import read_epochs, read_properties
from ottla.storage.data_dir import DataDir
from ottla.storage.scanner import DamagedSegmentError, scan_file

_LOGGER: Final = logging.getLogger(__name__)

KEEP_EVERYTHING: Final = {"retention.ms": "-1"}


async def adopt_data_dirs(
    store: MetadataStore, disk: Disk, data_dirs: Sequence[str], broker_id: BrokerId, random: Random
) -> None:
    """Makes the folders' topics the cluster's, if the cluster has no metadata yet and the folders have an identity."""
    _, entries = await store.snapshot()
    if any(entry.key == CLUSTER_KEY for entry in entries):
        return
    cluster_id = _cluster_id(disk, data_dirs)
    if cluster_id is None:
        return
    folders: dict[TopicPartition, str] = {}
    for path in data_dirs:
        if disk.exists(path):
            folders |= DataDir(disk, path).partitions()
    operations: list[Operation] = [Put(CLUSTER_KEY, encode(ClusterRecord(id=cluster_id)), 0)]
    topics = sorted({partition.topic for partition in folders})
    for topic in topics:
        operations += _adopt_topic(disk, topic, folders, broker_id, random)
    await store.commit(operations)
    _LOGGER.warning(
        "the data dir has no metadata of ours: took over cluster %s with %d topics from its folders; their configs are"
        " lost, and they keep everything until you set them again",
        cluster_id,
        len(topics),
    )


def _adopt_topic(
    disk: Disk, topic: str, folders: dict[TopicPartition, str], broker_id: BrokerId, random: Random
) -> list[Operation]:
    held = {partition.partition: path for partition, path in folders.items() if partition.topic == topic}
    ids = [found for path in held.values() if (found := _topic_id(disk, path)) is not None]
    operations: list[Operation] = [
        Put(topic_key(topic), encode(TopicRecord(id=ids[0] if ids else new_id(random))), 0),
        Put(topic_configs_key(topic), encode(ConfigsRecord(configs=KEEP_EVERYTHING)), 0),
    ]
    for index in range(max(held) + 1):
        image = PartitionImage(
            replicas=(broker_id,),
            isr=(broker_id,),
            leader=broker_id,
            leader_epoch=_next_epoch(disk, held.get(index)),
        )
        operations.append(Put(partition_key(topic, index), encode(partition_record(image)), 0))
    return operations


def _cluster_id(disk: Disk, data_dirs: Sequence[str]) -> str | None:
    for path in data_dirs:
        file = f"{path}/{names.META_PROPERTIES}"
        if disk.exists(file):
            return read_properties(disk, file).get("cluster.id")
    return None


def _topic_id(disk: Disk, folder: str) -> UUID | None:
    file = f"{folder}/{names.PARTITION_METADATA}"
    if not disk.exists(file):
        return None
    text = read_properties(disk, file, ":").get("topic_id", "")
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise CorruptError(f"{file}: {text!r} is no topic id; correct it, or remove the file") from error


def _next_epoch(disk: Disk, folder: str | None) -> LeaderEpoch:
    """A leader epoch that no batch in the folder has, by its history of epochs and by its last batches.

    The history may be gone, or have been written before them.
    """
    if folder is None:
        return LeaderEpoch(0)
    file = f"{folder}/{names.EPOCHS}"
    known = read_epochs(disk, file) if disk.exists(file) else {}
    return LeaderEpoch(max([*known, _last_batch_epoch(disk, folder)]) + 1)


def _last_batch_epoch(disk: Disk, folder: str) -> int:
    """The epoch of the last batch that can be read; -1 if there is none. Epochs never go down within a log."""
    for name in sorted((each for each in disk.list_dir(folder) if each.endswith(names.LOG)), reverse=True):
        if names.base_offset_of(name) is None:
            continue
        latest = -1
        segment = disk.open(f"{folder}/{name}", writable=False)
        try:
            for piece in scan_file(segment, 0, segment.size(), check_crc=False):
                latest = max([latest, *(batch.leader_epoch for batch in piece.batches)])
        except DamagedSegmentError:
            pass  # Whether the log ends there is decided by its recovery.
        finally:
            segment.close()
        if latest >= 0:
            return latest
    return -1
