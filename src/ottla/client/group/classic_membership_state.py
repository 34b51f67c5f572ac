"""A member of a classic group: it joins, the group leader assigns, and all get their assignment by SyncGroup. Pure.

The states are those of `membership_state.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.client.errors import answer_error, error_code_of
from ottla.client.group.assignors.assignor import (
    Assignor,
    MemberSubscription,
    PartitionRacks,
    RackAwareAssignor,
)
from ottla.client.group.assignors.nearness import NO_RACKS
from ottla.client.group.classic_protocol import read_assignment, read_subscription, write_assignment, write_subscription
from ottla.client.group.handover import Handover
from ottla.client.group.membership_state import (
    COORDINATOR_REACTIONS,
    NO_GENERATION,
    NO_PARTITIONS,
    FindCoordinator,
    MembershipState,
    Reaction,
    Reactions,
    State,
    Wait,
)
from ottla.client.values import NO_MEMBER_ID
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError
from ottla.model.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Send JoinGroup; `protocols` are the names of assignors, each with this member's subscription."""

    member_id: str
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPartitions:
    """Look up how many partitions these topics have."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Send SyncGroup; the leader's has the assignment of every member."""

    member_id: str
    generation: int
    protocol: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Send Heartbeat."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Send LeaveGroup, once."""

    member_id: str
    reason: str


