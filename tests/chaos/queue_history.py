"""What clients of queues did and saw, and whether the queues kept their promises. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(slots=True, kw_only=True)
class Parked:
    """A record that was sent to a queue. `name` is unique; for a record that was handed back it has the attempt."""

    name: str
    sink: str
    """The topic where it must arrive."""
    due_ms: int
    """Not before this time, by the machine's clock."""
    is_acked: bool = False
    is_withdrawn: bool = False
    """Whether it must not arrive: cancelled, or of an aborted transaction."""


class Arrived(NamedTuple):
    """A record that a reader saw in a topic that queues deliver to."""

    name: str
    topic: str
    partition: int
    offset: int
    seen_ms: int
    origin: str = ""
    """`topic/partition/offset`, as the header says."""
    due_ms: int = -1
    """As the header says."""


@dataclass(slots=True)
class QueueHistory:
    """All of it."""

    parked: dict[str, Parked] = field(default_factory=dict)
    arrived: list[Arrived] = field(default_factory=list)

    def missing(self) -> list[str]:
        """What must arrive, and was not seen."""
        names = {each.name for each in self.arrived}
        return [
            each.name
            for each in list(self.parked.values())
            if each.is_acked and not each.is_withdrawn and each.name not in names
        ]

    def violations(self) -> list[str]:
        """One line for each promise that was broken, and each record."""
        return [
            *(f"lost: {name} was acknowledged" for name in self.missing()),
            *(f"twice: {name}" for name, count in Counter(each.name for each in self.arrived).items() if count > 1),
            *self._strange(),
            *_untied(self.arrived),
        ]

    def _strange(self) -> Iterable[str]:
        for each in self.arrived:
            parked = self.parked.get(each.name)
            if parked is None:
                yield f"unknown: {each.name} in {each.topic}-{each.partition}"
                continue
            if each.topic != parked.sink:
                yield f"misplaced: {each.name} is in {each.topic}, not in {parked.sink}"
            if each.seen_ms < parked.due_ms:
                yield f"early: {each.name}, by {parked.due_ms - each.seen_ms} ms"
            if parked.is_withdrawn:
                yield f"withdrawn: {each.name} arrived"


def _untied(arrived: Iterable[Arrived]) -> Iterable[str]:
    """Records that were due at the same time, out of the order of their origins."""
    last: dict[tuple[str, int, str, int], int] = {}
    for each in sorted(arrived, key=lambda one: (one.topic, one.partition, one.offset)):
        if each.due_ms < 0:
            continue
        origin, _, offset = each.origin.rpartition("/")
        tie = (each.topic, each.partition, origin, each.due_ms)
        if int(offset) < last.get(tie, -1):
            yield f"out of order: {each.name}, parked at {each.origin}, after offset {last[tie]}"
        last[tie] = int(offset)
