"""Types and promises of the compiled OffsetCommit."""

from collections.abc import Iterable, Iterator
from typing import final
from uuid import UUID

from typing_extensions import Buffer

PartitionCommit = tuple[int, int, int, str | None]
"""Partition, offset, leader epoch (-1 where the version has none), metadata."""

@final
class CommitRows:
    """Offsets of one topic, as an array; iteration makes a tuple of each."""

    def __init__(self, rows: Iterable[PartitionCommit] = ()) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, at: int) -> PartitionCommit: ...
    def __iter__(self) -> Iterator[PartitionCommit]: ...

@final
class TopicCommits:
    """The offsets of one topic, which versions below 10 name, and later ones know by its id; there is at least one."""

    name: str | None
    topic_id: UUID | None
    partitions: CommitRows
    lowest: int
    """The lowest partition that is named."""
    highest: int

@final
class OffsetCommit:
    """The request. Numbers that its version lacks are -1, texts None; a topic without offsets is left out."""

    version: int
    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    retention_ms: int
    topics: list[TopicCommits]
    metadata_bytes_max: int
    """The size of the longest metadata."""

    def answer(self, outcomes: list[list[int]]) -> bytes:
        """The response's body: for each topic the error codes of its offsets, in their order."""
    def answer_all(self, error: int) -> bytes:
        """The response's body where all offsets have the same error code."""

def read_offset_commit(version: int, body: Buffer) -> OffsetCommit:
    """A request's body in any served version; raises ShapeError or UnicodeDecodeError if it is none.

    As careful with strangers as `shapes.py`: counts, lengths and nulls are checked, tagged fields stepped over.
    """
