"""What consumers of classic groups tell each other through their coordinator: what they want, and what they were given.

Covers the parts that an administrator wants to see, which are the same in all versions. The bytes are those of any
client, so they are read with bounds; what cannot be read raises `UnreadableMemberError`.
"""

from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.model.errors import CorruptError
from ottla.model.ids import TopicPartition

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""Groups of this protocol type speak so; others, such as those of Kafka Connect, have their own bytes."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_VERSION_BYTES: Final = 2


class UnreadableMemberError(CorruptError):
    """A member's bytes are not what a consumer says."""


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that a member was given, in order; none if there are no bytes at all."""
    if not data:
        return ()
    found: list[TopicPartition] = []
    # A count that lies soon meets the end: every element takes bytes.
    topics, at = _number(data, _VERSION_BYTES, _INT32)
    for _ in range(topics):
        topic, at = _text(data, at)
        partitions, at = _number(data, at, _INT32)
        for _ in range(partitions):
            partition, at = _number(data, at, _INT32)
            found.append(TopicPartition(topic, partition))
    return tuple(sorted(found))


def read_subscription(data: bytes) -> tuple[str, ...]:
    """The topics that a member wants; none if there are no bytes at all, as while a group rebalances."""
    if not data:
        return ()
    topics: list[str] = []
    count, at = _number(data, _VERSION_BYTES, _INT32)
    for _ in range(count):
        topic, at = _text(data, at)
        topics.append(topic)
    return tuple(topics)


def _text(data: bytes, at: int) -> tuple[str, int]:
    size, at = _number(data, at, _INT16)
    if not 0 <= size <= len(data) - at:
        raise UnreadableMemberError(f"a text of {size} bytes is announced at byte {at} of {len(data)}")
    return data[at : at + size].decode("utf-8", "replace"), at + size


def _number(data: bytes, at: int, kind: Struct) -> tuple[int, int]:
    try:
        (value,) = kind.unpack_from(data, at)
    except StructError as error:
        raise UnreadableMemberError(f"it ends at byte {len(data)}, within a number") from error
    return int(value), at + kind.size
