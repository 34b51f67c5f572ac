"""A member of a group whose coordinator assigns (KIP-848): everything is exchanged in ConsumerGroupHeartbeat. Pure.

The states are those of `membership_state.py`, without ASSIGNING and SYNCING. A target assignment names topics by id;
`NameTopics` asks for their names. A stable member moves to its target by a `Handover` and then tells what it owns.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla.client.errors import error_code_of
from ottla.client.group.handover import Handover
from ottla.client.group.membership_state import (
    COORDINATOR_REACTIONS,
    NO_GENERATION,
    NO_PARTITIONS,
    MembershipState,
    Reaction,
    Reactions,
    State,
    Wait,
)
from ottla.model.error_codes import ErrorCode
from ottla.model.ids import TopicPartition

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
STATIC_LEAVING_EPOCH: Final = -2

TopicIdPartitions = Mapping[UUID, tuple[int, ...]]

_REACTIONS: Final[Reactions] = {
    **COORDINATOR_REACTIONS,
    ErrorCode.FENCED_MEMBER_EPOCH: Reaction.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN,
}
"""Other codes are final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeartbeat:
    """Send ConsumerGroupHeartbeat. Fields that are None have not changed since the last one."""

    member_epoch: int
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    """The pattern that the coordinator matches, beside `topics`; "" to remove it."""
    owned: TopicIdPartitions | None = None
    is_whole: bool = False
    """Whether all other fields are sent too: instance, rack, assignor, rebalance timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameTopics:
    """Look up the names of the topics with these ids."""

    topic_ids: frozenset[UUID]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    """The coordinator's response; without an assignment the target is unchanged."""

    error_code: int
    error_message: str | None = None
    member_epoch: int = NO_GENERATION
    heartbeat_interval: float = 5.0
    assignment: TopicIdPartitions | None = None


