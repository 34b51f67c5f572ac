"""Types and promises of the compiled records of committed offsets."""

from collections.abc import Iterable, Iterator, Sequence
from typing import final
from uuid import UUID

from ottla.coordination.groups.records import CommittedOffset
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.ids import TopicPartition
from ottla.protocol.offset_commits import CommitRows, PartitionCommit

class TopicRecords:
    """The records of one topic."""

    topic: str
    topic_id: UUID | None
    rows: CommitRows

@final
class OffsetRecords:
    """The records of one commit, in the order of their rows; each becomes an object when it is asked for."""

    group_id: str
    topics: list[TopicRecords]
    commit_ms: int

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[CoordinatorRecord]: ...
    def batch(self, timestamp: int) -> bytearray:
        """A whole batch of them, as `BatchBuilder` makes it; raises BatchTooLargeError if none holds them."""

def offset_records(
    group_id: str,
    topics: Iterable[tuple[str, UUID | None, CommitRows | Sequence[PartitionCommit]]],
    commit_ms: int,
) -> OffsetRecords:
    """A record for each row (partition, offset, leader epoch, metadata) of each topic, as `offset_record` makes it."""

def read_offset_records(
    records: Iterable[CoordinatorRecord], turn: int
) -> tuple[str, list[tuple[TopicPartition, CommittedOffset]]] | None:
    """The one group that all these records are of, and its offsets in their order; the first one's turn follows `turn`.

    None unless every one of them is a committed offset of the same group in the form that `offset_records` writes.
    """
