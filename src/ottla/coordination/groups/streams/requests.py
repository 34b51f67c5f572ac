"""Requests and responses of streams groups: plain values, without wire types.

Covers StreamsGroupHeartbeat, StreamsGroupDescribe and the configs. The requests are handled in `groups_state.py`; the
wire handlers translate.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, NamedTuple

from ottla.coordination.groups.streams.tasks import NOTHING, Tasks, TaskSet
from ottla.coordination.groups.streams.topology import InternalTopic, Topology
from ottla.model.error_codes import ErrorCode

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

STANDBY_REPLICAS: Final = "num.standby.replicas"
"""The assignment config that is written with the group's epoch."""


class Refusal(Exception):
    """The request is invalid; becomes its error response."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code


class StatusCode(IntEnum):
    """What keeps an application from running, or what its members must do."""

    STALE_TOPOLOGY = 0
    """The member's topology is older than the group's."""
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    """Topics that must have equally many partitions do not, or an internal topic has a wrong number of them."""
    MISSING_INTERNAL_TOPICS = 3
    """The broker creates them."""
    SHUTDOWN_APPLICATION = 4
    """A member asked for the shutdown of all members."""
    ASSIGNMENT_DELAYED = 5
    """A new assignment is not computed yet."""


class Status(NamedTuple):
    """A status, and its details in words."""

    code: StatusCode
    detail: str


class Endpoint(NamedTuple):
    """Where a client answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsGroupConfig:
    """The settings of one streams group: those of the broker, `group.streams.*`, or the group's own, `streams.*`."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000
    """How long a new group waits for more members before its first assignment."""
    assignment_interval_ms: int = 1_000
    """The minimum interval between target assignments; 0 for none."""
    shard_descriptions_size_max: int = 1024 * 1024
    """The limit of all topology descriptions of a shard together."""

    def assignment_configs(self) -> Mapping[str, str]:
        """The configs whose change leads to a new assignment."""
        return {STANDBY_REPLICAS: str(self.standby_replicas)}


ConfigOf = Callable[[str], StreamsGroupConfig]
"""The settings of a group by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeat:
    """A member joins, stays or leaves. None, or a timeout of -1, is "as before"."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: Tasks | None = None
    standby_tasks: Tasks | None = None
    warmup_tasks: Tasks | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    has_task_offsets: bool = False
    """Whether the member reports changelog offsets of its tasks."""
    shutdown_application: bool = False
    can_describe: bool = False
    """Whether the member can be asked for the description of its topology."""
    client_id: str = ""
    client_host: str = ""

    @property
    def owned(self) -> TaskSet | None:
        """The tasks that the member reports to own; None without a report."""
        if self.active_tasks is None or self.standby_tasks is None or self.warmup_tasks is None:
            return None
        return TaskSet(active=self.active_tasks, standby=self.standby_tasks, warmup=self.warmup_tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPartitions:
    """The partitions whose state a client has, by topic."""

    endpoint: Endpoint
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsHeartbeatResponse:
    """The member's new epoch, and its tasks if they changed; None is "as before"."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    statuses: tuple[Status, ...] = ()
    tasks: TaskSet | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    wants_description: bool = False
    """Whether the member must send the description of its topology."""
    missing_topics: tuple[InternalTopic, ...] = ()
    """Internal topics to create, each with its number of partitions; not sent to the member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionUpdate:
    """A member sends the description of its topology."""

    group_id: str
    member_id: str
    topology_epoch: int
    description: object
    """Kept and shown as it is."""
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescriptionUpdateResponse:
    """Whether it was kept."""

    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class GroupState(Enum):
    """What a group is doing, derived from its epochs, topology and members."""

    EMPTY = "Empty"
    """No members. Exit: a member joins."""
    NOT_READY = "NotReady"
    """Topics of the topology are missing or incorrectly partitioned. Exit: they exist as needed."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead of the target epoch. Exit: a target is computed."""
    RECONCILING = "Reconciling"
    """A member has not reached its target. Exits: all have, or the group epoch is bumped."""
    STABLE = "Stable"
    """All members have their target. Exits: the group epoch is bumped, or the last member leaves."""
    DEAD = "Dead"
    """The group does not exist; only seen in a description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSubtopology:
    """A subtopology, for StreamsGroupDescribe; internal topics have their real number of partitions once known."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    changelog_topics: tuple[InternalTopic, ...]
    repartition_source_topics: tuple[InternalTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """A member, for StreamsGroupDescribe."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: tuple[tuple[str, str], ...]
    assignment: TaskSet = NOTHING
    target: TaskSet = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedStreamsGroup:
    """A group, for StreamsGroupDescribe; with an error the rest is empty."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    group_state: str = GroupState.DEAD.value
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology_epoch: int | None = None
    """None if there is no topology to describe."""
    subtopologies: tuple[DescribedSubtopology, ...] = ()
    members: tuple[DescribedMember, ...] = ()
    description: object | None = None
    """The description of the topology, if a member has sent it."""
