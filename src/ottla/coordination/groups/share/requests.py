"""Requests, responses, effects and settings of share groups: plain values, without wire types.

The requests are handled in `groups_state.py`; the wire handlers translate.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.coordination.groups.record_values import Assignment
from ottla.model.error_codes import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
MEMBER_ID_LENGTH_MAX: Final = 36
"""Kafka's limit: as long as a UUID in hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupConfig:
    """The settings of one share group, `share.*`, with Kafka's defaults; some are the same for all groups."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 200
    assignment_interval_ms: int = 1_000
    """The minimum interval between target assignments; 0 for none."""
    initialize_retry_interval_ms: int = 30_000
    """After this time without a confirmation the share coordinator is asked again to initialize a partition."""


ConfigOf = Callable[[str], ShareGroupConfig]
"""The current settings of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A member joins, stays, changes its subscription, or leaves. None is "as before"."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatResponse:
    """The member's new epoch, and its assignment if it changed or the heartbeat was full; None is "as before"."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeShareState:
    """Effect: the share coordinator is to initialize these share-partitions, in this state epoch. The group is told
    with `on_state_initialized`."""

    group_id: str
    state_epoch: int
    topics: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterShareState:
    """Effect: the share coordinator is to initialize these share-partitions again, each at a start offset. The group is
    told with `on_state_altered`."""

    group_id: str
    state_epoch: int
    offsets: dict[UUID, dict[int, int]]
    token: Hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShareState:
    """Effect: the share coordinator is to delete the state of these share-partitions. The group is told with
    `on_state_deleted`."""

    group_id: str
    topics: Assignment
    token: Hashable
    deletes_group: bool


ShareEffect = InitializeShareState | AlterShareState | DeleteShareState


@dataclass(frozen=True, slots=True, kw_only=True)
class AlteredShareState:
    """The response to a change of start offsets, or to their deletion: an error for the whole request, or the error of
    each share-partition."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    partitions: tuple[tuple[UUID, int, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartitions:
    """Partitions of an existing topic."""

    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareMember:
    """A member, for ShareGroupDescribe."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: tuple[DescribedPartitions, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareGroup:
    """A group, for ShareGroupDescribe; with an error the rest is empty."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()
