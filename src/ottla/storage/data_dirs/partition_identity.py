"""Which partition a folder belongs to, according to its `partition.metadata`.

The first two lines are Kafka's: version and topic id. Kafka reads no further. The topic's name and the partition's
index follow, by which swapped folders are recognised. Folders that Kafka wrote lack them.
"""

from dataclasses import dataclass

from ottla.env.ports import Disk
from ottla.model.base64_ids import parse_id
from ottla.model.errors import CorruptError
from ottla.model.ids import TopicPartition
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import read_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionIdentity:
    """The identity of a folder; None where the file does not say."""

    topic_id: str | None = None
    topic: str | None = None
    index: int | None = None
    problem: str | None = None
    """Why there is no topic id."""


def encode_identity(partition: TopicPartition, topic_id: str) -> bytes:
    """The content of `partition.metadata`."""
    return f"version: 0\ntopic_id: {topic_id}\ntopic: {partition.topic}\npartition: {partition.partition}\n".encode()


def read_identity(disk: Disk, folder: str) -> PartitionIdentity:
    """The identity of a partition's folder. A file without a valid topic id is not trusted at all."""
    path = f"{folder}/{names.PARTITION_METADATA}"
    if not disk.exists(path):
        return PartitionIdentity(problem=f"{path} is missing")
    try:
        properties = read_properties(disk, path, ":")
    except CorruptError as error:
        return PartitionIdentity(problem=str(error))
    topic_id = properties.get("topic_id", "")
    if parse_id(topic_id) is None:
        return PartitionIdentity(problem=f"{path}: {topic_id!r} is not a topic id")
    # A topic's name may end in anything; the index shows what a folder of that name would be.
    place = names.partition_of(f"{properties.get('topic', '')}-{properties.get('partition', '')}")
    if place is None:
        return PartitionIdentity(topic_id=topic_id)
    return PartitionIdentity(topic_id=topic_id, topic=place.topic, index=place.partition)
