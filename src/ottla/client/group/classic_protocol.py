"""What this client's members of classic groups tell each other: subscriptions and assignments, whole, in version 3.

Older versions of other clients are read too; each has fewer fields. `classic_members.py` reads only what an
administrator wants to see.
"""

from collections.abc import Iterable
from typing import Final

from ottla.client.group.assignors.assignor import NO_GENERATION, MemberSubscription
from ottla.client.group.classic_fields import MemberFieldReader, MemberFieldWriter
from ottla.model.ids import TopicPartition

_VERSION: Final = 3


def write_subscription(subscription: MemberSubscription) -> bytes:
    """What a member wants and has; its instance id travels beside it, in the request."""
    fields = MemberFieldWriter()
    fields.int16(_VERSION)
    fields.texts(subscription.topics)
    fields.blob(subscription.user_data)
    fields.partitions(subscription.owned)
    fields.int32(NO_GENERATION if subscription.generation is None else subscription.generation)
    fields.text(subscription.rack_id)
    return fields.finish()


def read_subscription(data: bytes, instance_id: str | None = None) -> MemberSubscription:
    """What another member wants and has; raises `UnreadableMemberError`."""
    fields = MemberFieldReader(data)
    version = fields.int16()
    topics = fields.texts()
    user_data = fields.blob()
    owned = fields.partitions() if version >= 1 else ()
    generation = fields.int32() if version >= 2 else NO_GENERATION
    rack_id = fields.text() if version >= 3 else None
    return MemberSubscription(
        topics=topics,
        owned=owned,
        generation=None if generation < 0 else generation,
        instance_id=instance_id,
        rack_id=rack_id or None,
        user_data=user_data,
    )


def write_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """What the leader gives to a member."""
    fields = MemberFieldWriter()
    fields.int16(_VERSION)
    fields.partitions(partitions)
    fields.blob(None)
    return fields.finish()


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What the leader gave to this member, in its order; nothing if there are no bytes. Raises for what is none."""
    if not data:
        return ()
    fields = MemberFieldReader(data)
    fields.int16()
    return fields.partitions()
