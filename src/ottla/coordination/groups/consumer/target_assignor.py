"""The target assignment of a consumer group: the two assignors that members can choose.

Pure functions of the members, their subscriptions, the topics and the last target; members are taken in a fixed order,
so that the same input always gives the same target.

- `range`: of each topic, every subscriber gets one run of neighbouring partitions; topics with equally many partitions
  and subscribers are split alike. The last target is not considered.
- `uniform`: as even as possible over all topics, with as few moves as possible.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordination.groups.record_values import Assignment

UNIFORM: Final = "uniform"
RANGE: Final = "range"
DEFAULT_ASSIGNOR: Final = UNIFORM

_MEMBER_ID: Final = attrgetter("member_id")
_ROUNDS_MAX: Final = 16
"""How often the topics are gone through where subscriptions overlap; each round about halves what is uneven."""


class AssignedMember(NamedTuple):
    """A member as the assignors see it."""

    member_id: str
    instance_id: str | None = None
    topic_ids: tuple[UUID, ...] = ()
    """The topics that it is subscribed to and that exist, ascending."""
    last_target: Assignment = MappingProxyType({})


def assign(name: str, members: Sequence[AssignedMember], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """The target of every member, by the assignor of that name; each subscribed partition has exactly one owner."""
    return ASSIGNORS[name](members, partition_counts)


def assign_range(members: Sequence[AssignedMember], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Runs of neighbouring partitions; static members first, by their instance ids, then the others by member id."""
    subscribers: dict[UUID, list[str]] = {}
    for member in sorted(members, key=_static_first):
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(member.member_id)
    targets: dict[str, dict[UUID, tuple[int, ...]]] = {member.member_id: {} for member in members}
    for topic_id, member_ids in sorted(subscribers.items()):
        quota, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + quota + (index < extra)
            if start < end:
                targets[member_id][topic_id] = tuple(range(start, end))
            start = end
    return dict(targets)


