"""A member of a share group (KIP-932): everything is exchanged in ShareGroupHeartbeat. Pure.

The states are those of `membership_state.py`, without PREPARING, ASSIGNING and SYNCING. Members share partitions, so an
assignment takes effect at once: nothing is handed over, and the coordinator is not told what a member reads. An
assignment names topics by id; `NameTopics` asks for their names.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ottla.client.errors import error_code_of
from ottla.client.group.consumer_membership_state import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    HeartbeatAnswer,
    NameTopics,
    TopicIdPartitions,
)
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
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated
from ottla.protocol.share_frames import TopicIdPartition

_REACTIONS: Final[Reactions] = {
    **COORDINATOR_REACTIONS,
    ErrorCode.FENCED_MEMBER_EPOCH: Reaction.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.REJOIN,
}
"""Other codes are final."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """Send ShareGroupHeartbeat. `topics` is None if the subscription has not changed since the last one."""

    member_epoch: int
    topics: tuple[str, ...] | None = None
    is_whole: bool = False
    """Whether the rack is sent too."""


@dataclass(slots=True, kw_only=True)
class ShareMembershipState(MembershipState[ShareHeartbeat, ShareHeartbeat | NameTopics]):
    """One member. It chooses its `member_id` for its whole life. Times are seconds of a monotonic clock."""

    _interval: float = 5.0
    """Between two heartbeats, as the coordinator says."""
    _sent_at: float = 0.0
    """When the last heartbeat was sent."""
    _target: TopicIdPartitions = field(default_factory=dict)
    _names: dict[UUID, str] = field(default_factory=dict)
    _names_at: float = 0.0
    """When names may be looked up again."""
    _told: frozenset[str] | None = None
    """The topics that the coordinator knows; None if that is in doubt."""

    # Called by the consumer

    def subscribe(self, topics: Collection[str] | None) -> None:
        """Changes the subscription, which the next heartbeat tells; None to be in no group."""
        self.topics = None if topics is None else frozenset(topics)
        if self.state is State.STABLE and self.topics is not None and self._told != self.topics:
            self._next_heartbeat = 0.0

    def on_names(self, names: Mapping[UUID, str], retry_at: float) -> None:
        """The result of `NameTopics`; without ids that the metadata does not know."""
        self._names.update({topic_id: names[topic_id] for topic_id in self._target if topic_id in names})
        self._names_at = retry_at
        self._assign()

    def watched_topics(self) -> frozenset[str]:
        """The topics whose metadata must be kept current."""
        return (self.topics or frozenset()) | {partition.topic for partition in self.owned}

    def assigned(self) -> dict[TopicIdPartition, TopicPartition]:
        """The assigned partitions whose topic's name is known, by topic id and with that name."""
        return {
            TopicIdPartition(topic_id, partition): TopicPartition(self._names[topic_id], partition)
            for topic_id, partitions in self._target.items()
            if topic_id in self._names
            for partition in partitions
        }

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """A broker does not know this member: a heartbeat finds out why."""
        if generation == self.generation and self.state is State.STABLE:
            self._next_heartbeat = 0.0

    # What to do

    def _next_request(self, now: float) -> Wait | ShareHeartbeat | NameTopics:
        if self.state not in (State.JOINING, State.STABLE):
            return Wait(until=None)
        unnamed = self._unnamed()
        if unnamed and self._names_at <= now:
            return NameTopics(topic_ids=unnamed)
        if self._next_heartbeat <= now:
            return self._heartbeat(now)
        return Wait(until=min(self._next_heartbeat, self._poll_deadline(), *([self._names_at] if unnamed else [])))

    def _heartbeat(self, now: float) -> ShareHeartbeat:
        self._sent_at, self._next_heartbeat = now, now + self._interval
        topics = tuple(sorted(self.topics or ()))
        told, self._told = self._told, self.topics
        if self.state is State.JOINING:
            return ShareHeartbeat(member_epoch=JOINING_EPOCH, topics=topics, is_whole=True)
        if told == self._told:
            return ShareHeartbeat(member_epoch=self.generation)
        # After a lost response everything is said: the coordinator then repeats the assignment that was in it.
        return ShareHeartbeat(member_epoch=self.generation, topics=topics, is_whole=told is None)

    def _leaving(self, reason: str) -> ShareHeartbeat | None:
        if not self.is_member and self.state is not State.JOINING:
            return None
        return ShareHeartbeat(member_epoch=LEAVING_EPOCH)

    # What came of it

    def on_trouble(self, retry_at: float, *, coordinator_lost: bool) -> None:
        """A request got no response, or was refused for now. What it said is said again."""
        self._retry_at = retry_at
        self._next_heartbeat = 0.0
        self._told = None
        if coordinator_lost:
            self.coordinator = None

    def on_heartbeat(self, asked: ShareHeartbeat, answer: HeartbeatAnswer, retry_at: float) -> None:
        """The response to a heartbeat."""
        if asked.member_epoch < 0 or self.state not in (State.JOINING, State.STABLE):
            return
        code = error_code_of(answer.error_code)
        if code is not ErrorCode.NONE:
            self._react(_REACTIONS.get(code, Reaction.FAIL), answer.error_code, retry_at, answer.error_message)
            return
        self.generation = answer.member_epoch
        self._interval = answer.heartbeat_interval
        # The first heartbeat was sent before the interval was known.
        self._next_heartbeat = min(self._next_heartbeat, self._sent_at + self._interval)
        self.state = State.STABLE
        if answer.assignment is not None:
            self._target = answer.assignment
            self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in self._target}
            self._names_at = 0.0
            self.rebalances += 1
            self._assign()

    def fail(self, failure: OttlaError) -> None:
        """Ends the membership with an error that polls raise."""
        self._forget()
        self.state, self.failure = State.FAILED, failure

    # Steps

    def _assign(self) -> None:
        """The target takes effect as far as its topics' names are known."""
        self.owned = frozenset(self.assigned().values())

    def _unnamed(self) -> frozenset[UUID]:
        return frozenset(topic_id for topic_id in self._target if topic_id not in self._names)

    def _is_behind(self) -> bool:
        return False

    def _reconcile(self) -> None:
        """Nothing waits: an assignment takes effect at once."""

    def _forget(self, *, keeps_id: bool = False) -> None:
        self.generation = NO_GENERATION
        self._target, self._names, self.owned = {}, {}, NO_PARTITIONS
        self._told = None
        self._next_heartbeat = 0.0

    def check(self) -> None:
        """Raises `InvariantViolation` if the assignment does not fit the membership."""
        if self.owned and not self.is_member:
            violated(f"{sorted(self.owned)} are assigned, and the consumer is not a member of {self.group_id}")
        if self.handover is not None:
            violated("a member of a share group hands nothing over")
        if not self._names.keys() <= self._target.keys():
            violated("names are kept of topics that are not assigned")
