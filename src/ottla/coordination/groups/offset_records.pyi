"""Types and promises of the compiled records of committed offsets."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from ottla.coordination.groups.offsets_state import CommittedOffset
from ottla.coordination.runtime.effects import CoordinatorRecord
from ottla.model.ids import TopicPartition

def offset_records(
    group_id: str, topics: Iterable[tuple[str, UUID | None, list[tuple[int, int, int, str | None]]]], commit_ms: int
) -> tuple[CoordinatorRecord, ...]:
    """A record for each row (partition, offset, leader epoch, metadata) of each topic, as `offset_record` makes it."""

def read_offset_records(
    records: Sequence[CoordinatorRecord], turn: int
) -> tuple[str, list[tuple[TopicPartition, CommittedOffset]]] | None:
    """The one group that all these records are of, and its offsets in their order; the first one's turn follows `turn`.

    None unless every one of them is a committed offset of the same group in the form that `offset_records` writes.
    """
