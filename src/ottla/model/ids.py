"""Ids, offsets and epochs as distinct types, so that the type checker keeps one from being used as another."""

from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""A record's place in its partition's log. An *end offset* is exclusive, a *last offset* inclusive."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""Counts the leaders a partition has had; each epoch has one leader at most."""

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
"""Counts the incarnations of one producer id; a lower one is fenced."""

Sequence = NewType("Sequence", int)
"""A producer's running number per partition; wraps from 2^31-1 to 0."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since 1970, UTC."""

BrokerId = NewType("BrokerId", int)

NO_OFFSET: Final = Offset(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = ProducerEpoch(-1)
NO_SEQUENCE: Final = Sequence(-1)
NO_TIMESTAMP: Final = TimestampMs(-1)


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
