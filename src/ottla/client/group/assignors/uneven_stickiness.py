"""The sticky assignment of members with different topics: starts from what they own, then moves partitions to balance.

A partition moves only to a member with at least two fewer, preferably back to its former owner, until no move is left.
If the result is not more balanced than before, nothing moves. Where racks matter, members start from near partitions,
and free partitions first go to near members.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.client.group.assignors.assignor import NO_GENERATION, Assignment, MemberSubscription
from ottla.client.group.assignors.java_order import JavaHashSet, in_java_order, partition_hash
from ottla.client.group.assignors.nearness import Nearness
from ottla.model.ids import TopicPartition

Claimed = Mapping[str, tuple[Sequence[TopicPartition], int | None]]
"""The partitions that each member says it owned, and in which generation."""

_NOBODY: Final = ""


def assign_uneven(
    partition_counts: Mapping[str, int],
    members: Mapping[str, MemberSubscription],
    owned: Mapping[str, list[TopicPartition]],
    claimed: Claimed,
    nearness: Nearness,
) -> Assignment:
    """The assignment."""
    draft = _Draft(partition_counts, members, owned, nearness)
    free = draft.keep_valid()
    draft.balance(_former_owners(claimed), free)
    return draft.assignment


def _former_owners(claimed: Claimed) -> dict[TopicPartition, str]:
    """The former owner of each partition: the latest claim that is not of the last generation."""
    stated = [NO_GENERATION if generation is None else generation for _, generation in claimed.values()]
    last = max([NO_GENERATION, *stated])
    former: dict[TopicPartition, tuple[int, str]] = {}
    for member_id in in_java_order(claimed):
        partitions, generation = claimed[member_id]
        since = NO_GENERATION if generation is None else generation
        if since >= last:
            continue
        for partition in partitions:
            if partition not in former or since > former[partition][0]:
                former[partition] = since, member_id
    return {partition: member_id for partition, (_, member_id) in former.items()}


class _Moves:
    """The moves between pairs of members, so that two partitions of a topic do not swap places."""

    def __init__(self) -> None:
        self._by_partition: dict[TopicPartition, tuple[str, str]] = {}
        self._by_pair: dict[tuple[str, str, str], JavaHashSet[TopicPartition]] = {}

    def note(self, partition: TopicPartition, giver: str, taker: str) -> None:
        """Records a move; of a partition that moved before, the first owner counts."""
        before = self._by_partition.pop(partition, None)
        if before is not None:
            self._by_pair[(partition.topic, *before)].discard(partition)
            if not self._by_pair[(partition.topic, *before)]:
                del self._by_pair[(partition.topic, *before)]
            if before[0] == taker:
                return
            giver = before[0]
        self._by_partition[partition] = giver, taker
        pair = partition.topic, giver, taker
        if pair not in self._by_pair:
            self._by_pair[pair] = JavaHashSet(partition_hash)
        self._by_pair[pair].add(partition)

    def instead(self, partition: TopicPartition, giver: str, taker: str) -> TopicPartition:
        """The partition to move instead: one of the same topic that moved the other way, if there is one."""
        if partition in self._by_partition:
            giver = self._by_partition[partition][0]
        came_back = self._by_pair.get((partition.topic, taker, giver))
        return next(iter(came_back)) if came_back else partition


class _Draft:
    """An assignment in progress: every owned partition is in `_owners` and in its owner's list."""

    def __init__(
        self,
        partition_counts: Mapping[str, int],
        members: Mapping[str, MemberSubscription],
        owned: Mapping[str, list[TopicPartition]],
        nearness: Nearness,
    ) -> None:
        self._nearness = nearness
        self.assignment: Assignment = {member_id: list(partitions) for member_id, partitions in owned.items()}
        self._counts = partition_counts
        self._owners = {partition: member_id for member_id, partitions in owned.items() for partition in partitions}
        self._topics = {
            member_id: [topic for topic in subscription.topics if topic in partition_counts]
            for member_id, subscription in members.items()
        }
        self._subscribers: dict[str, list[str]] = {topic: [] for topic in partition_counts}
        for member_id, topics in self._topics.items():
            for topic in topics:
                self._subscribers[topic].append(member_id)
        ordered = sorted(partition_counts, key=lambda topic: (len(self._subscribers[topic]), topic))
        self._partitions = [
            TopicPartition(topic, index) for topic in ordered for index in range(partition_counts[topic])
        ]
        """Partitions with the fewest subscribers first."""
        self._loads: list[tuple[int, str]] = []
        """(number of partitions, member id), ascending; without members whose assignment is fixed."""
        self._has_given_up = False
        self._moves = _Moves()

    def keep_valid(self) -> list[TopicPartition]:
        """Drops partitions that members are not subscribed to any more, or not near to; returns the free partitions."""
        kept: set[TopicPartition] = set()
        for member_id, partitions in self.assignment.items():
            wanted = [
                partition
                for partition in partitions
                if partition.topic in self._topics[member_id] and not self._nearness.is_far(member_id, partition)
            ]
            self._has_given_up |= len(wanted) < len(partitions)
            self.assignment[member_id] = wanted
            kept.update(wanted)
        self._loads = sorted((len(partitions), member_id) for member_id, partitions in self.assignment.items())
        return [partition for partition in self._partitions if partition not in kept]

    def balance(self, former: Mapping[TopicPartition, str], free: list[TopicPartition]) -> None:
        """Assigns the free partitions, then moves partitions until no move improves the balance."""
        is_first = self._loads[-1][0] == 0
        for partition in self._give_near(free) if self._nearness.matters else free:
            taker = self._least_loaded(partition.topic)
            if taker is not None:
                self._give(partition, taker)
        movable = [partition for partition in self._partitions if len(self._subscribers[partition.topic]) >= 2]
        free = [partition for partition in free if len(self._subscribers[partition.topic]) >= 2]
        fixed = {member_id: self.assignment[member_id] for member_id in self._topics if not self._may_change(member_id)}
        for member_id in fixed:
            self._unlist(member_id)
            del self.assignment[member_id]
        before = {member_id: list(partitions) for member_id, partitions in self.assignment.items()}
        if not self._has_given_up:
            self._move_all(free, former)
        has_moved = self._move_all(movable, former)
        if not is_first and has_moved and _unevenness(self.assignment.values()) >= _unevenness(before.values()):
            self.assignment = before
        self.assignment.update(fixed)

    def _give_near(self, free: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Assigns partitions that have a near member, or one without a rack; returns the rest."""
        left: list[TopicPartition] = []
        for partition in free:
            for _, member_id in self._loads:
                if partition.topic in self._topics[member_id] and not self._nearness.is_far(member_id, partition):
                    self._give(partition, member_id)
                    break
            else:
                left.append(partition)
        return left

    def _move_all(self, partitions: Sequence[TopicPartition], former: Mapping[TopicPartition, str]) -> bool:
        """Goes through partitions until none moves any more; returns whether any moved."""
        has_moved = False
        while True:
            moved = False
            for partition in partitions:
                if self._is_balanced():
                    break
                owner = self._owners[partition]
                size = len(self.assignment[owner])
                back_to = former.get(partition, _NOBODY)
                if back_to in self.assignment and size > len(self.assignment[back_to]) + 1:
                    self._move(partition, back_to)
                    moved = True
                elif any(size > len(self.assignment[each]) + 1 for each in self._subscribers[partition.topic]):
                    taker = self._least_loaded(partition.topic)
                    self._move(partition, taker or owner)
                    moved = True
            has_moved |= moved
            if not moved:
                return has_moved

    def _is_balanced(self) -> bool:
        """Whether no partition could move to a member with two fewer than its owner."""
        if self._loads[0][0] >= self._loads[-1][0] - 1:
            return True
        heaviest: dict[str, int] = {}
        for partitions in self.assignment.values():
            for topic in {partition.topic for partition in partitions}:
                heaviest[topic] = max(heaviest.get(topic, 0), len(partitions))
        return not any(size + 1 < heaviest.get(topic, 0) for size, each in self._loads for topic in self._topics[each])

    def _may_change(self, member_id: str) -> bool:
        partitions = self.assignment[member_id]
        most = sum(self._counts[topic] for topic in self._topics[member_id])
        return len(partitions) < most or any(len(self._subscribers[each.topic]) >= 2 for each in partitions)

    def _least_loaded(self, topic: str) -> str | None:
        return next((member_id for _, member_id in self._loads if topic in self._topics[member_id]), None)

    def _move(self, partition: TopicPartition, taker: str) -> None:
        partition = self._moves.instead(partition, self._owners[partition], taker)
        giver = self._owners[partition]
        self._moves.note(partition, giver, taker)
        self._unlist(giver)
        self.assignment[giver].remove(partition)
        insort(self._loads, (len(self.assignment[giver]), giver))
        self._give(partition, taker)

    def _give(self, partition: TopicPartition, taker: str) -> None:
        self._unlist(taker)
        self.assignment[taker].append(partition)
        self._owners[partition] = taker
        insort(self._loads, (len(self.assignment[taker]), taker))

    def _unlist(self, member_id: str) -> None:
        del self._loads[bisect_left(self._loads, (len(self.assignment[member_id]), member_id))]


def _unevenness(assigned: Iterable[Sequence[TopicPartition]]) -> int:
    """The sum of the differences between all members; 0 if all have the same number."""
    sizes = sorted(map(len, assigned))
    return sum((2 * index + 1 - len(sizes)) * size for index, size in enumerate(sizes))
