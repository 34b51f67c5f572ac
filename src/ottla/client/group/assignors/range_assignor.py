"""Range: each subscriber of a topic gets a run of adjacent partitions, the same in topics with equal partition counts.

Where racks matter (`nearness.py`), members first get partitions with a replica in their rack, as far as each topic
stays balanced and co-partitioned topics keep the same partitions together.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.client.group.assignors.assignor import (
    Assignment,
    MemberSubscription,
    PartitionRacks,
    PlainAssignor,
    static_first,
)
from ottla.client.group.assignors.nearness import NO_RACKS, Nearness
from ottla.model.ids import TopicPartition


class RangeAssignor(PlainAssignor):
    """Divides each topic by itself; the first members get one partition more if it does not divide evenly."""

    name = "range"

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """As in `Assignor`."""
        return self.assign_near(partition_counts, members, NO_RACKS)

    def assign_near(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> Assignment:
        """As in `RackAwareAssignor`."""
        assignment: Assignment = {member_id: [] for member_id in members}
        ordered = dict(sorted(members.items(), key=static_first))
        topics: list[_Topic] = []
        for topic, count in sorted(partition_counts.items()):
            subscribers = {member_id: each for member_id, each in ordered.items() if topic in each.topics}
            if subscribers and count:
                topics.append(_Topic(topic, count, subscribers, racks))
        has_near = any(topic.nearness.matters for topic in topics)
        if has_near:
            for alike in _alike(topics):
                _share_near(alike)
        for each in topics:
            each.cut(lambda member_id, partition: True)
            for member_id, partitions in each.shares.items():
                assignment[member_id] += sorted(partitions)
        return assignment


class _Topic:
    """One topic while it is assigned."""

    def __init__(
        self, name: str, count: int, subscribers: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> None:
        self.name = name
        self.count = count
        self.free = [TopicPartition(name, index) for index in range(count)]
        self.shares: Assignment = {member_id: [] for member_id in subscribers}
        self.homes = {member_id: each.rack_id for member_id, each in subscribers.items()}
        self.nearness = Nearness(self.free, subscribers, racks)
        self._racks = racks
        self._quota, self._larger = divmod(count, len(subscribers))
        """How many partitions each member gets, and how many members may still get one more."""

    def room(self, member_id: str) -> int:
        """How many more partitions the member may get."""
        return max(0, self._quota + (self._larger > 0) - len(self.shares[member_id]))

    def give(self, member_id: str, partitions: Sequence[TopicPartition]) -> None:
        """Assigns partitions to the member."""
        self.shares[member_id] += partitions
        self._larger -= len(self.shares[member_id]) > self._quota
        given = set(partitions)
        self.free = [partition for partition in self.free if partition not in given]

    def cut(self, may_have: Callable[[str, TopicPartition], bool]) -> None:
        """Assigns to each member, in order, the first partitions that it may have, up to its quota."""
        for member_id in self.shares:
            fitting = [partition for partition in self.free if may_have(member_id, partition)]
            chosen = fitting[: self.room(member_id)]
            if chosen:
                self.give(member_id, chosen)

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member has no rack, racks do not matter for this topic, or a replica is in the member's rack."""
        home = self.homes[member_id]
        return not home or home in self._racks.get(partition, ())


def _alike(topics: Iterable[_Topic]) -> Iterable[list[_Topic]]:
    """Co-partitioned topics: with the same subscribers and the same number of partitions."""
    found: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for topic in topics:
        has_racks = any(topic.homes.values())
        found.setdefault((tuple(topic.shares), topic.count if has_racks else 0), []).append(topic)
    return found.values()


def _share_near(topics: Sequence[_Topic]) -> None:
    first = topics[0]
    if len(topics) == 1:
        if first.nearness.matters:
            first.cut(first.is_near)
        return
    if not any(first.homes.values()):
        return
    waiting = list(first.shares)
    for index in range(first.count):
        likes = [TopicPartition(topic.name, index) for topic in topics]
        taker = next(
            (
                member_id
                for member_id in waiting
                if all(
                    topic.is_near(member_id, like) and topic.room(member_id)
                    for topic, like in zip(topics, likes, strict=True)
                )
            ),
            None,
        )
        if taker is not None:
            for topic, like in zip(topics, likes, strict=True):
                topic.give(taker, [like])
            if not any(topic.room(taker) for topic in topics):
                waiting.remove(taker)