def assign_uniform(members: Sequence[AssignedMember], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Even numbers of partitions, with few moves. Equal subscriptions give numbers that differ by one at most."""
    if not members:
        return {}
    ordered = sorted(members, key=_MEMBER_ID)
    draft = _Draft(ordered, partition_counts)
    first_ids = ordered[0].topic_ids
    if all(member.topic_ids is first_ids or member.topic_ids == first_ids for member in ordered):
        _level_alike(draft, ordered)
    else:
        _level_overlapping(draft, ordered)
    return draft.targets(ordered)


ASSIGNORS: Final[Mapping[str, Callable[[Sequence[AssignedMember], Mapping[UUID, int]], dict[str, Assignment]]]] = {
    UNIFORM: assign_uniform,
    RANGE: assign_range,
}


def _static_first(member: AssignedMember) -> tuple[bool, str]:
    return (member.instance_id is None, member.instance_id or member.member_id)


class _Draft:
    """A target being computed. Members are identified by index; every partition is either owned or free.

    A member that neither gets nor loses a partition keeps its last target, the same object.
    """

    def __init__(self, members: Sequence[AssignedMember], partition_counts: Mapping[UUID, int]) -> None:
        self.owned: list[Mapping[UUID, Sequence[int]]] = []
        self.loads: list[int] = []
        self.free: dict[UUID, list[int]] = {}
        self.total = 0
        self._changed: dict[int, dict[UUID, list[int]]] = {}
        """What is in `owned` of the members that do not keep their last target."""
        owners: dict[UUID, set[int]] = {}
        subscriptions: dict[int, frozenset[UUID]] = {}
        """By the identity of a member's topic ids: most members have the same ones."""
        for index, member in enumerate(members):
            subscribed = subscriptions.get(id(member.topic_ids))
            if subscribed is None:
                subscribed = subscriptions[id(member.topic_ids)] = frozenset(member.topic_ids)
                for topic_id in member.topic_ids:
                    owners.setdefault(topic_id, set())
            kept: Mapping[UUID, Sequence[int]] = member.last_target
            if not all(
                topic_id in subscribed
                and partitions
                and partitions[-1] < partition_counts[topic_id]
                and owners[topic_id].isdisjoint(partitions)
                for topic_id, partitions in kept.items()
            ):
                kept = self._changed[index] = _valid_part(member.last_target, subscribed, partition_counts, owners)
            for topic_id, partitions in kept.items():
                owners[topic_id].update(partitions)
            self.owned.append(kept)
            self.loads.append(sum(map(len, kept.values())))
        for topic_id in sorted(owners):
            count, taken = partition_counts[topic_id], owners[topic_id]
            self.total += count
            is_free = len(taken) < count
            self.free[topic_id] = [each for each in range(count) if each not in taken] if is_free else []

    def give(self, index: int, topic_id: UUID, partition: int) -> None:
        self._change(index).setdefault(topic_id, []).append(partition)
        self.loads[index] += 1

    def take(self, index: int, topic_id: UUID) -> int:
        """The member loses the partition of the topic that it got last."""
        owned = self._change(index)
        partition = owned[topic_id].pop()
        if not owned[topic_id]:
            del owned[topic_id]
        self.loads[index] -= 1
        return partition

    def take_last(self, index: int) -> tuple[UUID, int]:
        """The member loses the last partition of its last topic."""
        topic_id = next(reversed(self._change(index)))
        return topic_id, self.take(index, topic_id)

    def _change(self, index: int) -> dict[UUID, list[int]]:
        """What a member owns, to be changed."""
        owned = self._changed.get(index)
        if owned is None:
            owned = {topic_id: list(partitions) for topic_id, partitions in self.owned[index].items()}
            self.owned[index] = self._changed[index] = owned
        return owned

    def targets(self, members: Sequence[AssignedMember]) -> dict[str, Assignment]:
        targets = {member.member_id: member.last_target for member in members}
        for index, owned in self._changed.items():
            targets[members[index].member_id] = {
                topic_id: tuple(sorted(partitions)) for topic_id, partitions in sorted(owned.items())
            }
        return targets


def _valid_part(
    last_target: Assignment,
    subscribed: frozenset[UUID],
    partition_counts: Mapping[UUID, int],
    owners: Mapping[UUID, set[int]],
) -> dict[UUID, list[int]]:
    """The partitions of a last target that still exist, are subscribed to, and have no other owner."""
    valid = {}
    for topic_id, partitions in last_target.items():
        if topic_id in subscribed:
            count, taken = partition_counts[topic_id], owners[topic_id]
            kept = [partition for partition in partitions if partition < count and partition not in taken]
            if kept:
                valid[topic_id] = kept
    return valid


def _level_alike(draft: _Draft, members: Sequence[AssignedMember]) -> None:
    """All members subscribe to the same topics: each keeps partitions up to its quota, the rest fills the others.

    The larger quotas go first to members that would otherwise have to give up a partition.
    """
    quota, extra = divmod(draft.total, len(members))
    quotas = [quota] * len(members)
    loaded = [index for index, load in enumerate(draft.loads) if load > quota]
    others = (index for index, load in enumerate(draft.loads) if load <= quota)
    for index in islice(chain(loaded, others), extra):
        quotas[index] += 1
    free = [(topic_id, partition) for topic_id, partitions in draft.free.items() for partition in partitions]
    for index, most in enumerate(quotas):
        while draft.loads[index] > most:
            free.append(draft.take_last(index))
    spare = iter(free)
    for index, most in enumerate(quotas):
        while draft.loads[index] < most:
            draft.give(index, *next(spare))


def _level_overlapping(draft: _Draft, members: Sequence[AssignedMember]) -> None:
    """Subscriptions differ: free partitions go to the least loaded subscribers, then topic by topic partitions move
    from the most to the least loaded, until no topic gets more even or the rounds are used up."""
    subscribers: dict[UUID, list[int]] = {}
    for index, member in enumerate(members):
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(index)
    counts = {
        topic_id: len(draft.free[topic_id]) + sum(len(draft.owned[index].get(topic_id, ())) for index in indexes)
        for topic_id, indexes in subscribers.items()
    }
    # First the topics with most partitions for each subscriber: they leave the least choice.
    topics = sorted(subscribers, key=lambda t: (-counts[t] / len(subscribers[t]), len(subscribers[t]), t))
    for topic_id in topics:
        least = [(draft.loads[index], index) for index in subscribers[topic_id]]
        heapq.heapify(least)
        for partition in draft.free[topic_id]:
            load, index = least[0]
            draft.give(index, topic_id, partition)
            heapq.heapreplace(least, (load + 1, index))
    for _ in range(_ROUNDS_MAX):
        moves = [_level_topic(draft, topic_id, subscribers[topic_id]) for topic_id in topics]
        if not any(moves):
            return


def _level_topic(draft: _Draft, topic_id: UUID, subscribers: Sequence[int]) -> bool:
    """Moves partitions of one topic from the most to the least loaded; returns whether any moved."""
    has_moved = False
    least = [(draft.loads[index], index) for index in subscribers]
    most = [(-draft.loads[index], index) for index in subscribers if topic_id in draft.owned[index]]
    heapq.heapify(least)
    heapq.heapify(most)
    while most:
        giver_load, giver = most[0]
        if -giver_load != draft.loads[giver] or topic_id not in draft.owned[giver]:
            heapq.heappop(most)
            continue
        # A giver's number here is higher than what it has left; that is harmless, since it still exceeds any taker's.
        taker_load, taker = least[0]
        if draft.loads[giver] - draft.loads[taker] <= 1:
            break
        draft.give(taker, topic_id, draft.take(giver, topic_id))
        has_moved = True
        heapq.heapreplace(most, (giver_load + 1, giver))
        heapq.heapreplace(least, (taker_load + 1, taker))
    return has_moved
