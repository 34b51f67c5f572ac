"""A record whose acceptance or rejection was confirmed to a member of a share group is not delivered again."""

from collections.abc import Iterator

from ottla.sim.checkers import Contents
from ottla.sim.shares.history import FINAL, ShareHistory
from ottla.sim.simulated_world import SimulatedWorld


class ShareFinishedStay:
    """Looks for fetches that were sent after the confirmation and returned the record."""

    name = "acknowledged records stay done"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every confirmation against all later acquisitions of its record."""
        for is_right, what in self.verdicts(world.history.shares):
            world.history.check(is_right, self.name, what)

    def verdicts(self, shares: ShareHistory) -> Iterator[tuple[bool, str]]:
        """Whether each is right, and what it is."""
        for place, confirmations in shares.confirmed.items():
            for confirmation in confirmations:
                if confirmation.type not in FINAL:
                    continue
                again = [each for each in shares.acquired[place] if each.asked_at > confirmation.told_at]
                yield (
                    not again,
                    f"{place[0]} offset {place[1]}: {confirmation.type.name} of {confirmation.acquisition.member} was"
                    f" confirmed at {confirmation.told_at:.3f}, then delivered again: {again[:1]}",
                )
