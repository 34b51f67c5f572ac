"""Requests and responses of consumer groups: plain values, without wire types.

Covers ConsumerGroupHeartbeat, ConsumerGroupDescribe and the configs. The requests are handled in `groups_state.py`; the
wire handlers translate.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination.groups.record_values import Assignment
from ottla.model.error_codes import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member that leaves and will be back within its session."""

MEMBER_ID_REQUIRED_VERSION: Final = 1
"""From this version of the heartbeat on, clients make their own member ids."""

MODERN_COMMIT_VERSION: Final = 9
"""The first version of OffsetCommit whose clients understand STALE_MEMBER_EPOCH."""


class MigrationPolicy(Enum):
    """Which groups with members may change their protocol: `group.consumer.migration.policy`. Empty ones always may."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupConfig:
    """The settings of consumer groups, `group.consumer.*`, with Kafka's defaults."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    assignment_interval_ms: int = 1_000
    """The minimum interval between target assignments; 0 for none."""
    regex_refresh_min_interval_ms: int = 10_000
    regex_refresh_max_interval_ms: int = 600_000
    classic_max_size: int = 2**31 - 1
    """`group.max.size`: a larger group is not downgraded."""


OwnConfigOf = Callable[[str], ConsumerGroupConfig | None]
"""The settings of a group that has configs of its own; None for a group without."""


class ConsumerHeartbeat(NamedTuple):
    """A member joins, stays, changes its subscription, or leaves. None is "as before"; a full heartbeat has
    `rebalance_timeout_ms` (not -1), a subscription, and `owned_partitions`."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned_partitions: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    api_version: int = 1

    @property
    def is_full(self) -> bool:
        """Whether all fields are set, as when a member joins and after errors."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and has_subscription and self.owned_partitions is not None

    @property
    def is_plain_join(self) -> bool:
        """Whether a dynamic member joins without a pattern: such joins can be decided together."""
        return self.member_epoch == JOIN_EPOCH and self.instance_id is None and not self.topic_regex


class ConsumerHeartbeatResponse(NamedTuple):
    """The member's new epoch, and its assignment if it changed or the heartbeat was full; None is "as before"."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPartitions:
    """Partitions of an existing topic."""

    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member, for ConsumerGroupDescribe; partitions that it is giving up count as assigned."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assignment: tuple[DescribedPartitions, ...]
    target_assignment: tuple[DescribedPartitions, ...]
    is_classic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedConsumerGroup:
    """A group, for ConsumerGroupDescribe; with an error the rest is empty."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = "Dead"
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedMember, ...] = ()
