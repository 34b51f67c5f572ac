"""As even as can be, and what a member has it keeps as far as that allows.

Two assignors: `sticky`, whose members give up everything before they join and remember what they had, and
`cooperative-sticky`, whose members keep what they have while the group rebalances. How partitions are shared out is in
`even_stickiness.py` and `uneven_stickiness.py`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

from ottla.client.group.assignors.assignor import NO_GENERATION, Assignment, MemberSubscription, PartitionRacks
from ottla.client.group.assignors.even_stickiness import assign_even
from ottla.client.group.assignors.java_order import in_java_order
from ottla.client.group.assignors.nearness import NO_RACKS, Nearness
from ottla.client.group.assignors.uneven_stickiness import assign_uneven
from ottla.client.group.classic_fields import MemberFieldReader, MemberFieldWriter
from ottla.model.errors import CorruptError
from ottla.model.ids import TopicPartition

_GENERATION: Final = Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a member says it had, and since when; None if it does not know."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None


ClaimOf = Callable[[MemberSubscription], Claim]


@dataclass(slots=True)
class Claims:
    """The claims of all members, in the order in which they are weighed, and what comes of them."""

    by_member: dict[str, Claim]
    owned: dict[str, list[TopicPartition]]
    """What each member has by right: of topics that exist, and nobody claims it with a younger generation."""
    contested: set[TopicPartition]
    """What several members claim with the same generation."""
    are_even: bool
    """Whether all want the same topics."""


class StickyAssignor:
    """Members give up everything before they join, and tell the leader by bytes of their own what they had."""

    name = "sticky"

    def __init__(self) -> None:
        self._last: tuple[tuple[TopicPartition, ...], int] | None = None

    @property
    def is_cooperative(self) -> bool:
        """See `Assignor`."""
        return False

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What this member had when it was last given something."""
        if self._last is None:
            return None
        partitions, generation = self._last
        fields = MemberFieldWriter()
        fields.partitions(partitions)
        fields.int32(generation)
        return fields.finish()

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """See `Assignor`."""
        self._last = tuple(partitions), generation

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """See `Assignor`."""
        return self.assign_near(partition_counts, members, NO_RACKS)

    def assign_near(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> Assignment:
        """See `RackAwareAssignor`."""
        return _assign(partition_counts, members, racks, self._claim)[0]

    @staticmethod
    def _claim(subscription: MemberSubscription) -> Claim:
        if not subscription.user_data:
            return Claim(partitions=(), generation=None)
        fields = MemberFieldReader(subscription.user_data)
        try:
            partitions = fields.partitions()
        except CorruptError:
            return Claim(partitions=(), generation=NO_GENERATION)
        try:
            generation = fields.int32()
        except CorruptError:
            # The oldest members told no generation.
            return Claim(partitions=partitions, generation=None)
        return Claim(partitions=partitions, generation=generation)


class CooperativeStickyAssignor:
    """Members keep what they have; what moves from one to another is given to nobody until the first let go of it."""

    name = "cooperative-sticky"

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    @property
    def is_cooperative(self) -> bool:
        """See `Assignor`."""
        return True

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """The generation, for leaders that read it there."""
        return _GENERATION.pack(self._generation)

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """See `Assignor`."""
        self._generation = generation

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """See `Assignor`; partitions that someone must let go of first are nobody's."""
        return self.assign_near(partition_counts, members, NO_RACKS)

    def assign_near(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> Assignment:
        """See `RackAwareAssignor`."""
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
    """The assignment, and what moves to whom where that is known."""
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
    """What is given to one while another still has it."""
    added: dict[TopicPartition, str] = {}
    given_up: set[TopicPartition] = set()
    for member_id, partitions in assignment.items():
        owned, assigned = set(members[member_id].owned), set(partitions)
        added.update(dict.fromkeys(assigned - owned, member_id))
        given_up |= owned - assigned
    return {partition: member_id for partition, member_id in added.items() if partition in given_up}
