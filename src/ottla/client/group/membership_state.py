"""The life of a consumer in its group, as far as both group protocols share it. Pure.

| state | what happens | exits |
|---|---|---|
| UNJOINED | nothing until the program polls | PREPARING, or JOINING if there is nothing to give up |
| PREPARING | a `Handover` of partitions to give up waits for the next poll; heartbeats go on | JOINING |
| JOINING | the coordinator is asked to take the member in | ASSIGNING, SYNCING, STABLE; UNJOINED if it refuses |
| ASSIGNING | classic groups, leader only: partition counts are looked up | SYNCING |
| SYNCING | classic groups: the coordinator is asked for the assignment | STABLE; UNJOINED if it refuses |
| STABLE | heartbeats; a new assignment is a `Handover` that waits for the next poll | PREPARING, UNJOINED |
| FAILED | nothing more; `failure` has the reason | – |

`next_action` returns what to do; its result is reported to an `on_…` method. `classic_membership_state.py` and
`consumer_membership_state.py` add their protocol: their requests, and a table of what each error code means.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, TypeVar

from ottla.client.errors import answer_error, error_code_of
from ottla.client.group.assignors.assignor import PartitionRacks
from ottla.client.group.assignors.nearness import NO_RACKS
from ottla.client.group.handover import Handover
from ottla.client.values import NO_MEMBER_ID
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

NO_GENERATION: Final = -1
NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()


class State(Enum):
    """The states of a member; the module's docstring has the table."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Look up the group's coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do until this time, or until something happens."""

    until: float | None


class Reaction(Enum):
    """What a member does when the coordinator refuses a request."""

    RETRY = "retry"
    """Send the request again after a backoff."""
    FIND_COORDINATOR = "find coordinator"
    """Look up the coordinator, then send the request again."""
    REBALANCE = "rebalance"
    """Join again with the next poll; the member keeps its place in the group until then."""
    REJOIN = "rejoin"
    """The group went on without the member: its partitions are lost, and it joins again with the same member id."""
    REJOIN_AS_NEW = "rejoin as new"
    """The same, and the coordinator does not know the member id any more."""
    IGNORE = "ignore"
    FAIL = "fail"
    """The membership ends with an error that every poll raises."""


Reactions = Mapping[ErrorCode, Reaction]

COORDINATOR_REACTIONS: Final[Reactions] = {
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
}
"""Common to all requests of both protocols."""

_ADVICE: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.FENCED_INSTANCE_ID: "another consumer joined with the same group_instance_id; each needs its own",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "no partition_assignment_strategy of this consumer is supported by all members, or they are not consumers"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: "the broker does not allow this session_timeout_ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full (group.max.size of the broker)",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not authorized to access the group",
    ErrorCode.INVALID_GROUP_ID: "the group_id is not valid",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member of the group still has this group_instance_id; stop it first",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker does not have this group_remote_assignor",
}


def refusal(code: int, group_id: str, message: str | None = None) -> OttlaError:
    """The error for a code with which the coordinator refuses a member for good."""
    return answer_error(code, f"group {group_id}", _ADVICE.get(error_code_of(code)) or message)


F = TypeVar("F")
"""The action that tells the coordinator that the member leaves."""
A = TypeVar("A")
"""The other actions of a protocol."""


@dataclass(slots=True, kw_only=True)
class MembershipState(Generic[F, A]):
    """What both protocols share. Times are seconds of a monotonic clock."""

    group_id: str
    poll_interval: float
    """The longest time between two polls; a member that exceeds it leaves the group."""
    instance_id: str | None = None
    member_id: str = NO_MEMBER_ID
    state: State = State.UNJOINED
    topics: frozenset[str] | None = None
    """The topics subscribed to; None while the consumer is to be in no group."""
    owned: frozenset[TopicPartition] = NO_PARTITIONS
    """The partitions that the group assigned and that were not given up."""
    handover: Handover | None = None
    """The change that waits for the next poll."""
    coordinator: int | None = None
    generation: int = NO_GENERATION
    """The generation of a classic group, or the member epoch; what commits are checked against."""
    failure: OttlaError | None = None
    is_polling: bool = False
    """Whether the program is within a poll; the poll interval does not run out meanwhile."""
    rebalances: int = 0
    _last_poll: float = 0.0
    _next_heartbeat: float = 0.0
    _retry_at: float = 0.0
    _farewell: F | None = field(default=None)

    @property
    def is_member(self) -> bool:
        """Whether the coordinator counts this consumer as a member, as far as the consumer knows."""
        return self.generation > NO_GENERATION

    # Called by the consumer

    def subscribe(self, topics: Collection[str] | None) -> None:
        """Changes the subscription; None to be in no group."""
        raise NotImplementedError

    def on_poll(self, now: float) -> None:
        """The program polls: a rebalance that waited for it begins."""
        self.touch(now)
        if self.topics is None:
            return
        if self.state is State.UNJOINED:
            self._prepare()
        else:
            self._reconcile()

    def touch(self, now: float) -> None:
        """The program polls, and `wants_poll` is false."""
        self._last_poll = now

    @property
    def wants_poll(self) -> bool:
        """Whether `on_poll` would do more than `touch`."""
        return self.topics is not None and (self.state is State.UNJOINED or self._is_behind())

    def on_handover_started(self, started: Handover) -> None:
        """The program begins to carry out `handover`."""

    def on_handover_done(self, done: Handover) -> None:
        """The program carried out `handover`, or an earlier one that has been replaced meanwhile."""
        gave_up = self.owned - done.assigned
        self.owned = done.assigned
        if self.handover is not done:
            self._reconcile()
            return
        self.handover = None
        if self.state is State.PREPARING:
            self._begin_joining()
        else:
            self._on_assigned(gave_up)

    def on_partition_counts(self, counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS) -> None:
        """The metadata was refreshed: the partition counts of existing topics, and the racks of their replicas."""

    def watched_topics(self) -> frozenset[str]:
        """The topics whose metadata must be kept current."""
        return self.topics or frozenset()

    def leave(self, reason: str) -> F | None:
        """Leaves the group; returns what to tell the coordinator, if anything."""
        farewell = self._leaving(reason)
        self._forget()
        self.owned, self.handover, self.state = NO_PARTITIONS, None, State.UNJOINED
        return farewell

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """A commit of this generation was refused with a code that is about the membership."""
        raise NotImplementedError

    # What to do

    def next_action(self, now: float) -> FindCoordinator | Wait | F | A:
        """The next thing to do. Asking twice does no harm."""
        if self.state is State.FAILED or (self.topics is None and self._farewell is None):
            return Wait(until=None)
        if self._retry_at > now:
            return Wait(until=self._retry_at)
        if self.is_member and now >= self._poll_deadline():
            # The program may never poll again; its partitions go to other members.
            self._farewell = self._leaving(f"no poll within max_poll_interval_ms={self.poll_interval * 1000:.0f}")
            self._rejoin()
        if self._farewell is None and self.state is State.UNJOINED and not self.is_member:
            return Wait(until=None)
        if self.coordinator is None:
            return FindCoordinator()
        if self._farewell is not None:
            farewell, self._farewell = self._farewell, None
            return farewell
        return self._next_request(now)

    def _poll_deadline(self) -> float:
        return float("inf") if self.is_polling or not self.is_member else self._last_poll + self.poll_interval

    # What came of it

    def on_coordinator(self, broker: int, now: float) -> None:
        """The coordinator was found."""
        self.coordinator = broker

    def on_trouble(self, retry_at: float, *, coordinator_lost: bool) -> None:
        """A request got no response, or was refused for now."""
        self._retry_at = retry_at
        if coordinator_lost:
            self.coordinator = None

    def fail(self, failure: OttlaError) -> None:
        """Ends the membership with an error that polls raise."""
        self.state, self.failure = State.FAILED, failure
        self.generation = NO_GENERATION

    def _react(self, reaction: Reaction, error_code: int, retry_at: float, message: str | None = None) -> None:
        match reaction:
            case Reaction.RETRY | Reaction.FIND_COORDINATOR:
                self.on_trouble(retry_at, coordinator_lost=reaction is Reaction.FIND_COORDINATOR)
            case Reaction.REBALANCE:
                self._rebalance()
            case Reaction.REJOIN | Reaction.REJOIN_AS_NEW:
                self._rejoin(keeps_id=reaction is Reaction.REJOIN)
            case Reaction.FAIL:
                self.fail(refusal(error_code, self.group_id, message))

    # What the protocols add

    def _next_request(self, now: float) -> Wait | FindCoordinator | A:
        """The next request, with the coordinator known."""
        raise NotImplementedError

    def _leaving(self, reason: str) -> F | None:
        """What to tell the coordinator when the member leaves; None for nothing."""
        raise NotImplementedError

    def _giving_up(self) -> Handover:
        """What happens to the owned partitions before the member joins again."""
        return Handover(assigned=NO_PARTITIONS, lost=self.owned)

    def _is_behind(self) -> bool:
        """Whether a stable member must change its partitions, and no `Handover` for that waits yet."""
        raise NotImplementedError

    def _reconcile(self) -> None:
        """Begins the next change of a stable member, if there is one."""
        raise NotImplementedError

    def _on_assigned(self, gave_up: frozenset[TopicPartition]) -> None:
        """A stable member has carried out a change."""

    def _rebalance(self) -> None:
        """The group rebalances."""

    def _forget(self, *, keeps_id: bool = False) -> None:
        """Forgets everything that was true of the generation."""
        self.generation = NO_GENERATION

    def _begin_joining(self) -> None:
        """Nothing is left to give up: the coordinator is asked next."""
        self.state = State.JOINING

    # Steps that both take

    def _prepare(self) -> None:
        """Gives up partitions before joining; joins at once if there is nothing to give up."""
        if self.handover is not None:
            return
        handover = self._giving_up()
        if handover.lost or handover.revoked:
            self.handover, self.state = handover, State.PREPARING
        else:
            self._begin_joining()

    def _rejoin(self, *, keeps_id: bool = False) -> None:
        """The group goes on without this member; the next poll joins it again."""
        self._forget(keeps_id=keeps_id)
        self.handover = None
        self.state = State.UNJOINED
