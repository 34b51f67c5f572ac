"""Sticky: a balanced assignment in which members keep as many of their partitions as possible.

Two assignors: members of `sticky` give up all partitions before they join, and tell which they had; members of
`cooperative-sticky` keep theirs while the group rebalances. The algorithms are in `even_stickiness.py` and
`uneven_stickiness.py`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ottla.client.group.assignors.assignor import NO_GENERATION, Assignment, MemberSubscription, PartitionRacks
from ottla.client.group.assignors.even_stickiness import assign_even
from ottla.client.group.assignors.java_order import in_java_order
from ottla.client.group.assignors.nearness import NO_RACKS, Nearness
from ottla.client.group.assignors.sticky_user_data import StickyUserDataError, read_user_data, write_user_data
from ottla.client.group.assignors.uneven_stickiness import assign_uneven
from ottla.model.ids import TopicPartition

_GENERATION: Final = Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The partitions that a member says it owned, and in which generation; None if it does not tell."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None


ClaimOf = Callable[[MemberSubscription], Claim]


@dataclass(slots=True)
class Claims:
    """The claims of all members, in the order in which they are compared, and the outcome."""

    by_member: dict[str, Claim]
    owned: dict[str, list[TopicPartition]]
    """The valid claims of each member: for topics that exist, and without a later claim of another member."""
    contested: set[TopicPartition]
    """Partitions that several members claim with the same generation."""
    are_even: bool
    """Whether all members have the same topics."""


class StickyAssignor:
    """Members give up all partitions before they join, and tell the leader in their user data which they had."""

    name = "sticky"

    def __init__(self) -> None:
        self._last: tuple[tuple[TopicPartition, ...], int] | None = None

    @property
    def is_cooperative(self) -> bool:
        """As in `Assignor`."""
        return False

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The last assignment of this member."""
        if self._last is None:
            return None
        partitions, generation = self._last
        return write_user_data(partitions, generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """As in `Assignor`."""
        self._last = tuple(partitions), generation

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """As in `Assignor`."""
        return self.assign_near(partition_counts, members, NO_RACKS)

    def assign_near(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> Assignment:
        """As in `RackAwareAssignor`."""
        return _assign(partition_counts, members, racks, self._claim)[0]

    @staticmethod
    def _claim(subscription: MemberSubscription) -> Claim:
        if not subscription.user_data:
            return Claim(partitions=(), generation=None)
        try:
            partitions, generation = read_user_data(subscription.user_data)
        except StickyUserDataError:
            return Claim(partitions=(), generation=NO_GENERATION)
        return Claim(partitions=partitions, generation=generation)


class CooperativeStickyAssignor:
    """Members keep their partitions. A partition that moves is assigned to no member until its owner gave it up."""

    name = "cooperative-sticky"

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    @property
    def is_cooperative(self) -> bool:
        """As in `Assignor`."""
        return True

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation, for leaders that read it from the user data."""
        return _GENERATION.pack(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """As in `Assignor`."""
        self._generation = generation

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """As in `Assignor`; partitions that must be given up first are assigned to no member."""
        return self.assign_near(partition_counts, members, NO_RACKS)

    def assign_near(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> Assignment:
        """As in `RackAwareAssignor`."""
        assignment, moving = _assign(partition_counts, members, racks, self._claim)
        if moving is None:
            moving = _moving(assignment, members)
        for partition, member_id in moving.items():
            assignment[member_id].remove(partition)
        return assignment

    @staticmethod
    def _claim(subscription: MemberSubscription) -> Claim:
        generation = subscription.generation
        if generation is None and subscription.user_data is not None:
            known = len(subscription.user_data) >= _GENERATION.size
            generation = _GENERATION.unpack_from(subscription.user_data)[0] if known else NO_GENERATION
        return Claim(partitions=subscription.owned, generation=generation)


def _assign(
    partition_counts: Mapping[str, int],
    members: Mapping[str, MemberSubscription],
    racks: PartitionRacks,
    claim_of: ClaimOf,
) -> tuple[Assignment, dict[TopicPartition, str] | None]:
    """The assignment, and the partitions that move with their new owner, where that is known."""
    if not members:
        return {}, {}
    claims = _weigh(partition_counts, members, claim_of)
    everything = [TopicPartition(topic, index) for topic, count in partition_counts.items() for index in range(count)]
    nearness = Nearness(everything, members, racks)
    if claims.are_even:
        return assign_even(partition_counts, claims.owned, claims.contested, nearness)
    claimed = {member_id: (claim.partitions, claim.generation) for member_id, claim in claims.by_member.items()}
    return assign_uneven(partition_counts, members, claims.owned, claimed, nearness), None


def _weigh(partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], claim_of: ClaimOf) -> Claims:
    claims = Claims({}, {}, set(), are_even=True)
    owners: dict[TopicPartition, str] = {}
    first_topics: set[str] = set()
    for member_id in in_java_order(members):
        subscription = members[member_id]
        if not first_topics:
            first_topics = set(subscription.topics)
        elif len(subscription.topics) != len(first_topics) or not first_topics.issuperset(subscription.topics):
            claims.are_even = False
        claim = claims.by_member[member_id] = claim_of(subscription)
        owned = claims.owned[member_id] = []
        generation = NO_GENERATION if claim.generation is None else claim.generation
        for partition in claim.partitions:
            if partition.topic not in partition_counts:
                continue
            other = owners.get(partition)
            if other is None:
                owned.append(partition)
                owners[partition] = member_id
                continue
            stated = members[other].generation
            others_generation = NO_GENERATION if stated is None else stated
            if generation < others_generation:
                continue
            if generation == others_generation:
                claims.contested.add(partition)
            else:
                owned.append(partition)
            if partition in claims.owned[other]:
                claims.owned[other].remove(partition)
            owners[partition] = member_id
    return claims


def _moving(assignment: Assignment, members: Mapping[str, MemberSubscription]) -> dict[TopicPartition, str]:
    """Partitions that are assigned to a member while another one still owns them."""
    added: dict[TopicPartition, str] = {}
    given_up: set[TopicPartition] = set()
    for member_id, partitions in assignment.items():
        owned, assigned = set(members[member_id].owned), set(partitions)
        added.update(dict.fromkeys(assigned - owned, member_id))
        given_up |= owned - assigned
    return {partition: member_id for partition, member_id in added.items() if partition in given_up}
