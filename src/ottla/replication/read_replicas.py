"""Which replica a consumer reads from: the leader, or where the configs say so, one in the consumer's rack.

A follower serves what it knows to be committed, which is a little behind its leader. The Fetch handler asks here.
"""

from collections.abc import Mapping
from uuid import UUID

from ottla.metadata.configs.broker_configs import RACK_AWARE_SELECTOR
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.model.errors import OffsetNotAvailableError
from ottla.model.ids import BrokerId, Offset, TopicPartition
from ottla.replication.partition import Partition
from ottla.replication.partition_table import PartitionTable


def is_rack_aware(configs: Mapping[str, object]) -> bool:
    """Whether a broker with these configs lets consumers read from followers."""
    return configs.get("replica.selector.class") == RACK_AWARE_SELECTOR


def nearer_replica(
    partition: Partition, offset: Offset, rack: str, brokers: Mapping[BrokerId, BrokerImage]
) -> BrokerId | None:
    """The follower in this rack that a consumer should read from this offset on; None if there is none.

    It is in sync and has the offset; of several, the one that is furthest ahead.
    """
    leader = partition.leader
    if leader is None or not leader.followers:
        return None
    near = [
        (follower.end_offset, -each)
        for each, follower in leader.followers.items()
        if each in leader.isr
        and each in brokers
        and brokers[each].rack == rack
        and follower.start_offset <= offset <= follower.end_offset
    ]
    return BrokerId(-max(near)[1]) if near else None


def copy_to_read(image: ClusterImage, partitions: PartitionTable, topic: str | bytes, index: int) -> Partition | None:
    """The copy of a partition that this broker follows, by the topic's name or its id as 16 bytes."""
    if isinstance(topic, bytes):
        found = image.topics_by_id.get(UUID(bytes=topic))
        if found is None:
            return None
        topic = found.name
    partition = partitions.held.get(TopicPartition(topic, index))
    return partition if partition is not None and partition.follower is not None else None


def check_copy_has(partition: Partition, offset: Offset) -> None:
    """Raises if the fetch offset is above the high watermark that this follower knows."""
    if offset > partition.high_watermark:
        raise OffsetNotAvailableError(
            f"the high watermark of {partition.topic}-{partition.index} is {partition.high_watermark} on this follower,"
            f" below the fetch offset {offset}; retry, or fetch from the leader"
        )
