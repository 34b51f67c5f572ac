"""What share consumers return and take: records with a delivery count, and how they are acknowledged."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.client.values import Header
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition


class AcknowledgeType(IntEnum):
    """How a record is acknowledged; the values are those of the protocol."""

    ACCEPT = 1
    """The record was processed; the group is done with it."""
    RELEASE = 2
    """The record was not processed; it is delivered again, up to the group's delivery limit."""
    REJECT = 3
    """The record cannot be processed; it is not delivered again."""
    RENEW = 4
    """The record is still being processed; its acquisition lock starts again, and the next `poll` returns it again."""


class ShareRecord(NamedTuple):
    """A record of a share consumer: the fields of `ConsumerRecord`, and how many times it was delivered."""

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
    delivery_count: int
    """1 for the first delivery."""


ShareRecords = dict[TopicPartition, list[ShareRecord]]
AcknowledgementCommitCallback = Callable[[Mapping[TopicPartition, frozenset[int]], OttlaError | None], object]
"""Called with the offsets of one acknowledgement by partition, and the error or None."""
