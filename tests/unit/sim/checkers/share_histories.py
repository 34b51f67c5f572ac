"""What the members of a share group saw of one record, by the times at which they asked and were answered."""

from ottla.client.share.values import AcknowledgeType
from ottla.sim.shares.history import Acquisition, StartOffset
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import P0

LIMIT = 3
"""How often a record may be delivered."""


class ShareGroup:
    """Writes the history of a group of the topic of `P0`, about the record at offset 5."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._shares = world.history.shares
        self._shares.topic, self._shares.delivery_count_limit = P0.topic, LIMIT

    def acquire(self, member: str, count: int, asked_at: float, told_at: float) -> None:
        self._shares.on_acquired(P0, range(5, 6), Acquisition(member, count, asked_at, told_at))

    def acknowledge(self, member: str, how: AcknowledgeType, asked_at: float, told_at: float | None) -> None:
        """Without `told_at` the member got no answer."""
        self._shares.on_acknowledging(P0, {5: how}, member, asked_at)
        if told_at is not None:
            self._shares.on_acknowledged(P0, {5: how}, member, asked_at, told_at)

    def lose_fetch(self, asked_at: float) -> None:
        self._shares.lost_fetches.append(asked_at)

    def show_start(self, offset: int, at: float) -> None:
        self._shares.start_offsets[P0].append(StartOffset(offset, at - 0.1, at))
