"""What a consumer wants and has: topics or partitions, and for each partition where it is and what it waits for.

Pure. Covers positions, pauses, resets and validation. What was fetched is in `fetch_plan_state.py`, who gives the
partitions in `membership_state.py` and `consumer_membership_state.py`.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ottla.client.consumer.errors import NotAssignedError
from ottla.client.network.list_offsets import END, START
from ottla.model.errors import MisuseError
from ottla.model.ids import TopicPartition
from ottla.model.invariants import violated

UNKNOWN: Final = -1


class Kind(Enum):
    """How a consumer comes to its partitions; one way at a time."""

    NOTHING = "nothing"
    TOPICS = "subscribe"
    PATTERN = "subscribe with a pattern"
    BY_HAND = "assign"


class Phase(Enum):
    """What a partition waits for before it can be read."""

    UNKNOWN = "unknown"
    """Nobody has looked what the group committed. Exits: RESETTING, VALIDATING, FETCHING."""
    RESETTING = "resetting"
    """Its leader is asked where it begins, ends, or was at a time. Exit: FETCHING."""
    VALIDATING = "validating"
    """Its leader is asked whether the log still holds what comes before the position. Exits: FETCHING, RESETTING."""
    FETCHING = "fetching"
    """It is read. Exits: VALIDATING by a new leader, RESETTING if the offset is gone."""


@dataclass(slots=True)
class PartitionState:
    """One assigned partition. `offset` is the next to hand out, known unless the phase is UNKNOWN or RESETTING."""

    phase: Phase = Phase.UNKNOWN
    offset: int = UNKNOWN
    offset_epoch: int = UNKNOWN
    """The leader epoch of the record before `offset`, if known."""
    leader_epoch: int = UNKNOWN
    """The leader that the position was last checked against."""
    reset_to: int | None = None
    """The time that ListOffsets is asked for; set exactly while RESETTING."""
    retry_at: float = 0.0
    """Not to be asked about before."""
    is_paused: bool = False
    high_watermark: int = UNKNOWN
    last_stable_offset: int = UNKNOWN
    log_start_offset: int = UNKNOWN
    read_replica: int = UNKNOWN
    """A follower that is nearer than the leader, to be read from until `read_replica_until`."""
    read_replica_until: float = 0.0


RESETS: Final[Mapping[str, int | None]] = {"earliest": START, "latest": END, "none": None}
"""What `auto_offset_reset` can be."""


@dataclass(slots=True)
class SubscriptionState:
    """See the module's docstring. `partitions` is what the consumer has; its order is that of assignment."""

    reset_policy: int | None
    """Where a partition without a position begins; None if somebody must say."""
    kind: Kind = Kind.NOTHING
    topics: frozenset[str] = frozenset()
    """What is subscribed to; with a pattern, what matched last."""
    pattern: "re.Pattern[str] | None" = None
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)

    # What is wanted

    def subscribe(self, topics: Iterable[str]) -> bool:
        """Wants these topics; says whether that is a change."""
        self._become(Kind.TOPICS)
        wanted = frozenset(topics)
        has_changed = wanted != self.topics
        self.topics = wanted
        return has_changed

    def subscribe_pattern(self, pattern: str) -> None:
        """Wants the topics whose whole name matches; `match` says which there are."""
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise MisuseError(f"pattern {pattern!r} is no regular expression: {error}") from error
        self._become(Kind.PATTERN)
        self.pattern = compiled

    def subscribe_remotely(self) -> None:
        """Wants the topics that its group finds by a pattern; which they are, assignments tell."""
        self._become(Kind.PATTERN)
        self.pattern = None

    def match(self, topics: Iterable[str]) -> bool:
        """Takes what matches the pattern; says whether that is a change."""
        if self.pattern is None:
            return False
        matched = frozenset(topic for topic in topics if self.pattern.match(topic))
        has_changed = matched != self.topics
        self.topics = matched
        return has_changed

    def assign_by_hand(self, partitions: Collection[TopicPartition]) -> None:
        """Has exactly these partitions; those that it had keep their positions."""
        self._become(Kind.BY_HAND)
        self._replace(partitions)

    def unsubscribe(self) -> None:
        """Wants and has nothing."""
        self.kind, self.topics, self.pattern = Kind.NOTHING, frozenset(), None
        self.partitions.clear()

    # What is had

    def assign_by_group(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Has exactly these partitions; answers those that are new."""
        if self.kind not in (Kind.TOPICS, Kind.PATTERN):
            violated(f"a group assigned {sorted(partitions)} to a consumer that has {self.kind}")
        added = [partition for partition in partitions if partition not in self.partitions]
        self._replace(partitions)
        if self.kind is Kind.PATTERN and self.pattern is None:
            self.topics = frozenset(partition.topic for partition in partitions)
        return added

    def state(self, partition: TopicPartition) -> PartitionState:
        """A partition that the consumer has; raises `NotAssignedError`."""
        try:
            return self.partitions[partition]
        except KeyError:
            raise NotAssignedError(partition) from None

    # Positions

    def seek(self, partition: TopicPartition, offset: int, offset_epoch: int = UNKNOWN) -> None:
        """Goes on at an offset; with the epoch of the record before it, once it is known that that one still exists."""
        state = self.state(partition)
        state.offset, state.offset_epoch, state.reset_to, state.retry_at = offset, offset_epoch, None, 0.0
        state.leader_epoch = UNKNOWN
        state.phase = Phase.VALIDATING if offset_epoch >= 0 else Phase.FETCHING

    def reset(self, partition: TopicPartition, to: int) -> None:
        """Goes on where the partition begins or ends (`START`, `END`), or was at a time; asks its leader for it."""
        state = self.state(partition)
        state.phase, state.reset_to, state.retry_at = Phase.RESETTING, to, 0.0
        state.offset = state.offset_epoch = UNKNOWN

    def on_committed(self, partition: TopicPartition, offset: int | None, offset_epoch: int) -> bool:
        """What the group committed is known, None for nothing; False if nobody says where to begin instead.

        A partition that was given up or sought meanwhile stays as it is.
        """
        state = self.partitions.get(partition)
        if state is None or state.phase is not Phase.UNKNOWN:
            return True
        if offset is not None:
            self.seek(partition, offset, offset_epoch)
            return True
        if self.reset_policy is None:
            return False
        self.reset(partition, self.reset_policy)
        return True

    def on_reset(self, partition: TopicPartition, asked: int, offset: int) -> None:
        """The leader said where; nothing happens if the question is not asked any more.

        Nothing was read before that offset which could be lost, so the next leader is not asked about it.
        """
        state = self.partitions.get(partition)
        if state is None or state.phase is not Phase.RESETTING or state.reset_to != asked:
            return
        state.phase, state.reset_to, state.retry_at = Phase.FETCHING, None, 0.0
        state.offset, state.offset_epoch, state.leader_epoch = offset, UNKNOWN, UNKNOWN

    def on_leader(self, partition: TopicPartition, leader_epoch: int) -> bool:
        """A leader is known; True if it is a new one, to be asked whether it has what was read from the one before."""
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
        """The leader said where the epoch of the record before the position ends, (-1, -1) if it knows of none.

        Answers where the log parts from what was read, if it does before the position, -1 if nobody knows where. The
        position is then reset by the policy; without one the partition waits for a `seek`.
        """
        state = self.partitions.get(partition)
        if state is None or state.phase is not Phase.VALIDATING or state.offset != asked_offset:
            return None
        if end_offset >= state.offset and end_epoch >= 0:
            state.phase, state.leader_epoch, state.retry_at = Phase.FETCHING, leader_epoch, 0.0
            return None
        if self.reset_policy is None:
            return end_offset
        if end_offset < 0:
            self.reset(partition, self.reset_policy)
        else:
            state.phase, state.leader_epoch, state.retry_at = Phase.FETCHING, leader_epoch, 0.0
            state.offset, state.offset_epoch = end_offset, end_epoch
        return end_offset

    def waiting(self, phase: Phase, now: float) -> list[TopicPartition]:
        """The partitions of a phase that may be asked about now."""
        return [each for each, state in self.partitions.items() if state.phase is phase and state.retry_at <= now]

    def next_retry(self) -> float | None:
        """When something that waits may be asked about again; None if nothing waits."""
        waiting = [state.retry_at for state in self.partitions.values() if state.phase is not Phase.FETCHING]
        return min(waiting, default=None)

    def positions(self) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, its epoch) of every partition whose position is known."""
        return {
            partition: (state.offset, state.offset_epoch)
            for partition, state in self.partitions.items()
            if state.offset >= 0
        }

    def lag(self, partition: TopicPartition, *, committed_only: bool) -> int | None:
        """How many offsets the position is behind; None if that is not known yet."""
        state = self.state(partition)
        end = state.last_stable_offset if committed_only else state.high_watermark
        return None if end < 0 or state.offset < 0 else max(end - state.offset, 0)

    def check(self) -> None:
        """What always holds."""
        for partition, state in self.partitions.items():
            if (state.phase is Phase.RESETTING) != (state.reset_to is not None):
                violated(f"{partition} is {state.phase} and would be reset to {state.reset_to}")
            if state.phase in (Phase.FETCHING, Phase.VALIDATING) and state.offset < 0:
                violated(f"{partition} is {state.phase} without a position")
            if state.phase is Phase.VALIDATING and state.offset_epoch < 0:
                violated(f"{partition} is validated without an epoch")
        if self.partitions and self.kind is Kind.NOTHING:
            violated(f"{len(self.partitions)} partitions are assigned to a consumer that wants nothing")

    def _become(self, kind: Kind) -> None:
        if self.kind not in (Kind.NOTHING, kind):
            raise MisuseError(
                f"this consumer uses {self.kind.value}, and cannot use {kind.value} as well; call unsubscribe() before"
            )
        self.kind = kind

    def _replace(self, partitions: Collection[TopicPartition]) -> None:
        before = self.partitions
        self.partitions = {partition: before.get(partition) or PartitionState() for partition in partitions}
