"""Which replica a consumer reads from: the leader, or where the configs say so, one in the consumer's rack.

A follower serves what it knows to be committed, which is a little behind its leader. The Fetch handler asks here.
"""

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.metadata.broker_configs import RACK_AWARE_SELECTOR
from ottla.model.errors import OffsetNotAvailableError
from ottla.model.ids import BrokerId, Offset, TopicPartition
from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


def is_rack_aware(broker: "Broker") -> bool:
    """Whether consumers may read followers here."""
    return broker.config.values.get("replica.selector.class") == RACK_AWARE_SELECTOR


def nearer_replica(broker: "Broker", partition: Partition, rack: str, offset: Offset) -> BrokerId | None:
    """The follower that a consumer of this rack should read from this offset on; None where it is the leader.

    It is in sync and has the offset; of several, the one that has come farthest.
    """
    leader, brokers = partition.leader, broker.image.brokers
    if leader is None or not leader.followers or broker.static_config.broker_rack == rack:
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


def copy_to_read(broker: "Broker", topic: str | bytes, index: int) -> Partition | None:
    """The copy of a partition that this broker follows, by the topic's name or its id as 16 bytes."""
    if isinstance(topic, bytes):
        found = broker.image.topics_by_id.get(UUID(bytes=topic))
        if found is None:
            return None
        topic = found.name
    partition = broker.partitions.held.get(TopicPartition(topic, index))
    return partition if partition is not None and partition.follower is not None else None


def check_copy_has(partition: Partition, offset: Offset) -> None:
    """Raises if the copy is not yet known to be committed as far as its reader has come from another one."""
    if offset > partition.high_watermark:
        raise OffsetNotAvailableError(
            f"the copy of {partition.topic}-{partition.index} here is committed up to {partition.high_watermark}, the"
            f" reader is at {offset}; try again, or ask the leader"
        )
