"""A consumer that subscribes without a group: it has every partition of its topics, also new ones. Pure.

Has the interface of the members of groups, and needs nothing but metadata.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.client.group.assignors.assignor import PartitionRacks
from ottla.client.group.assignors.nearness import NO_RACKS
from ottla.client.group.handover import Handover
from ottla.client.group.membership_state import NO_PARTITIONS, MembershipState, State, Wait
from ottla.model.ids import TopicPartition


@dataclass(slots=True, kw_only=True)
class SoloMembershipState(MembershipState[None, None]):
    """Always stable, and never a member of anything."""

    group_id: str = ""
    poll_interval: float = float("inf")
    state: State = State.STABLE

    def subscribe(self, topics: Collection[str] | None) -> None:
        """Changes the subscription."""
        self.topics = None if topics is None else frozenset(topics)
        if self.topics is not None and not all(partition.topic in self.topics for partition in self.owned):
            self._change(frozenset(partition for partition in self.owned if partition.topic in self.topics))

    def on_partition_counts(self, counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS) -> None:
        """The metadata was refreshed; a topic that it does not have keeps the partitions known of it."""
        if self.topics is None:
            return
        wanted = {partition for partition in self.owned if partition.topic in self.topics}
        for topic in self.topics & counts.keys():
            wanted |= {TopicPartition(topic, partition) for partition in range(counts[topic])}
        self._change(frozenset(wanted))

    def leave(self, reason: str) -> None:
        """Gives up all partitions."""
        self.owned, self.handover = NO_PARTITIONS, None

    def next_action(self, now: float) -> Wait:
        """There is never anything to ask a coordinator."""
        return Wait(until=None)

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """Without a group nothing is committed."""

    def _is_behind(self) -> bool:
        return False

    def _reconcile(self) -> None:
        """Changes are made when the subscription or the metadata changes."""

    def _on_assigned(self, gave_up: frozenset[TopicPartition]) -> None:
        self.rebalances += 1

    def _change(self, wanted: frozenset[TopicPartition]) -> None:
        self.handover = None if wanted == self.owned else Handover.to(wanted, self.owned)
