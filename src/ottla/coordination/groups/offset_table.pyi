"""Types and promises of the compiled table of committed offsets."""

from collections.abc import Iterator
from typing import final
from uuid import UUID

from ottla.coordination.groups.records import CommittedOffset
from ottla.model.ids import TopicPartition
from ottla.protocol.offset_commits import CommitRows

@final
class OffsetTable:
    """The committed offsets of one group, by partition: topics in the order in which they came, then by number."""

    def __len__(self) -> int: ...
    def __contains__(self, partition: TopicPartition) -> bool: ...
    def __iter__(self) -> Iterator[TopicPartition]: ...
    def items(self) -> list[tuple[TopicPartition, CommittedOffset]]:
        """All offsets."""
    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        """The offset of a partition, if it has one."""
    def __setitem__(self, partition: TopicPartition, committed: CommittedOffset) -> None: ...
    def discard(self, partition: TopicPartition) -> None:
        """Removes the offset of a partition, if it has one."""
    def put(self, topic: str, topic_id: UUID | None, rows: CommitRows, commit_ms: int, turn: int) -> None:
        """The offset of each row of a topic; the first one's turn follows `turn`."""
