"""A member of a group whose coordinator assigns (KIP-848): heartbeats carry everything. Pure.

| state | what is done | exits |
|---|---|---|
| UNJOINED | nothing until somebody polls | JOINING |
| JOINING | a heartbeat of epoch 0 with all that the coordinator must know | STABLE |
| STABLE | heartbeats; a new target makes a `Handover` for whoever polls; then its end is told at once | FENCED |
| FENCED | the group went on: what was owned is lost, by a `Handover` | JOINING |
| FAILED | nothing more; `failure` says why | – |

Partitions come by topic ids; `NameTopics` asks for the names. The twin for classic groups, and the actions that both
share, are in `membership_state.py`.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from uuid import UUID

from ottla.client.errors import error_code_of
from ottla.client.group.assignors.assignor import PartitionRacks
from ottla.client.group.assignors.nearness import NO_RACKS
from ottla.client.group.classic_membership_state import LOST_COORDINATOR, FindCoordinator, Wait, refusal
from ottla.client.group.rebalance import Handover
from ottla.model.error_codes import ErrorCode
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2
_NO_EPOCH: Final = -1

TopicIdPartitions = Mapping[UUID, tuple[int, ...]]


class State(Enum):
    """See the module's docstring."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    STABLE = "stable"
    FENCED = "fenced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeartbeat:
    """A heartbeat. What is None has not changed since the one before."""

    member_epoch: int
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """What names of topics the coordinator is to look for beside `topics`; "" for none any more."""
    owned: TopicIdPartitions | None = None
    is_whole: bool = False
    """Whether the rest is to be told as well: instance, rack, assignor, rebalance timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTopics:
    """Ask the metadata for the topics with these ids."""

    topic_ids: frozenset[UUID]


Action = FindCoordinator | GroupHeartbeat | NameTopics | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The coordinator's answer; without an assignment the target is as it was."""

    error_code: int
    error_message: str | None = None
    member_epoch: int = _NO_EPOCH
    heartbeat_interval: float = 5.0
    assignment: TopicIdPartitions | None = None


