"""The sticky assignment of members with the same topics: each gets the same number of partitions, or one more.

Members keep what they own up to their quota; free partitions go in turn to members below theirs. Linear in the number
of partitions, except for sorting. Where racks matter, members keep only near partitions, and free partitions first go
to near members.
"""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from ottla.client.group.assignors.assignor import Assignment
from ottla.client.group.assignors.java_order import in_java_order
from ottla.client.group.assignors.nearness import Nearness
from ottla.model.ids import TopicPartition


@dataclass(slots=True)
class _Quotas:
    """How many partitions members get: `least`, or `most` for `larger` of them; equal if it divides evenly."""

    least: int
    most: int
    larger: int
    filled: int = 0
    """How many members have `most` already."""
    below: list[str] = field(default_factory=list)
    """Members with fewer than `least`."""
    at_least: deque[str] = field(default_factory=deque)
    """Members with exactly `least`, which may get one more."""


def assign_even(
    partition_counts: Mapping[str, int],
    owned: Mapping[str, list[TopicPartition]],
    contested: Collection[TopicPartition],
    nearness: Nearness,
) -> tuple[Assignment, dict[TopicPartition, str]]:
    """The assignment, and the partitions that move from a member that still exists, with their new owner."""
    total = sum(partition_counts.values())
    least, larger = divmod(total, len(owned))
    quotas = _Quotas(least, least + (larger > 0), larger)
    assignment: Assignment = {member_id: [] for member_id in owned}
    given_up: dict[TopicPartition, str] = {}
    for member_id in in_java_order(owned):
        mine = sorted(owned[member_id], key=lambda each: (each.partition, each.topic))
        given_up.update((partition, member_id) for partition in mine if nearness.is_far(member_id, partition))
        mine = [each for each in mine if each not in contested and not nearness.is_far(member_id, each)]
        kept = _keep(quotas, member_id, len(mine))
        assignment[member_id] = mine[:kept]
        given_up.update(dict.fromkeys(mine[kept:], member_id))
    quotas.below.sort()
    quotas.at_least = deque(sorted(quotas.at_least))
    taken = {partition for partitions in assignment.values() for partition in partitions}
    free = [
        partition
        for topic, count in sorted(partition_counts.items())
        for partition in (TopicPartition(topic, index) for index in range(count))
        if partition not in taken
    ]
    moving: dict[TopicPartition, str] = {}
    if nearness.matters:
        free = _deal_near(quotas, nearness.fewest_near_first(free), assignment, nearness)
    _deal(quotas, free, assignment)
    for member_id, partitions in assignment.items():
        for partition in partitions:
            if partition not in taken and (partition in contested or given_up.get(partition, member_id) != member_id):
                moving[partition] = member_id
    return assignment, moving


def _keep(quotas: _Quotas, member_id: str, count: int) -> int:
    """How many of its partitions a member keeps; notes whether it may get more."""
    if count < quotas.least:
        quotas.below.append(member_id)
        return count
    if count >= quotas.most and quotas.filled < quotas.larger:
        quotas.filled += 1
        if quotas.filled == quotas.larger:
            quotas.at_least.clear()
        return quotas.most
    if quotas.filled < quotas.larger:
        quotas.at_least.append(member_id)
    return quotas.least


def _deal_near(
    quotas: _Quotas, free: list[TopicPartition], assignment: Assignment, nearness: Nearness
) -> list[TopicPartition]:
    """Assigns each free partition to the next near member with room; returns those without one."""
    left: list[TopicPartition] = []
    turn = 0
    for partition in free:
        place = nearness.next_near(partition, quotas.below, turn)
        if place is not None:
            member_id = quotas.below[place]
            count = len(assignment[member_id]) + 1
            if count < quotas.least:
                place += 1
            else:
                del quotas.below[place]
                if count < quotas.most and quotas.filled < quotas.larger:
                    quotas.at_least.append(member_id)
            turn = place % len(quotas.below) if quotas.below else 0
        else:
            place = nearness.next_near(partition, quotas.at_least, 0)
            if place is None:
                left.append(partition)
                continue
            member_id = quotas.at_least[place]
            if len(assignment[member_id]) + 1 == quotas.most:
                del quotas.at_least[place]
                quotas.filled += 1
                if quotas.filled == quotas.larger:
                    quotas.at_least.clear()
        assignment[member_id].append(partition)
    return left


def _deal(quotas: _Quotas, free: list[TopicPartition], assignment: Assignment) -> None:
    """Assigns the free partitions in turn to members below their quota."""
    turn = deque(quotas.below)
    for partition in free:
        if turn:
            member_id = turn.popleft()
            assignment[member_id].append(partition)
            if len(assignment[member_id]) < quotas.least:
                turn.append(member_id)
            else:
                quotas.at_least.append(member_id)
        else:
            assignment[quotas.at_least.popleft()].append(partition)
