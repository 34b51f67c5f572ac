"""The start offset of a share-partition never goes back."""

from collections.abc import Iterator
from itertools import pairwise

from ottla.sim.checkers import Contents
from ottla.sim.shares.history import ShareHistory
from ottla.sim.simulated_world import SimulatedWorld


class ShareStartOffsets:
    """Compares what an admin client was told, one request after the other."""

    name = "share start offsets never go back"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every start offset against the one before."""
        for is_right, what in self.verdicts(world.history.shares):
            world.history.check(is_right, self.name, what)

    def verdicts(self, shares: ShareHistory) -> Iterator[tuple[bool, str]]:
        """Whether each is right, and what it is."""
        for partition, told in shares.start_offsets.items():
            for before, after in pairwise(told):
                yield (
                    after.offset >= before.offset,
                    f"{partition}: {before.offset} was told at {before.told_at:.3f}, and {after.offset} at"
                    f" {after.told_at:.3f}",
                )
