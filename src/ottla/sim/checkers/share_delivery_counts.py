"""A record is delivered to a share group as often as its limit allows, and confirmed deliveries are not forgotten.

A delivery that ends with its leader is not counted, so that the number of deliveries itself has no limit.
"""

from collections.abc import Iterator

from ottla.client.share.values import AcknowledgeType
from ottla.sim.checkers import Contents
from ottla.sim.shares.history import ShareHistory
from ottla.sim.simulated_world import SimulatedWorld


class ShareDeliveryCounts:
    """Compares delivery counts with the limit, and with the counts of confirmed releases."""

    name = "delivery counts of share groups"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every delivery count."""
        for is_right, what in self.verdicts(world.history.shares):
            world.history.check(is_right, self.name, what)

    def verdicts(self, shares: ShareHistory) -> Iterator[tuple[bool, str]]:
        """Whether each is right, and what it is."""
        limit = shares.delivery_count_limit
        for place, acquisitions in shares.acquired.items():
            released = [each for each in shares.confirmed[place] if each.type is AcknowledgeType.RELEASE]
            for acquisition in acquisitions:
                before = [each.acquisition for each in released if each.told_at < acquisition.asked_at]
                least = 1 + max((each.delivery_count for each in before), default=0)
                count = acquisition.delivery_count
                yield (
                    least <= count <= limit,
                    f"{place[0]} offset {place[1]}: delivered to {acquisition.member} at {acquisition.told_at:.3f} with"
                    f" count {count}; it must be {least} at least and {limit} at most",
                )
