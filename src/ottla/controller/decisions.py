"""What is asked of the controller, and what it answers: plain data, free of the wire protocol.

Each question has one outcome for each of its items, in their order; a decision adds the operations that make it true.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from ottla.metadata.store import Operation
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import BrokerId

T = TypeVar("T")


class Assignment(NamedTuple):
    """The replicas that a client chose for a partition, the preferred leader first."""

    partition: int
    replicas: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What a new topic gets where its creator leaves it to the broker."""

    partition_count: int = 1
    replication_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. A count of -1 asks for the default; with `assignments` both counts must be -1."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: tuple[Assignment, ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReference:
    """A topic by its name or by its id, not both."""

    name: str | None = None
    id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPartitions:
    """A topic to have `partition_count` partitions in all; `assignments` for the new ones, in order, or None."""

    topic: str
    partition_count: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    """A partition to be moved to these replicas; with None a move that is under way is taken back."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutcome:
    """What became of one topic. Counts are -1 where there is no topic to count in."""

    name: str | None
    id: UUID | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """What became of one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[T]):
    """Outcomes that are true once the operations are committed; without operations they are true already."""

    operations: tuple[Operation, ...] = ()
    outcomes: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Generic[T]):
    """Outcomes that are true in every image from `revision` on."""

    revision: int
    outcomes: tuple[T, ...]


class Refusal(Exception):
    """One item cannot be done; its outcome carries this. Raised and caught within a decision, never beyond it."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
