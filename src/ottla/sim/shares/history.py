"""What the members of a share group saw: records that they acquired, and what became of their acknowledgements.

Written by `observed_consumer.py` for every request of a member, read by the checkers. A broker acquires records at some
moment between the fetch and its response, and stores an acknowledgement between the request and its response; both
moments are kept, so that a checker only compares what is certain.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.share.values import AcknowledgeType
from ottla.model.ids import TopicPartition

Place = tuple[TopicPartition, int]
"""A record: its partition and offset."""
FINAL = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})
"""A record that was acknowledged so is not delivered again."""


class Acquisition(NamedTuple):
    """A member got a record. `delivery_count` is what the broker said; times are those of the world, in seconds."""

    member: str
    delivery_count: int
    asked_at: float
    told_at: float


class Confirmation(NamedTuple):
    """A member's acknowledgement was answered without an error. It was sent for the last time at `asked_at`."""

    acquisition: Acquisition
    type: AcknowledgeType
    asked_at: float
    told_at: float


class StartOffset(NamedTuple):
    """What an admin client was told of a share-partition."""

    offset: int
    asked_at: float
    told_at: float


class ShareHistory:
    """One group's history; empty in a run without share groups."""

    def __init__(self) -> None:
        self.topic: str | None = None
        self.delivery_count_limit = 0
        self.acquired: dict[Place, list[Acquisition]] = defaultdict(list)
        self.confirmed: dict[Place, list[Confirmation]] = defaultdict(list)
        self.finished: dict[Place, list[tuple[str, float]]] = defaultdict(list)
        """The members that accepted or rejected a record, and when; whether or not they were told that it is stored."""
        self.given: dict[Place, list[tuple[str, float]]] = defaultdict(list)
        """The same of members that accepted, rejected or released it."""
        self.lost_fetches: list[float] = []
        """When fetches were sent that were not answered: the records that they acquired were seen by no member."""
        self.start_offsets: dict[TopicPartition, list[StartOffset]] = defaultdict(list)

    def on_acquired(self, partition: TopicPartition, offsets: range, acquisition: Acquisition) -> None:
        """A member's fetch returned these records."""
        for offset in offsets:
            self.acquired[partition, offset].append(acquisition)

    def on_acknowledging(self, partition: TopicPartition, types: Mapping[int, int], member: str, at: float) -> None:
        """A member sends acknowledgements."""
        for offset, how in types.items():
            if how != AcknowledgeType.RENEW:
                self.given[partition, offset].append((member, at))
            if how in FINAL:
                self.finished[partition, offset].append((member, at))

    def on_acknowledged(
        self, partition: TopicPartition, types: Mapping[int, int], member: str, asked_at: float, told_at: float
    ) -> None:
        """A member's acknowledgements were answered without an error."""
        for offset, how in types.items():
            own = [each for each in self.acquired[partition, offset] if each.member == member]
            if own:
                confirmation = Confirmation(own[-1], AcknowledgeType(how), asked_at, told_at)
                self.confirmed[partition, offset].append(confirmation)
