"""The consumer protocol: subscriptions and assignments that members of classic groups exchange through JoinGroup and
SyncGroup.

Versions 0 to 3, read and written by kio behind the version number. A newer version is read as version 3: it can only
have further fields at its end. A null array is read as an empty one, except by `read_topics`. The bytes come from any
client; what cannot be read raises `ConsumerProtocolError`.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from kio.schema.consumer_protocol_assignment.v3.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_assignment.v3.data import TopicPartition as AssignedTopic
from kio.schema.consumer_protocol_subscription.v0.data import ConsumerProtocolSubscription as SubscriptionV0
from kio.schema.consumer_protocol_subscription.v1.data import ConsumerProtocolSubscription as SubscriptionV1
from kio.schema.consumer_protocol_subscription.v2.data import ConsumerProtocolSubscription as SubscriptionV2
from kio.schema.consumer_protocol_subscription.v3.data import ConsumerProtocolSubscription as SubscriptionV3
from kio.schema.consumer_protocol_subscription.v3.data import TopicPartition as OwnedTopic
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.serial.readers import legacy_array_reader, read_legacy_string
from kio.static.primitive import i32

from ottla.model.errors import CorruptError

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members speak this protocol. Others, such as Kafka Connect's, have their own."""

NO_GENERATION: Final = -1
_VERSION_MAX: Final = 3
_VERSION_BYTES: Final = 2

PartitionsByTopic = Mapping[str, tuple[int, ...]]


class ConsumerProtocolError(CorruptError):
    """A member's metadata or assignment does not follow the consumer protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a consumer wants, and what it still owns from the generation before."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: PartitionsByTopic
    """Empty for a member that gives up all partitions before it joins, and in version 0."""
    generation: int = NO_GENERATION
    """The generation in which the member got what it owns; since version 2."""
    rack_id: str | None = None
    """Since version 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The partitions that the leader gave to a member, and what its assignor added."""

    partitions: PartitionsByTopic
    user_data: bytes | None = None


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment; nothing else in it is looked at."""
    return int.from_bytes(data[:_VERSION_BYTES], signed=True)


def read_subscription(data: bytes) -> Subscription:
    """The subscription in a member's metadata."""
    version = min(max(version_of(data), 0), _VERSION_MAX)
    found = _read(_SUBSCRIPTIONS[version], data, "subscription")
    return Subscription(
        topics=found.topics or (),
        user_data=found.user_data,
        owned=_by_topic(found.owned_partitions) if version >= 1 else {},
        generation=found.generation_id if version >= 2 else NO_GENERATION,
        rack_id=found.rack_id if version >= 3 else None,
    )


def read_topics(data: bytes) -> tuple[str, ...]:
    """The topics of a subscription, which come first in all versions; later fields may be missing or malformed."""
    topics: tuple[str, ...] | None = _read(_read_texts, data, "subscription")
    if topics is None:
        raise ConsumerProtocolError("malformed consumer protocol subscription: its topics are null")
    return topics


def read_assignment(data: bytes) -> Assignment:
    """A member's assignment; no bytes are an empty one."""
    if not data:
        return Assignment(partitions={})
    found = _read(_read_assignment, data, "assignment")
    return Assignment(partitions=_by_topic(found.assigned_partitions), user_data=found.user_data)


def write_subscription(subscription: Subscription) -> bytes:
    """A member's metadata, in version 3."""
    owned = [
        OwnedTopic(topic=TopicName(topic), partitions=cast("tuple[i32, ...]", partitions))
        for topic, partitions in subscription.owned.items()
    ]
    message = SubscriptionV3(
        topics=subscription.topics,
        user_data=subscription.user_data,
        owned_partitions=tuple(owned),
        generation_id=i32(subscription.generation),
        rack_id=subscription.rack_id,
    )
    return _write(_write_subscription, message, _VERSION_MAX)


def write_assignment(partitions: PartitionsByTopic, version: int = _VERSION_MAX) -> bytes:
    """An assignment, in the version of the member's subscription; all versions have the same fields."""
    topics = [
        AssignedTopic(topic=TopicName(topic), partitions=cast("tuple[i32, ...]", indexes))
        for topic, indexes in partitions.items()
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=tuple(topics), user_data=None)
    return _write(_write_assignment, message, min(max(version, 0), _VERSION_MAX))


_SUBSCRIPTIONS: Final = [
    entity_reader(each) for each in (SubscriptionV0, SubscriptionV1, SubscriptionV2, SubscriptionV3)
]
_read_texts: Final = legacy_array_reader(read_legacy_string)
_read_assignment: Final = entity_reader(ConsumerProtocolAssignment)
_write_subscription: Final = entity_writer(SubscriptionV3)
_write_assignment: Final = entity_writer(ConsumerProtocolAssignment)


def _read(read: Callable[[bytes, int], tuple[Any, int]], data: bytes, what: str) -> Any:
    try:
        return read(data, _VERSION_BYTES)[0]
    except (SerialError, ValueError) as error:
        raise ConsumerProtocolError(f"malformed consumer protocol {what} ({len(data)} bytes): {error}") from None


def _by_topic(topics: Iterable[Any] | None) -> PartitionsByTopic:
    """Partitions by topic; a null array is an empty one, and a topic that is there twice has the partitions of both."""
    found: dict[str, tuple[int, ...]] = {}
    for each in topics or ():
        found[each.topic] = found.get(each.topic, ()) + (each.partitions or ())
    return found


def _write(write: Callable[[Any, Any], object], message: Any, version: int) -> bytes:
    buffer = io.BytesIO()
    buffer.write(version.to_bytes(_VERSION_BYTES))
    write(buffer, message)
    return buffer.getvalue()
