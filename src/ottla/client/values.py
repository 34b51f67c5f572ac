"""The values that clients take and return: records, their metadata, offsets, and group membership.

Names and fields are those of kafka-python.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.model.ids import TopicPartition

NO_MEMBER_ID = ""
Header = tuple[str, bytes | None]


class RecordMetadata(NamedTuple):
    """Where a record was written. With `acks=0` the offset is unknown, and -1."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    """In milliseconds: the record's own, or the broker's if the topic uses LogAppendTime."""
    serialized_key_size: int
    """-1 without a key; the same for the value."""
    serialized_value_size: int


class ConsumerRecord(NamedTuple):
    """A record that was read; key and value are deserialized."""

    topic: str
    partition: int
    leader_epoch: int | None
    offset: int
    timestamp: int
    timestamp_type: int
    """0 for CreateTime, 1 for LogAppendTime."""
    key: Any
    value: Any
    headers: Sequence[Header]
    serialized_key_size: int
    serialized_value_size: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is the next one to read, and its metadata."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """An offset that was looked up by timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """The membership of a consumer in its group; it fences transactions that commit the group's offsets."""

    group_id: str
    generation_id: int = -1
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
