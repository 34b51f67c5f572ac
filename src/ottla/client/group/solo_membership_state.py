"""A consumer that subscribes without a group: it has every partition of its topics, and learns of new ones. Pure.

Has the interface of the members of real groups, and asks nobody for anything but metadata.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.client.group.assignors.assignor import PartitionRacks
from ottla.client.group.assignors.nearness import NO_RACKS
from ottla.client.group.classic_membership_state import Wait
from ottla.client.group.rebalance import Handover
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition


@dataclass(slots=True)
class SoloMembershipState:
    """See the module's docstring."""

    topics: frozenset[str] | None = None
    owned: frozenset[TopicPartition] = frozenset()
    handover: Handover | None = None
    failure: OttlaError | None = None
    is_polling: bool = False
    rebalances: int = 0
    member_id: str = ""
    generation: int = -1

    is_member = False
    wants_poll = False

    def subscribe(self, topics: Collection[str] | None) -> None:
        """What is wanted from now on."""
        self.topics = None if topics is None else frozenset(topics)
        if self.topics is not None and not all(partition.topic in self.topics for partition in self.owned):
            self._change(frozenset(partition for partition in self.owned if partition.topic in self.topics))

    def on_poll(self, now: float) -> None:
        """Nothing waits for a poll but what is in `handover`."""

    def touch(self, now: float) -> None:
        """Nobody minds how often it polls."""

    def on_handover_started(self, started: Handover) -> None:
        """Whoever polls does what `handover` asks."""

    def on_handover_done(self, done: Handover) -> None:
        """Whoever polls has done what `handover` asked."""
        self.owned = done.assigned
        if self.handover is done:
            self.handover = None
            self.rebalances += 1

    def on_partition_counts(self, counts: Mapping[str, int], racks: PartitionRacks = NO_RACKS) -> None:
        """The metadata was asked; a topic that is not in it keeps what is known of it."""
        if self.topics is None:
            return
        wanted = {partition for partition in self.owned if partition.topic in self.topics}
        for topic in self.topics & counts.keys():
            wanted |= {TopicPartition(topic, partition) for partition in range(counts[topic])}
        self._change(frozenset(wanted))

    def watched_topics(self) -> frozenset[str]:
        """What the metadata must be asked about."""
        return self.topics or frozenset()

    def leave(self, reason: str) -> None:
        """Forgets everything."""
        self.owned, self.handover = frozenset(), None

    def next_action(self, now: float) -> Wait:
        """Nothing, ever."""
        return Wait(until=None)

    def on_commit_refused(self, error_code: int, generation: int) -> None:
        """There is nobody to commit to."""

    def _change(self, wanted: frozenset[TopicPartition]) -> None:
        self.handover = None
        if wanted != self.owned:
            self.handover = Handover(
                assigned=wanted, revoked=self.owned - wanted, added=wanted - self.owned, is_new_assignment=True
            )
