"""Rack awareness (KIP-881): a member is near a partition if a replica is in the member's rack. Pure.

Racks only matter if they differ: some member has a rack, some partition has a replica there, and not all partitions
have replicas in the same racks. Else every member counts as near every partition. Balance always comes first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ottla.client.group.assignors.assignor import MemberSubscription, PartitionRacks
from ottla.model.ids import TopicPartition

NO_RACKS: Final[PartitionRacks] = {}


class Nearness:
    """Which of these members are near which of these partitions."""

    def __init__(
        self, partitions: Collection[TopicPartition], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> None:
        homes = {member_id: each.rack_id for member_id, each in members.items() if each.rack_id}
        places = {partition: racks.get(partition, frozenset()) for partition in partitions} if homes else {}
        all_places = frozenset[str]().union(*places.values())
        self.matters = not all_places.isdisjoint(homes.values()) and any(each != all_places for each in places.values())
        """Whether racks matter."""
        self._homes = homes if self.matters else {}
        self._places = places if self.matters else {}

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack without a replica of the partition."""
        home = self._homes.get(member_id)
        return home is not None and home not in self._places.get(partition, ())

    def fewest_near_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Partitions with the fewest near members first, so that those members still have room."""
        residents: dict[str, int] = {}
        for home in self._homes.values():
            residents[home] = residents.get(home, 0) + 1
        return sorted(partitions, key=lambda each: sum(residents.get(rack, 0) for rack in self._places.get(each, ())))

    def next_near(self, partition: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """The index of a near member in the list, searched from `first` on and around; None if there is none."""
        places = self._places.get(partition)
        if places:
            for step in range(len(members)):
                index = (first + step) % len(members)
                if self._homes.get(members[index]) in places:
                    return index
        return None
