"""A record that was acknowledged with acks=all is at the acknowledged offset."""

from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld


class AckedSurvive:
    """Compares acknowledged records with what was read."""

    name = "acked records survive"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every acknowledged record against what was read back."""
        for partition, acked in world.history.acked.items():
            found = dict(contents.everything.get(partition, []))
            for value, offset in acked:
                now = found.get(offset)
                world.history.check(
                    now == value,
                    self.name,
                    f"{partition} offset {offset} was acknowledged as {value!r}, but is {now!r}",
                )