@dataclass(slots=True)
class ConsumerMembershipState:
    """See the module's docstring. Times are of a clock that never goes back, in seconds."""

    group_id: str
    member_id: str
    """Chosen by the member, for its whole life."""
    poll_interval: float
    patience: float = 0.0
    """How long to wait for a static member of this name that has not been heard of to be given up by its group."""
    instance_id: str | None = None
    state: State = State.UNJOINED
    topics: frozenset[str] | None = None
    """What this member wants; None while it wants to be in no group."""
    pattern: str = ""
    """What it wants beside, matched by the coordinator: RE2's syntax, for whole names."""
    owned: frozenset[TopicPartition] = frozenset()
    handover: Handover | None = None
    coordinator: int | None = None
    generation: int = _NO_EPOCH
    """The member epoch."""
    failure: OttlaError | None = None
    is_polling: bool = False
    rebalances: int = 0
    _target: TopicIdPartitions = field(default_factory=dict)
    _names: dict[UUID, str] = field(default_factory=dict)
    _ids: dict[str, UUID] = field(default_factory=dict)
    _must_tell_owned: bool = False
    _told: tuple[frozenset[str] | None, str] | None = None
    """The topics and the pattern that the coordinator knows of; None if that is in doubt."""
    _has_told_pattern: bool = False
    """Whether the coordinator may know of a pattern. Those before Kafka 4 do not know what that is, nor need they."""
    _interval: float = 5.0
    _last_poll: float = 0.0
    _next_heartbeat: float = 0.0
    _names_at: float = 0.0
    """When the metadata may be asked for names again."""
    _retry_at: float = 0.0
    _farewell: GroupHeartbeat | None = None
    _named: frozenset[TopicPartition] = frozenset()
    """The part of the target whose names are known."""
    _refused_since: float | None = None
    _is_handing_over: bool = False
    _is_assigned: bool = False
    """Whether the listener has heard of an assignment since joining."""

    @property
    def is_member(self) -> bool:
        """Whether the coordinator counts this member in, as far as it knows."""
        return self.generation > 0

    def subscribe(self, topics: Collection[str] | None, pattern: str = "") -> None:
        """What this member wants from now on; None to be in no group. The pattern is the coordinator's to match."""
        self.topics = None if topics is None else frozenset(topics)
        self.pattern = pattern
        if self.state is State.STABLE and self.topics is not None and self._told != (self.topics, pattern):
            self._next_heartbeat = 0.0

    def on_poll(self, now: float) -> None:
        """Somebody polls."""
        self.touch(now)
        if self.topics is None:
            return
        if self.state is State.FENCED and self.handover is None:
            self.handover = Handover(assigned=frozenset(), lost=self.owned)
        elif self.state is State.UNJOINED:
            self.state = State.JOINING
        self._reconcile()

    def touch(self, now: float) -> None:
        """Somebody polls, and finds everything as it should be."""
        self._last_poll = now

    @property
    def wants_poll(self) -> bool:
        """Whether `on_poll` would do more than `touch`."""
        return self.topics is not None and (self.state in (State.UNJOINED, State.FENCED) or self._is_behind())

    def on_handover_started(self, started: Handover) -> None:
        """Whoever polls does what `handover` asks; from now on it is not changed any more."""
        self._is_handing_over = self.handover is started

    def on_handover_done(self, done: Handover) -> None:
        """Whoever polls has done what `handover` asked, or one before it that has been overtaken meanwhile."""
        self.owned = done.assigned
        if self.handover is not done:
            self._reconcile()
            return
        self.handover = None
        self._is_handing_over = False
        if self.state is State.FENCED:
            self.state = State.JOINING
            return
        self._is_assigned = True
        self.rebalances += 1
        self._must_tell_owned = True
        self._next_heartbeat = 0.0

    def on_names(self, names: Mapping[UUID, str], retry_at: float) -> None:
        """The metadata was asked; ids that it does not know are not in it."""
        self._names.update(names)
        self._ids.update({name: topic_id for topic_id, name in names.items()})
        self._names_at = retry_at
        self._name_target()
        self._reconcile()

    def on_partition_counts(self, counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS) -> None:
        """The coordinator looks after that."""

    def watched_topics(self) -> frozenset[str]:
        """What the metadata must be asked about."""
        topics = self.topics or frozenset()
        if not self.pattern:
            return topics
        return topics | {partition.topic for partition in self.owned | self._named}

    def leave(self, reason: str) -> GroupHeartbeat | None:
        """Forgets the group; answers what to tell it. A static member says that it may come back."""
        farewell = None
        if self.is_member or self.state is State.JOINING:
            epoch = LEAVING_EPOCH if self.instance_id is None else STATIC_LEAVING_EPOCH
            farewell = GroupHeartbeat(member_epoch=epoch)
        self._forget()
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
        if self.is_member and not self.is_polling and now >= self._last_poll + self.poll_interval:
            epoch = LEAVING_EPOCH if self.instance_id is None else STATIC_LEAVING_EPOCH
            self._farewell = GroupHeartbeat(member_epoch=epoch)
            self._be_fenced()
        if self.coordinator is None and (self._farewell is not None or self.state in (State.JOINING, State.STABLE)):
            return FindCoordinator()
        if self._farewell is not None:
            farewell, self._farewell = self._farewell, None
            return farewell
        if self.state in (State.UNJOINED, State.FENCED):
            return Wait(until=None)
        if self._unnamed() and self._names_at <= now:
            return NameTopics(topic_ids=self._unnamed())
        if self._next_heartbeat <= now:
            return self._heartbeat(now)
        waits = [self._next_heartbeat]
        if self._unnamed():
            waits.append(self._names_at)
        if self.is_member and not self.is_polling:
            waits.append(self._last_poll + self.poll_interval)
        return Wait(until=min(waits))

    def _heartbeat(self, now: float) -> GroupHeartbeat:
        self._next_heartbeat = now + self._interval
        topics = tuple(sorted(self.topics or ()))
        told, self._told = self._told, (self.topics, self.pattern)
        self._has_told_pattern = self._has_told_pattern or bool(self.pattern)
        pattern = self.pattern if self._has_told_pattern else None
        if self.state is State.JOINING:
            return GroupHeartbeat(member_epoch=JOINING_EPOCH, topics=topics, pattern=pattern, owned={}, is_whole=True)
        # Whoever says all is told all: an answer that was lost may have had an assignment in it.
        is_whole = told is None
        owned = None
        if self._must_tell_owned or is_whole:
            self._must_tell_owned = False
            by_id: dict[UUID, list[int]] = {}
            for topic, partition in sorted(self.owned):
                by_id.setdefault(self._ids[topic], []).append(partition)
            owned = {topic_id: tuple(partitions) for topic_id, partitions in by_id.items()}
        if told == self._told:
            return GroupHeartbeat(member_epoch=self.generation, owned=owned)
        return GroupHeartbeat(
            member_epoch=self.generation, topics=topics, pattern=pattern, owned=owned, is_whole=is_whole
        )

    # What came of it

    def on_coordinator(self, broker: int, now: float) -> None:
        """The coordinator is known."""
        self.coordinator = broker

    def on_trouble(self, retry_at: float, *, coordinator_lost: bool) -> None:
        """A request had no answer, or was refused for now. What it told is told again."""
        self._retry_at = retry_at
        self._next_heartbeat = 0.0
        self._must_tell_owned = self.state is State.STABLE
        self._told = None
        if coordinator_lost:
            self.coordinator = None

    def on_heartbeat(self, asked: GroupHeartbeat, answer: HeartbeatAnswer, retry_at: float) -> None:
        """The answer to a heartbeat."""
        if asked.member_epoch < 0 or self.state not in (State.JOINING, State.STABLE):
            return
        code = error_code_of(answer.error_code)
        if code is ErrorCode.NONE:
            self._on_answer(answer)
        elif code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._be_fenced()
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID and self._is_patient(retry_at):
            self.on_trouble(retry_at, coordinator_lost=False)
        elif code in LOST_COORDINATOR or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.on_trouble(retry_at, coordinator_lost=code in LOST_COORDINATOR)
        else:
            self.fail(refusal(answer.error_code, self.group_id, answer.error_message))

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """A commit in this epoch was refused because of the membership; the next heartbeat will tell."""
        if generation == self.generation and self.state is State.STABLE:
            self._next_heartbeat = 0.0

    def fail(self, failure: OttlaError) -> None:
        """Ends the membership; whoever polls is told."""
        self.state, self.failure = State.FAILED, failure
        self.generation = _NO_EPOCH

    # Inside

    def _on_answer(self, answer: HeartbeatAnswer) -> None:
        self._refused_since = None
        self.generation = answer.member_epoch
        self._interval = answer.heartbeat_interval
        self.state = State.STABLE
        if answer.assignment is not None:
            self._target = answer.assignment
            self._names_at = 0.0
            self._name_target()
            self._reconcile()

    def _is_patient(self, retry_at: float) -> bool:
        """Whether to wait still: one that crashed is counted in until its session ends, one that lives goes on."""
        if self._refused_since is None:
            self._refused_since = retry_at
        return retry_at - self._refused_since < self.patience

    def _reconcile(self) -> None:
        """Makes the next step towards the target, as far as names are known, unless one is being made.

        One that has not begun gives way to a newer target: what it would add may be somebody else's by now.
        """
        if self.state is State.STABLE and not self._is_handing_over:
            self.handover = None
        if self._is_behind():
            target = self._named
            self.handover = Handover(
                assigned=target, revoked=self.owned - target, added=target - self.owned, is_new_assignment=True
            )

    def _is_behind(self) -> bool:
        if self.state is not State.STABLE or self.handover is not None or self.topics is None:
            return False
        is_first = not self._is_assigned and not self._unnamed()
        return is_first or self._named != self.owned

    def _name_target(self) -> None:
        self._named = frozenset(
            TopicPartition(self._names[topic_id], partition)
            for topic_id, partitions in self._target.items()
            if topic_id in self._names
            for partition in partitions
        )

    def _unnamed(self) -> frozenset[UUID]:
        return frozenset(topic_id for topic_id in self._target if topic_id not in self._names)

    def _be_fenced(self) -> None:
        self._forget()
        self.handover, self._is_handing_over = None, False
        self.state = State.FENCED

    def _forget(self) -> None:
        self.generation = _NO_EPOCH
        self._target, self._named = {}, frozenset()
        self._told = None
        self._must_tell_owned = False
        self._is_assigned = False
        self._next_heartbeat = 0.0
