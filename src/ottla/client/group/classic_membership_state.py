"""A member of a classic group: find the coordinator, join, let the leader assign, sync, and show signs of life. Pure.

| state | what is done | exits |
|---|---|---|
| UNJOINED | nothing until somebody polls | PREPARING |
| PREPARING | a `Handover` waits for whoever polls; signs of life go on | JOINING |
| JOINING | Join is asked | ASSIGNING for the leader, SYNCING, UNJOINED if refused |
| ASSIGNING | the topics' partition counts are asked | SYNCING |
| SYNCING | Sync is asked | STABLE, UNJOINED if refused |
| STABLE | signs of life, and perhaps a `Handover` that waits | UNJOINED: told to rejoin, or polled too rarely |
| FAILED | nothing more; `failure` says why | – |

`next_action` says what to do; whoever does it reports back by an `on_…` method. The twin for the newer protocol is
`consumer_membership_state.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.client.errors import answer_error, error_code_of
from ottla.client.group.assignors.assignor import (
    NO_GENERATION,
    Assignor,
    MemberSubscription,
    PartitionRacks,
    RackAwareAssignor,
)
from ottla.client.group.assignors.nearness import NO_RACKS
from ottla.client.group.classic_protocol import read_assignment, read_subscription, write_assignment, write_subscription
from ottla.client.group.rebalance import Handover
from ottla.client.values import NO_MEMBER_ID
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import CorruptError, OttlaError
from ottla.model.ids import TopicPartition


class State(Enum):
    """See the module's docstring."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindCoordinator:
    """Ask who coordinates the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Ask to be a member; `protocols` are names of assignors with what this member tells each."""

    member_id: str
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPartitions:
    """Ask the metadata how many partitions these topics have."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """Ask for what this member gets; the leader says what each gets."""

    member_id: str
    generation: int
    protocol: str
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Show a sign of life."""

    member_id: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Tell the coordinator that this member goes, as best one can."""

    member_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing to do until then, or until something happens."""

    until: float | None


Action = FindCoordinator | Join | CountPartitions | Sync | Heartbeat | Leave | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The coordinator's answer to a Join. `members` are (member id, instance id, what it told); only the leader's."""

    error_code: int
    generation: int = NO_GENERATION
    protocol: str = ""
    leader: str = ""
    member_id: str = NO_MEMBER_ID
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipTimes:
    """The spans that matter, in seconds."""

    session: float
    heartbeat: float
    poll_interval: float


LOST_COORDINATOR: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Somebody else coordinates, or nobody at the moment."""
_UNKNOWN_MEMBER: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})
_TRY_AGAIN: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS})
_ADVICE: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.FENCED_INSTANCE_ID: "another consumer joined with the same group_instance_id; each needs its own",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the group's members share no partition_assignment_strategy with this one, or are no consumers"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: "the broker does not allow this session_timeout_ms",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group is full, by the broker's group.max.size",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the broker's access rules do not allow this on the group",
    ErrorCode.INVALID_GROUP_ID: "this is no id for a group",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another member of the group still has this group_instance_id; end it first",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "the broker has no such group_remote_assignor",
}

_ALIVE: Final = frozenset({State.UNJOINED, State.PREPARING, State.STABLE})
"""Where a member shows signs of life; elsewhere it waits for an answer, which is one."""


def refusal(code: int, group_id: str, message: str | None = None) -> OttlaError:
    """The final error for a code with which a coordinator refuses a member."""
    error_code = error_code_of(code)
    return answer_error(code, f"group {group_id}", _ADVICE.get(error_code) or message)