ClassicAction = Join | CountPartitions | Sync | Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The response to `Join`. `members` are (member id, instance id, subscription); only the leader gets them."""

    error_code: int
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = ""
    member_id: str = NO_MEMBER_ID
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


_REACTIONS: Final[Reactions] = {
    **COORDINATOR_REACTIONS,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REBALANCE,
    ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN_AS_NEW,
}
"""To SyncGroup and Heartbeat. Other codes are final."""
_JOIN_REACTIONS: Final[Reactions] = {
    **_REACTIONS,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.RETRY,
    ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN_AS_NEW,
}
_COMMIT_REACTIONS: Final[Reactions] = {
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REBALANCE,
    ErrorCode.ILLEGAL_GENERATION: Reaction.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN_AS_NEW,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FAIL,
}
"""Other codes do not concern the membership."""

_SENDS_HEARTBEATS: Final = frozenset({State.UNJOINED, State.PREPARING, State.STABLE})
"""In the other states a request is under way, and its response says that the coordinator lives."""


@dataclass(slots=True, kw_only=True)
class ClassicMembershipState(MembershipState[Leave, ClassicAction]):
    """One member. Times are seconds of a monotonic clock."""

    session: float
    """After this long without a response the coordinator is looked up again."""
    heartbeat_interval: float
    assignors: Sequence[Assignor]
    rack_id: str | None = None
    _last_answer: float = 0.0
    """When the coordinator last confirmed the membership."""
    _must_rejoin: bool = False
    """Whether a stable member must join again."""
    _protocol: str = ""
    _members: dict[str, MemberSubscription] = field(default_factory=dict)
    """The subscriptions of all members, if this one is the leader."""
    _assignments: tuple[tuple[str, bytes], ...] = ()
    _counts: dict[str, int] | None = None
    """The partition counts that the leader last saw."""
    _racks: PartitionRacks = field(default_factory=dict)

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept while the group rebalances: only if all assignors support it."""
        return all(assignor.is_cooperative for assignor in self.assignors)

    # Called by the consumer

    def subscribe(self, topics: Collection[str] | None) -> None:
        """Changes the subscription, which takes a rebalance; None to be in no group."""
        wanted = None if topics is None else frozenset(topics)
        if wanted != self.topics:
            self.topics = wanted
            self._must_rejoin = True

    def on_partition_counts(self, counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS) -> None:
        """The metadata was refreshed. The leader assigns, or starts a rebalance if something changed."""
        topics = self._group_topics()
        wanted = {topic: counts[topic] for topic in topics if topic in counts}
        nearby = {partition: places for partition, places in racks.items() if partition.topic in topics}
        if self.state is State.ASSIGNING:
            self._assign(wanted, nearby)
        elif self._members and self.is_member:
            # Racks only matter to a member that has one.
            has_moved = bool(self.rack_id) and nearby != self._racks
            if self._counts is not None and (wanted != self._counts or has_moved):
                self._must_rejoin = True
            self._counts, self._racks = wanted, nearby

    def watched_topics(self) -> frozenset[str]:
        """The topics whose metadata must be kept current: for the leader those of all members."""
        return (self.topics or frozenset()) | self._group_topics()

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """A commit of this generation was refused with a code that is about the membership."""
        if generation == self.generation and self.state is State.STABLE:
            self._react(_COMMIT_REACTIONS.get(error_code_of(error_code), Reaction.IGNORE), error_code, 0.0)

    # What to do

    def _next_request(self, now: float) -> Wait | FindCoordinator | ClassicAction:
        if self.is_member and self.state in _SENDS_HEARTBEATS and now >= self._last_answer + self.session:
            self.coordinator = None
            return FindCoordinator()
        match self.state:
            case State.JOINING:
                return self._join()
            case State.ASSIGNING:
                return CountPartitions(topics=self._group_topics())
            case State.SYNCING:
                return Sync(
                    member_id=self.member_id,
                    generation=self.generation,
                    protocol=self._protocol,
                    assignments=self._assignments,
                )
        if not self.is_member:
            return Wait(until=None)
        if self._next_heartbeat <= now:
            self._next_heartbeat = now + self.heartbeat_interval
            return Heartbeat(member_id=self.member_id, generation=self.generation)
        return Wait(until=min(self._next_heartbeat, self._poll_deadline()))

    def _join(self) -> Join:
        topics = tuple(sorted(self.topics or ()))
        protocols = []
        for assignor in self.assignors:
            subscription = MemberSubscription(
                topics=topics,
                owned=tuple(sorted(self.owned)) if self.is_cooperative else (),
                generation=self.generation,
                rack_id=self.rack_id,
                user_data=assignor.user_data(topics),
            )
            protocols.append((assignor.name, write_subscription(subscription)))
        return Join(member_id=self.member_id, protocols=tuple(protocols))

    def _leaving(self, reason: str) -> Leave | None:
        """A static member does not tell: it may come back under its instance id."""
        if self.member_id == NO_MEMBER_ID or self.instance_id is not None:
            return None
        return Leave(member_id=self.member_id, reason=reason)

    # What came of it

    def on_coordinator(self, broker: int, now: float) -> None:
        """The coordinator was found."""
        self.coordinator = broker
        self._last_answer = now

    def on_joined(self, answer: Joined, now: float, retry_at: float) -> None:
        """The response to `Join`."""
        if self.state is not State.JOINING:
            return
        code = error_code_of(answer.error_code)
        if code is ErrorCode.NONE:
            self._on_member(answer, now)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        else:
            self._react(_JOIN_REACTIONS.get(code, Reaction.FAIL), answer.error_code, retry_at)

    def on_synced(self, error_code: int, assignment: bytes, now: float, retry_at: float) -> None:
        """The response to `Sync`."""
        if self.state is not State.SYNCING:
            return
        code = error_code_of(error_code)
        self._assignments = ()
        if code is not ErrorCode.NONE:
            self._react(_REACTIONS.get(code, Reaction.FAIL), error_code, retry_at)
            if self.state is State.SYNCING:
                self.state = State.UNJOINED
            return
        try:
            self._on_assignment(read_assignment(assignment))
        except CorruptError as error:
            self.fail(type(error)(f"group {self.group_id}: the leader sent an unreadable assignment: {error}"))
        self._on_confirmed(now)

    def on_heartbeat(self, error_code: int, asked: Heartbeat, now: float, retry_at: float) -> None:
        """The response to `Heartbeat`; ignored if the member has another generation by now."""
        if (asked.generation, asked.member_id) != (self.generation, self.member_id):
            return
        code = error_code_of(error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._last_answer = now
        if code is not ErrorCode.NONE:
            self._react(_REACTIONS.get(code, Reaction.FAIL), error_code, retry_at)

    # Steps

    def _begin_joining(self) -> None:
        self.state, self._must_rejoin = State.JOINING, False

    def _is_behind(self) -> bool:
        return self._must_rejoin and self.state is State.STABLE and self.topics is not None

    def _reconcile(self) -> None:
        if self._is_behind():
            self._prepare()

    def _rebalance(self) -> None:
        self._must_rejoin = True

    def _on_assigned(self, gave_up: frozenset[TopicPartition]) -> None:
        if gave_up and self.is_cooperative:
            # The partitions given up can be assigned to others now.
            self._must_rejoin = True

    def _giving_up(self) -> Handover:
        if not self.is_member:
            # The group went on without this member.
            return Handover(assigned=NO_PARTITIONS, lost=self.owned)
        if not self.is_cooperative:
            return Handover(assigned=NO_PARTITIONS, revoked=self.owned)
        wanted = self.topics or frozenset()
        gone = frozenset(partition for partition in self.owned if partition.topic not in wanted)
        return Handover(assigned=self.owned - gone, revoked=gone)

    def _on_confirmed(self, now: float) -> None:
        self._last_answer = now
        self._next_heartbeat = now + self.heartbeat_interval

    def _on_member(self, answer: Joined, now: float) -> None:
        self.member_id, self.generation, self._protocol = answer.member_id, answer.generation, answer.protocol
        self._on_confirmed(now)
        self._members, self._counts, self._assignments = {}, None, ()
        if answer.leader != answer.member_id:
            self.state = State.SYNCING
            return
        try:
            for member_id, instance_id, subscription in answer.members:
                self._members[member_id] = read_subscription(subscription, instance_id)
        except CorruptError as error:
            self.fail(type(error)(f"group {self.group_id}: a member sent an unreadable subscription: {error}"))
            return
        # A static leader that comes back keeps the group's assignment; it only watches the partition counts.
        self.state = State.SYNCING if answer.skip_assignment else State.ASSIGNING

    def _assign(self, counts: dict[str, int], racks: PartitionRacks) -> None:
        assignor = next((each for each in self.assignors if each.name == self._protocol), None)
        if assignor is None:
            self.fail(
                answer_error(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {self.group_id}",
                    f"the coordinator chose assignor {self._protocol}, which this member did not offer",
                )
            )
            return
        if isinstance(assignor, RackAwareAssignor):
            assigned = assignor.assign_near(counts, self._members, racks)
        else:
            assigned = assignor.assign(counts, self._members)
        self._counts, self._racks = counts, racks
        self._assignments = tuple(
            (member_id, write_assignment(assigned.get(member_id, ()))) for member_id in self._members
        )
        self.state = State.SYNCING

    def _on_assignment(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.state = State.STABLE
        self.rebalances += 1
        for assignor in self.assignors:
            if assignor.name == self._protocol:
                assignor.on_assignment(partitions, self.generation)
        self.handover = Handover.to(frozenset(partitions), self.owned)

    def _forget(self, *, keeps_id: bool = False) -> None:
        if not keeps_id:
            self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self._members, self._counts, self._assignments = {}, None, ()

    def _group_topics(self) -> frozenset[str]:
        return frozenset(topic for member in self._members.values() for topic in member.topics)
