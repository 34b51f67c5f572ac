"""Subscriptions and assignments of classic groups, between the values of assignors and the bytes of the protocol."""

from collections.abc import Iterable

from ottla.client.group.assignors.assignor import NO_GENERATION, MemberSubscription
from ottla.model.ids import TopicPartition
from ottla.protocol import consumer_protocol as protocol


def write_subscription(subscription: MemberSubscription) -> bytes:
    """A member's subscription; its instance id is a field of the JoinGroup request."""
    return protocol.write_subscription(
        protocol.Subscription(
            topics=subscription.topics,
            user_data=subscription.user_data,
            owned=_by_topic(subscription.owned),
            generation=NO_GENERATION if subscription.generation is None else subscription.generation,
            rack_id=subscription.rack_id,
        )
    )


def read_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """A member's subscription. Raises `ConsumerProtocolError`."""
    found = protocol.read_subscription(data)
    return MemberSubscription(
        topics=found.topics,
        owned=partitions_of(found.owned),
        generation=None if found.generation < 0 else found.generation,
        instance_id=instance_id,
        rack_id=found.rack_id or None,
        user_data=found.user_data,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """The partitions that the leader assigns to a member."""
    return protocol.write_assignment(_by_topic(partitions))


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions assigned to a member; none if there are no bytes. Raises `ConsumerProtocolError`."""
    return partitions_of(protocol.read_assignment(data).partitions)


def partitions_of(by_topic: protocol.PartitionsByTopic) -> tuple[TopicPartition, ...]:
    """The partitions in the order of the bytes."""
    return tuple(TopicPartition(topic, index) for topic, indexes in by_topic.items() for index in indexes)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return {topic: tuple(indexes) for topic, indexes in found.items()}
