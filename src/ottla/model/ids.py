"""Ids, offsets and epochs as distinct types, so that the type checker keeps one from being used as another."""

from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""A record's position in its partition's log. An *end offset* is exclusive, a *last offset* inclusive."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders of a partition; each epoch has at most one leader."""

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
"""Counts the restarts of one producer id; a lower epoch is fenced."""

Sequence = NewType("Sequence", int)
"""A producer's sequence number per partition; wraps from 2^31-1 to 0."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970, UTC."""

BrokerId = NewType("BrokerId", int)

NO_OFFSET: Final = Offset(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = Sequence(-1)
NO_TIMESTAMP: Final = TimestampMs(-1)

QUEUE_PRODUCER_BIT: Final = 1 << 62
"""Set in the producer ids with which queues deliver: logs never forget the sequences of these producers, since a
delivery may be repeated after any time. Ids of clients are allocated from 0 and never get that far."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
