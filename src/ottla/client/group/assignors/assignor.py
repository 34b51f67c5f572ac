"""What an assignor is. Follow `Assignor` to write your own, and hand it over in `partition_assignment_strategy`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ottla.model.ids import TopicPartition

NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What a member told its leader when it joined."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    """What it still has; nothing where everything is given up before joining."""
    generation: int | None = None
    """In which generation it got what it owns; None from a member that does not say."""
    instance_id: str | None = None
    rack_id: str | None = None
    user_data: bytes | None = None


Assignment = dict[str, list[TopicPartition]]
"""Every member's partitions, by member id."""

PartitionRacks = Mapping[TopicPartition, frozenset[str]]
"""The racks in which each partition has replicas."""


@runtime_checkable
class Assignor(Protocol):
    """Shares out the partitions of a group's topics. Must depend on nothing but its arguments."""

    @property
    def name(self) -> str:
        """What members agree on; the same for every member that is to use it."""

    @property
    def is_cooperative(self) -> bool:
        """Whether a partition that moves is first given to nobody, so that its owner can let go of it."""

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What this member tells the leader's assignor beside its topics; None for nothing."""

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """Tells what this member got."""

    def assign(self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        """The partitions of each member, for each a list. Topics that do not exist are not in `partition_counts`."""


@runtime_checkable
class RackAwareAssignor(Assignor, Protocol):
    """One that gives members what is near to them, where evenness leaves the choice."""

    def assign_near(
        self, partition_counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> Assignment:
        """As `assign`, which is the same without racks."""


class PlainAssignor:
    """An assignor that keeps nothing from one time to the next, and lets members give up everything before joining."""

    @property
    def is_cooperative(self) -> bool:
        """See `Assignor`."""
        return False

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """See `Assignor`."""
        return None

    def on_assignment(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        """See `Assignor`."""


def static_first(member: tuple[str, MemberSubscription]) -> tuple[bool, str]:
    """Orders (member id, subscription) pairs: static members by instance id, then the others by member id."""
    member_id, subscription = member
    instance_id = subscription.instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
