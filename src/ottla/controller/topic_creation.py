"""The operations that create a topic with its partitions and configs. Pure."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from ottla.metadata.image import PartitionImage
from ottla.metadata.records import (
    ConfigsRecord,
    TopicRecord,
    encode,
    partition_key,
    partition_record,
    topic_configs_key,
    topic_key,
)
from ottla.metadata.store import Operation, Put


def creation(
    name: str, topic_id: UUID, partitions: Iterable[PartitionImage], configs: Mapping[str, str]
) -> list[Operation]:
    """Creates a topic; none of its keys may exist."""
    operations: list[Operation] = [Put(topic_key(name), encode(TopicRecord(id=topic_id)), 0)]
    operations += [
        Put(partition_key(name, index), encode(partition_record(each)), 0) for index, each in enumerate(partitions)
    ]
    if configs:
        operations.append(Put(topic_configs_key(name), encode(ConfigsRecord(configs=dict(configs))), 0))
    return operations
