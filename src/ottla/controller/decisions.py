"""Requests to the controller and their outcomes: plain data, independent of the wire protocol.

Each request has one outcome for each of its items, in order; a decision adds the operations to commit.
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


class ReplicaAssignment(NamedTuple):
    """The replicas that a client chose for a partition, the preferred leader first."""

    partition: int
    replicas: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """The defaults of a new topic."""

    partition_count: int = 1
    replication_factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create. A count of -1 asks for the default; with `assignments` both counts must be -1."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: tuple[ReplicaAssignment, ...] = ()
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
    """A partition to move to these replicas; None cancels a move in progress."""

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutcome:
    """The outcome for one topic. Counts are -1 if there is no topic."""

    name: str | None
    id: UUID | None = None
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    partition_count: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """The outcome for one partition."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDecision(Generic[T]):
    """Outcomes that are true once the operations are committed; without operations they are true already."""

    operations: tuple[Operation, ...] = ()
    outcomes: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(Generic[T]):
    """Outcomes that are visible in every image from `revision` on."""

    revision: int
    outcomes: tuple[T, ...]


class ItemRefusedError(Exception):
    """One item is refused; its outcome carries this. Raised and caught within a decision."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
