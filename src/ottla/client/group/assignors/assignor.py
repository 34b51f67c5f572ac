"""The interface of assignors. Implement `Assignor` and pass it in `partition_assignment_strategy`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ottla.model.ids import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """The subscription of a member, as the leader gets it."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """The partitions it still owns; empty if members give up all partitions before joining."""
    generation: int | None = None
    """The generation in which it got them; None if the member does not tell."""
    instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None


Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member, by member id."""

PartitionRacks = Mapping[TopicPartition, frozenset[str]]
"""The racks in which each partition has replicas."""


@runtime_checkable
class Assignor(Protocol):
    """Assigns the partitions of a group's topics to its members. Must depend on nothing but its arguments."""

    @property
    def name(self) -> str:
        """The name by which the members agree on an assignor."""

    @property
    def is_cooperative(self) -> bool:
        """Whether a partition that moves is first assigned to no member, so that its owner can give it up."""

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What this member tells the leader's assignor beside its topics; None for nothing."""

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """This member got an assignment."""

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """Returns the partitions of each member. `partition_counts` has only topics that exist."""


@runtime_checkable
class RackAwareAssignor(Assignor, Protocol):
    """Prefers partitions with a replica in the member's rack, as far as the assignment stays balanced."""

    def assign_near(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> Assignment:
        """As `assign`, with the racks of replicas."""


class PlainAssignor:
    """An assignor without memory, whose members give up all partitions before they join."""

    @property
    def is_cooperative(self) -> bool:
        """As in `Assignor`."""
        return False

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """As in `Assignor`."""
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """As in `Assignor`."""


def static_first(member: tuple[str, MemberSubscription]) -> tuple[bool, str]:
    """Sort key of (member id, subscription): static members by instance id, then the others by member id."""
    member_id, subscription = member
    instance_id = subscription.instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
