"""What a consumer is subscribed to, the partitions assigned to it, and the position in each. Pure.

Covers positions, pauses, resets and validation. Fetched records are in `ottla.client.fetch.fetch_plan_state`, the
assignment by a group in `ottla.client.group.membership_state`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.client.consumer.errors import NotAssignedError
from ottla.client.consumer.topic_pattern import TopicPattern
from ottla.client.fetch.partition_state import UNKNOWN, PartitionState, Phase
from ottla.client.network.list_offsets import END, START
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated


class Kind(Enum):
    """How a consumer gets its partitions; one way at a time."""

    NOTHING = "nothing"
    TOPICS = "subscribe"
    PATTERN = "subscribe with a pattern"
    BY_HAND = "assign"


RESETS: Final[Mapping[str, int | None]] = {"earliest": START, "latest": END, "none": None}
"""The values of `auto_offset_reset`."""


@dataclass(slots=True)
class SubscriptionState:
    """One consumer's subscription. `partitions` is always the same dict, in the order of assignment."""

    reset_policy: int | None
    """Where a partition without a committed offset begins; None if the program must call `seek`."""
    kind: Kind = Kind.NOTHING
    topics: frozenset[str] = frozenset()
    """The topics subscribed to; with a pattern, those that matched last."""
    pattern: TopicPattern | None = None
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    redeliveries: set[str] = field(default_factory=set)
    """Topics with records that this group handed back. They are always read from the start: none may be skipped."""

    # Subscribing

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Subscribes to topics; returns whether that is a change."""
        self._become(Kind.TOPICS)
        wanted = frozenset(topics)
        has_changed = wanted != self.topics
        self.topics = wanted
        return has_changed

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribes to the topics whose names begin as the pattern says; `match` gets the names of all topics."""
        compiled = TopicPattern(pattern)
        self._become(Kind.PATTERN)
        self.pattern = compiled

    def subscribe_remotely(self) -> None:
        """Subscribes by a pattern that the coordinator matches; the assignment tells the topics."""
        self._become(Kind.PATTERN)
        self.pattern = None

    def match(self, topics: Iterable[str]) -> bool:
        """Subscribes to those of all topics that match the pattern; returns whether that is a change."""
        if self.pattern is None:
            return False
        matched = frozenset(topic for topic in topics if self.pattern.matches_start(topic))
        has_changed = matched != self.topics
        self.topics = matched
        return has_changed

    def assign_by_hand(self, partitions: Collection[TopicPartition]) -> None:
        """Assigns exactly these partitions; those that were assigned before keep their positions."""
        self._become(Kind.BY_HAND)
        self._replace(partitions)

    def unsubscribe(self) -> None:
        """Ends the subscription and the assignment."""
        self.kind, self.topics, self.pattern = Kind.NOTHING, frozenset(), None
        self.partitions.clear()

    # Assignment

    def assign_by_group(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Assigns exactly these partitions, as the group decided; returns those that are new."""
        if self.kind not in (Kind.TOPICS, Kind.PATTERN):
            violated(f"the group assigned {sorted(partitions)} to a consumer of kind {self.kind}")
        added = [partition for partition in partitions if partition not in self.partitions]
        self._replace(partitions)
        if self.kind is Kind.PATTERN and self.pattern is None:
            self.topics = frozenset(partition.topic for partition in partitions)
        return added

    def state(self, partition: TopicPartition) -> PartitionState:
        """The state of an assigned partition. Raises `NotAssignedError`."""
        try:
            return self.partitions[partition]
        except KeyError:
            raise NotAssignedError(partition) from None

    # Positions

    def seek(self, partition: TopicPartition, offset: int, offset_epoch: int = UNKNOWN) -> None:
        """Moves the position. With the leader epoch of the record before it, the position is validated first."""
        state = self.state(partition)
        state.offset, state.offset_epoch, state.reset_to, state.retry_at = offset, offset_epoch, None, 0.0
        state.leader_epoch = UNKNOWN
        state.phase = Phase.VALIDATING if offset_epoch >= 0 else Phase.FETCHING

    def reset(self, partition: TopicPartition, to: int) -> None:
        """Moves the position to the first or the end offset (`START`, `END`), or to a timestamp: asks the leader."""
        state = self.state(partition)
        state.phase, state.reset_to, state.retry_at = Phase.RESETTING, to, 0.0
        state.offset = state.offset_epoch = UNKNOWN

    def policy_of(self, partition: TopicPartition) -> int | None:
        """Where the partition begins without a committed offset; None if the program must call `seek`."""
        return START if partition.topic in self.redeliveries else self.reset_policy

    def on_committed(self, partition: TopicPartition, offset: int | None, offset_epoch: int) -> bool:
        """The committed offset was looked up, None for none; returns False if there is no position and no reset policy.

        A partition that was revoked or sought meanwhile stays as it is.
        """
        state = self.partitions.get(partition)
        if state is None or state.phase is not Phase.UNKNOWN:
            return True
        if offset is not None:
            self.seek(partition, offset, offset_epoch)
            return True
        policy = self.policy_of(partition)
        if policy is None:
            return False
        self.reset(partition, policy)
        return True

    def on_reset(self, partition: TopicPartition, asked: int, offset: int) -> None:
        """The leader returned the offset; ignored if the partition is not being reset to that any more.

        No record before the offset was read, so the position needs no validation after a leader change.
        """
        state = self.partitions.get(partition)
        if state is None or state.phase is not Phase.RESETTING or state.reset_to != asked:
            return
        state.phase, state.reset_to, state.retry_at = Phase.FETCHING, None, 0.0
        state.offset, state.offset_epoch, state.leader_epoch = offset, UNKNOWN, UNKNOWN

    def on_leader(self, partition: TopicPartition, leader_epoch: int) -> bool:
        """The leader is known; returns True after a leader change, when the position must be validated."""
        state = self.partitions.get(partition)
        if state is None or leader_epoch <= state.leader_epoch or state.phase is not Phase.FETCHING:
            return False
        if state.leader_epoch >= 0 and state.offset_epoch >= 0:
            state.phase = Phase.VALIDATING
            state.retry_at = 0.0
            return True
        state.leader_epoch = leader_epoch
        return False

    def on_validated(
        self, partition: TopicPartition, asked_offset: int, leader_epoch: int, end_epoch: int, end_offset: int
    ) -> int | None:
        """The leader returned where the epoch of the record before the position ends, (-1, -1) if it does not know it.

        Returns the offset at which the log was truncated if that is below the position, -1 if it is unknown, None if
        the position is valid. A truncated position is reset by the policy; without one the partition waits for `seek`.
        """
        state = self.partitions.get(partition)
        if state is None or state.phase is not Phase.VALIDATING or state.offset != asked_offset:
            return None
        if end_offset >= state.offset and end_epoch >= 0:
            state.phase, state.leader_epoch, state.retry_at = Phase.FETCHING, leader_epoch, 0.0
            return None
        policy = self.policy_of(partition)
        if policy is None:
            return end_offset
        if end_offset < 0:
            self.reset(partition, policy)
        else:
            state.phase, state.leader_epoch, state.retry_at = Phase.FETCHING, leader_epoch, 0.0
            state.offset, state.offset_epoch = end_offset, end_epoch
        return end_offset

    def waiting(self, phase: Phase, now: float) -> list[TopicPartition]:
        """The partitions in a phase that are not backing off."""
        return [each for each, state in self.partitions.items() if state.phase is phase and state.retry_at <= now]

    def next_retry(self) -> float | None:
        """When the next partition without a valid position may be tried again; None if there is none."""
        waiting = [state.retry_at for state in self.partitions.values() if state.phase is not Phase.FETCHING]
        return min(waiting, default=None)

    def positions(self) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, leader epoch) of every partition whose position is known."""
        return {
            partition: (state.offset, state.offset_epoch)
            for partition, state in self.partitions.items()
            if state.offset >= 0
        }

    def lag(self, partition: TopicPartition, *, committed_only: bool) -> int | None:
        """How many offsets the position is behind the end; None if that is not known yet."""
        state = self.state(partition)
        end = state.last_stable_offset if committed_only else state.high_watermark
        return None if end < 0 or state.offset < 0 else max(end - state.offset, 0)

    def check(self) -> None:
        """Raises `InvariantViolation` if a partition's fields contradict each other."""
        for partition, state in self.partitions.items():
            if (state.phase is Phase.RESETTING) != (state.reset_to is not None):
                violated(f"{partition} is {state.phase}, and reset_to is {state.reset_to}")
            if state.phase in (Phase.FETCHING, Phase.VALIDATING) and state.offset < 0:
                violated(f"{partition} is {state.phase} without a position")
            if state.phase is Phase.VALIDATING and state.offset_epoch < 0:
                violated(f"{partition} is validated without an epoch")
        if self.partitions and self.kind is Kind.NOTHING:
            violated(f"{len(self.partitions)} partitions are assigned to a consumer without a subscription")

    def _become(self, kind: Kind) -> None:
        if self.kind not in (Kind.NOTHING, kind):
            raise MisuseError(
                f"this consumer uses {self.kind.value}, and cannot use {kind.value} as well; call unsubscribe() first"
            )
        self.kind = kind

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        states = {partition: self.partitions.get(partition) or PartitionState() for partition in partitions}
        self.partitions.clear()
        self.partitions.update(states)
