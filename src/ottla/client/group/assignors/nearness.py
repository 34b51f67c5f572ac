"""Which members are near which partitions (KIP-881): those in the rack of one of its replicas. Pure.

Racks decide only where they tell partitions apart: some member names its rack, some partition has a replica there, and
not all partitions have replicas in the same racks. Else `Nearness` finds everybody near to everything, and assignors
share out as if there were no racks. Evenness always comes first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ottla.client.group.assignors.assignor import MemberSubscription, PartitionRacks
from ottla.model.ids import TopicPartition

NO_RACKS: Final[PartitionRacks] = {}


class Nearness:
    """See the module's docstring. Of these partitions, and of those of these members that have racks."""

    def __init__(
        self, partitions: Collection[TopicPartition], members: Mapping[str, MemberSubscription], racks: PartitionRacks
    ) -> None:
        homes = {member_id: each.rack_id for member_id, each in members.items() if each.rack_id}
        places = {partition: racks.get(partition, frozenset()) for partition in partitions} if homes else {}
        all_places = frozenset[str]().union(*places.values())
        self.matters = not all_places.isdisjoint(homes.values()) and any(each != all_places for each in places.values())
        """Whether racks decide anything."""
        self._homes = homes if self.matters else {}
        self._places = places if self.matters else {}

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether the member has a rack, and no replica is in it."""
        home = self._homes.get(member_id)
        return home is not None and home not in self._places.get(partition, ())

    def fewest_near_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that the fewest members are near to come first, so that the others do not take these from them."""
        residents: dict[str, int] = {}
        for home in self._homes.values():
            residents[home] = residents.get(home, 0) + 1
        return sorted(partitions, key=lambda each: sum(residents.get(rack, 0) for rack in self._places.get(each, ())))

    def next_near(self, partition: TopicPartition, members: Sequence[str], first: int) -> int | None:
        """The place in the list, looked for from `first` on and around, of a member in the rack of a replica."""
        places = self._places.get(partition)
        if places:
            for step in range(len(members)):
                index = (first + step) % len(members)
                if self._homes.get(members[index]) in places:
                    return index
        return None