@dataclass(slots=True, kw_only=True)
class ConsumerMembershipState(MembershipState[GroupHeartbeat, GroupHeartbeat | NameTopics]):
    """One member. It chooses its `member_id` for its whole life. Times are seconds of a monotonic clock."""

    patience: float = 0.0
    """How long to wait until the group gives up an earlier static member with the same instance id."""
    pattern: str = ""
    """The pattern that the coordinator matches, beside `topics`: RE2 syntax, for whole names."""
    _interval: float = 5.0
    """Between two heartbeats, as the coordinator says."""
    _target: TopicIdPartitions = field(default_factory=dict)
    _names: dict[UUID, str] = field(default_factory=dict)
    _ids: dict[str, UUID] = field(default_factory=dict)
    _named: frozenset[TopicPartition] = NO_PARTITIONS
    """The part of the target whose topic names are known."""
    _names_at: float = 0.0
    """When names may be looked up again."""
    _must_tell_owned: bool = False
    _told: tuple[frozenset[str] | None, str] | None = None
    """The topics and the pattern that the coordinator knows; None if that is in doubt."""
    _has_told_pattern: bool = False
    """Whether the coordinator may have a pattern. Else the field is not sent: brokers before Kafka 4 do not have it."""
    _refused_since: float | None = None
    _started: Handover | None = None
    """The last change that the program began to carry out."""
    _is_assigned: bool = False
    """Whether the listener was told of an assignment since joining."""

    # Called by the consumer

    def subscribe(self, topics: Collection[str] | None, pattern: str = "") -> None:
        """Changes the subscription, which the next heartbeat tells; None to be in no group."""
        self.topics = None if topics is None else frozenset(topics)
        self.pattern = pattern
        if self.state is State.STABLE and self.topics is not None and self._told != (self.topics, pattern):
            self._next_heartbeat = 0.0

    def on_handover_started(self, started: Handover) -> None:
        """The program begins to carry out `handover`: from now on a newer target does not replace it."""
        self._started = started

    def on_names(self, names: Mapping[UUID, str], retry_at: float) -> None:
        """The result of `NameTopics`; without ids that the metadata does not know."""
        self._names.update(names)
        self._ids.update({name: topic_id for topic_id, name in names.items()})
        self._names_at = retry_at
        self._name_target()
        self._reconcile()

    def watched_topics(self) -> frozenset[str]:
        """The topics whose metadata must be kept current; those that a pattern matches are known by the target."""
        topics = self.topics or frozenset()
        if not self.pattern:
            return topics
        return topics | {partition.topic for partition in self.owned | self._named}

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """A commit of this epoch was refused: a heartbeat finds out why."""
        if generation == self.generation and self.state is State.STABLE:
            self._next_heartbeat = 0.0

    # What to do

    def _next_request(self, now: float) -> Wait | GroupHeartbeat | NameTopics:
        if self.state not in (State.JOINING, State.STABLE):
            return Wait(until=None)
        unnamed = self._unnamed()
        if unnamed and self._names_at <= now:
            return NameTopics(topic_ids=unnamed)
        if self._next_heartbeat <= now:
            return self._heartbeat(now)
        return Wait(until=min(self._next_heartbeat, self._poll_deadline(), *([self._names_at] if unnamed else [])))

    def _heartbeat(self, now: float) -> GroupHeartbeat:
        self._next_heartbeat = now + self._interval
        topics = tuple(sorted(self.topics or ()))
        told, self._told = self._told, (self.topics, self.pattern)
        self._has_told_pattern = self._has_told_pattern or bool(self.pattern)
        pattern = self.pattern if self._has_told_pattern else None
        if self.state is State.JOINING:
            return GroupHeartbeat(member_epoch=JOINING_EPOCH, topics=topics, pattern=pattern, owned={}, is_whole=True)
        # After a lost response everything is said: the coordinator then repeats the assignment that was in it.
        is_whole = told is None
        owned = None
        if self._must_tell_owned or is_whole:
            # Partitions of an unfinished change count as owned: else the coordinator may assign them to another member
            # while this one takes them. What is owned is told again once the change is finished or replaced.
            claimed = self.owned if self.handover is None else self.owned | self.handover.assigned
            self._must_tell_owned = claimed != self.owned
            by_id: dict[UUID, list[int]] = {}
            for topic, partition in sorted(claimed):
                by_id.setdefault(self._ids[topic], []).append(partition)
            owned = {topic_id: tuple(partitions) for topic_id, partitions in by_id.items()}
        if told == self._told:
            return GroupHeartbeat(member_epoch=self.generation, owned=owned)
        return GroupHeartbeat(
            member_epoch=self.generation, topics=topics, pattern=pattern, owned=owned, is_whole=is_whole
        )

    def _leaving(self, reason: str) -> GroupHeartbeat | None:
        """A static member says that it may come back."""
        if not self.is_member and self.state is not State.JOINING:
            return None
        return GroupHeartbeat(member_epoch=LEAVING_EPOCH if self.instance_id is None else STATIC_LEAVING_EPOCH)

    # What came of it

    def on_trouble(self, retry_at: float, *, coordinator_lost: bool) -> None:
        """A request got no response, or was refused for now. What it said is said again."""
        self._retry_at = retry_at
        self._next_heartbeat = 0.0
        self._must_tell_owned = self.state is State.STABLE
        self._told = None
        if coordinator_lost:
            self.coordinator = None

    def on_heartbeat(self, asked: GroupHeartbeat, answer: HeartbeatAnswer, retry_at: float) -> None:
        """The response to a heartbeat."""
        if asked.member_epoch < 0 or self.state not in (State.JOINING, State.STABLE):
            return
        code = error_code_of(answer.error_code)
        if code is ErrorCode.NONE:
            self._on_answer(answer)
            return
        reaction = _REACTIONS.get(code, Reaction.FAIL)
        if code is ErrorCode.UNRELEASED_INSTANCE_ID and self._is_patient(retry_at):
            reaction = Reaction.RETRY
        self._react(reaction, answer.error_code, retry_at, answer.error_message)

    # Steps

    def _on_answer(self, answer: HeartbeatAnswer) -> None:
        self._refused_since = None
        self.generation = answer.member_epoch
        self._interval = answer.heartbeat_interval
        self.state = State.STABLE
        if answer.assignment is not None:
            self._target = answer.assignment
            self._names_at = 0.0
            # Told even if nothing changes here: the coordinator waits for it before it gives other members partitions
            # that this one was assigned and never took.
            self._must_tell_owned = True
            self._name_target()
            self._reconcile()

    def _is_patient(self, retry_at: float) -> bool:
        """Whether to go on waiting: an earlier member that crashed is given up when its session times out."""
        if self._refused_since is None:
            self._refused_since = retry_at
        return retry_at - self._refused_since < self.patience

    def _reconcile(self) -> None:
        """Makes the change to the target, as far as names are known, unless the program carries out one already.

        A change that was not begun is replaced: partitions it would add may belong to another member by now.
        """
        if self.state is State.STABLE and self.handover is not self._started:
            self.handover = None
        if self._is_behind():
            self.handover = Handover.to(self._named, self.owned)

    def _is_behind(self) -> bool:
        if self.state is not State.STABLE or self.handover is not None or self.topics is None:
            return False
        is_first = not self._is_assigned and not self._unnamed()
        return is_first or self._named != self.owned

    def _on_assigned(self, gave_up: frozenset[TopicPartition]) -> None:
        self._is_assigned = True
        self.rebalances += 1
        self._must_tell_owned = True
        self._next_heartbeat = 0.0

    def _name_target(self) -> None:
        self._named = frozenset(
            TopicPartition(self._names[topic_id], partition)
            for topic_id, partitions in self._target.items()
            if topic_id in self._names
            for partition in partitions
        )

    def _unnamed(self) -> frozenset[UUID]:
        return frozenset(topic_id for topic_id in self._target if topic_id not in self._names)

    def _forget(self, *, keeps_id: bool = False) -> None:
        self.generation = NO_GENERATION
        self._target, self._named = {}, NO_PARTITIONS
        self._told = None
        self._must_tell_owned = False
        self._is_assigned = False
        self._next_heartbeat = 0.0