@dataclass(slots=True)
class MembershipState:
    """See the module's docstring. Times are of a clock that never goes back, in seconds."""

    group_id: str
    times: MembershipTimes
    assignors: Sequence[Assignor]
    instance_id: str | None = None
    rack_id: str | None = None
    state: State = State.UNJOINED
    topics: frozenset[str] | None = None
    """What this member wants; None while it wants to be in no group."""
    owned: frozenset[TopicPartition] = frozenset()
    """What the group gave, and was not given up."""
    handover: Handover | None = None
    """What waits for whoever polls."""
    coordinator: int | None = None
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    failure: OttlaError | None = None
    is_polling: bool = False
    """Whether somebody is within a poll at this moment."""
    rebalances: int = 0
    _last_poll: float = 0.0
    _last_heartbeat: float = 0.0
    _last_answer: float = 0.0
    """When the coordinator last said that this member is one."""
    _retry_at: float = 0.0
    _must_rejoin: bool = True
    _protocol: str = ""
    _members: dict[str, MemberSubscription] = field(default_factory=dict)
    """What the members told, if this one is the leader."""
    _assignments: tuple[tuple[str, bytes], ...] = ()
    _counts: dict[str, int] | None = None
    """The partition counts that this member last saw, if it is the leader."""
    _racks: PartitionRacks = field(default_factory=dict)
    _farewell: Leave | None = None

    @property
    def is_cooperative(self) -> bool:
        """Whether partitions are kept while the group rebalances: only if every assignor can do with that."""
        return all(assignor.is_cooperative for assignor in self.assignors)

    @property
    def is_member(self) -> bool:
        """Whether the coordinator counts this member in, as far as it knows."""
        return self.generation != NO_GENERATION

    # What happens outside

    def subscribe(self, topics: Collection[str] | None) -> None:
        """What this member wants from now on; None to be in no group."""
        wanted = None if topics is None else frozenset(topics)
        if wanted != self.topics:
            self.topics = wanted
            self._must_rejoin = True

    def on_poll(self, now: float) -> None:
        """Somebody polls; what must be done before joining can be done now."""
        self.touch(now)
        if self.wants_poll and self.handover is None:
            self.handover = self._before_joining()
            self.state = State.PREPARING

    def touch(self, now: float) -> None:
        """Somebody polls, and finds everything as it should be."""
        self._last_poll = now

    @property
    def wants_poll(self) -> bool:
        """Whether `on_poll` would do more than `touch`."""
        return self._must_rejoin and self.topics is not None and self.state in (State.UNJOINED, State.STABLE)

    def on_handover_started(self, started: Handover) -> None:
        """Nothing changes a handover of a classic group but its end."""

    def on_handover_done(self, done: Handover) -> None:
        """Whoever polls has done what `handover` asked, or one before it that has been overtaken meanwhile."""
        gave_up = self.owned - done.assigned
        self.owned = done.assigned
        if self.handover is not done:
            return
        self.handover = None
        if self.state is State.PREPARING:
            self._must_rejoin = False
            self.state = State.JOINING
        elif gave_up and self.is_cooperative:
            # What was given up can now be given to somebody.
            self._must_rejoin = True

    def on_partition_counts(self, counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS) -> None:
        """The metadata was asked; topics that do not exist are not in it. `racks` is where partitions' replicas are."""
        topics = self._group_topics()
        wanted = {topic: counts[topic] for topic in topics if topic in counts}
        nearby = {partition: places for partition, places in racks.items() if partition.topic in topics}
        if self.state is State.ASSIGNING:
            self._assign(wanted, nearby)
        elif self._members and self.is_member:
            # Whoever named no rack does not mind where replicas are.
            has_moved = bool(self.rack_id) and nearby != self._racks
            if self._counts is not None and (wanted != self._counts or has_moved):
                self._must_rejoin = True
            self._counts, self._racks = wanted, nearby

    def watched_topics(self) -> frozenset[str]:
        """What the metadata must be asked about: the leader watches over everybody's topics."""
        return (self.topics or frozenset()) | self._group_topics()

    def leave(self, reason: str) -> Leave | None:
        """Forgets the group; answers what to tell it. A static member goes without a word, and may come back."""
        farewell = None
        if self.member_id != NO_MEMBER_ID and self.instance_id is None:
            farewell = Leave(member_id=self.member_id, reason=reason)
        self._forget(NO_MEMBER_ID)
        self.owned = frozenset()
        self.handover = None
        self.state = State.UNJOINED
        return farewell

    # What to do

    def next_action(self, now: float) -> Action:
        """What to do now. Asking twice does no harm."""
        if self.state is State.FAILED or (self.topics is None and self._farewell is None):
            return Wait(until=None)
        if self._retry_at > now:
            return Wait(until=self._retry_at)
        self._look_at_clock(now)
        if self._farewell is not None:
            farewell, self._farewell = self._farewell, None
            return farewell
        if self.state is State.UNJOINED and not self.is_member:
            return Wait(until=None)
        if self.coordinator is None:
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
        due = self._last_heartbeat + self.times.heartbeat
        if due <= now:
            self._last_heartbeat = now
            return Heartbeat(member_id=self.member_id, generation=self.generation)
        return Wait(until=min(due, self._poll_deadline()))

    def _look_at_clock(self, now: float) -> None:
        if self.is_member and now >= self._poll_deadline():
            # Whoever computes for so long may never come back; its partitions shall not wait for it.
            reason = f"nothing was polled for {self.times.poll_interval * 1000:.0f} ms"
            if self.instance_id is None:
                self._farewell = Leave(member_id=self.member_id, reason=reason)
            self._forget(NO_MEMBER_ID)
            self._rejoin_from_scratch()
        elif self.is_member and self.state in _ALIVE and now >= self._last_answer + self.times.session:
            self.coordinator = None

    def _poll_deadline(self) -> float:
        return float("inf") if self.is_polling else self._last_poll + self.times.poll_interval

    # What came of it

    def on_coordinator(self, broker: int, now: float) -> None:
        """The coordinator is known."""
        self.coordinator = broker
        self._last_answer = now

    def on_trouble(self, retry_at: float, *, coordinator_lost: bool) -> None:
        """A request had no answer, or was refused for now."""
        self._retry_at = retry_at
        if coordinator_lost:
            self.coordinator = None

    def on_joined(self, answer: Joined, now: float, retry_at: float) -> None:
        """The answer to `Join`."""
        if self.state is not State.JOINING:
            return
        code = error_code_of(answer.error_code)
        if code is ErrorCode.NONE:
            self._on_member(answer, now)
        elif code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code in _UNKNOWN_MEMBER:
            self._forget(NO_MEMBER_ID)
            self._rejoin_from_scratch()
        elif code in LOST_COORDINATOR or code in _TRY_AGAIN:
            self.on_trouble(retry_at, coordinator_lost=code in LOST_COORDINATOR)
        else:
            self.fail(refusal(answer.error_code, self.group_id))

    def on_synced(self, error_code: int, assignment: bytes, now: float, retry_at: float) -> None:
        """The answer to `Sync`."""
        if self.state is not State.SYNCING:
            return
        code = error_code_of(error_code)
        self._assignments = ()
        if code is ErrorCode.NONE:
            try:
                self._on_assignment(read_assignment(assignment))
            except CorruptError as error:
                self.fail(type(error)(f"group {self.group_id}: its leader assigned what cannot be read: {error}"))
            self._last_heartbeat = self._last_answer = now
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.state = State.UNJOINED
            self._must_rejoin = True
        elif code in _UNKNOWN_MEMBER:
            self._forget(self.member_id if code is ErrorCode.ILLEGAL_GENERATION else NO_MEMBER_ID)
            self._rejoin_from_scratch()
        elif code in LOST_COORDINATOR or code in _TRY_AGAIN:
            self.on_trouble(retry_at, coordinator_lost=code in LOST_COORDINATOR)
            self.state = State.UNJOINED
            self._must_rejoin = True
        else:
            self.fail(refusal(error_code, self.group_id))

    def on_heartbeat(self, error_code: int, asked: Heartbeat, now: float, retry_at: float) -> None:
        """The answer to `Heartbeat`; one that is about another generation than the present is old news."""
        if (asked.generation, asked.member_id) != (self.generation, self.member_id):
            return
        code = error_code_of(error_code)
        if code is ErrorCode.NONE:
            self._last_answer = now
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._last_answer = now
            self._must_rejoin = True
        elif code in _UNKNOWN_MEMBER:
            self._forget(self.member_id if code is ErrorCode.ILLEGAL_GENERATION else NO_MEMBER_ID)
            self._rejoin_from_scratch()
        elif code in LOST_COORDINATOR or code in _TRY_AGAIN:
            self.on_trouble(retry_at, coordinator_lost=code in LOST_COORDINATOR)
        else:
            self.fail(refusal(error_code, self.group_id))

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """A commit in this generation was refused because of the membership."""
        code = error_code_of(error_code)
        if generation != self.generation or self.state is not State.STABLE:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._must_rejoin = True
        elif code in _UNKNOWN_MEMBER:
            self._forget(self.member_id if code is ErrorCode.ILLEGAL_GENERATION else NO_MEMBER_ID)
            self._rejoin_from_scratch()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.fail(refusal(error_code, self.group_id))

    def fail(self, failure: OttlaError) -> None:
        """Ends the membership; whoever polls is told."""
        self.state, self.failure = State.FAILED, failure
        self.generation = NO_GENERATION

    # Inside

    def _before_joining(self) -> Handover:
        if not self.is_member:
            # The group went on without this member.
            return Handover(assigned=frozenset(), lost=self.owned)
        if not self.is_cooperative:
            return Handover(assigned=frozenset(), revoked=self.owned)
        wanted = self.topics or frozenset()
        gone = frozenset(partition for partition in self.owned if partition.topic not in wanted)
        return Handover(assigned=self.owned - gone, revoked=gone)

    def _join(self) -> Join:
        topics = tuple(sorted(self.topics or ()))
        protocols = []
        for assignor in self.assignors:
            told = MemberSubscription(
                topics=topics,
                owned=tuple(sorted(self.owned)) if self.is_cooperative else (),
                generation=self.generation,
                rack_id=self.rack_id,
                user_data=assignor.user_data(topics),
            )
            protocols.append((assignor.name, write_subscription(told)))
        return Join(member_id=self.member_id, protocols=tuple(protocols))

    def _on_member(self, answer: Joined, now: float) -> None:
        self.member_id, self.generation, self._protocol = answer.member_id, answer.generation, answer.protocol
        self._last_answer = self._last_heartbeat = now
        self._members, self._counts, self._assignments = {}, None, ()
        if answer.leader != answer.member_id:
            self.state = State.SYNCING
            return
        try:
            for member_id, instance_id, told in answer.members:
                self._members[member_id] = read_subscription(told, instance_id)
        except CorruptError as error:
            self.fail(type(error)(f"group {self.group_id}: a member tells what cannot be read: {error}"))
            return
        # A static leader that comes back finds everything assigned, and only has to watch.
        self.state = State.SYNCING if answer.skip_assignment else State.ASSIGNING

    def _assign(self, counts: dict[str, int], racks: PartitionRacks) -> None:
        assignor = next((each for each in self.assignors if each.name == self._protocol), None)
        if assignor is None:
            self.fail(
                answer_error(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                    f"group {self.group_id}",
                    f"it chose the assignor {self._protocol}, which this member did not offer",
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
        assigned = frozenset(partitions)
        self.handover = Handover(
            assigned=assigned,
            revoked=self.owned - assigned,
            added=assigned - self.owned,
            is_new_assignment=True,
        )

    def _rejoin_from_scratch(self) -> None:
        self.state = State.UNJOINED
        self.handover = None
        self._must_rejoin = True

    def _forget(self, member_id: str) -> None:
        self.member_id, self.generation = member_id, NO_GENERATION
        self._members, self._counts, self._assignments = {}, None, ()

    def _group_topics(self) -> frozenset[str]:
        return frozenset(topic for member in self._members.values() for topic in member.topics)
