"""The values that clients take and give: records, where they went, offsets, and who a consumer is in its group.

Names and fields are those that kafka-python's users know.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ottla.model.ids import TopicPartition

NO_MEMBER_ID = ""
Header = tuple[str, bytes | None]


class RecordMetadata(NamedTuple):
    """Where a record went. Without acknowledgement (`acks=0`) nobody knows: the offset is -1."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    """In milliseconds: the record's own, or the broker's if the topic says so."""
    serialized_key_size: int
    """-1 without a key, and likewise below."""
    serialized_value_size: int


class ConsumerRecord(NamedTuple):
    """A record as it was read; key and value as the deserializers made them."""

    topic: str
    partition: int
    leader_epoch: int | None
    offset: int
    timestamp: int
    timestamp_type: int
    """0 for the producer's time, 1 for the broker's."""
    key: Any
    value: Any
    headers: Sequence[Header]
    serialized_key_size: int
    serialized_value_size: int


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, the next one to read, and what to keep beside it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMetadata:
    """Who a consumer is in its group at this moment; a transaction that commits its offsets is fenced by it."""

    group_id: str
    generation_id: int = -1
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
