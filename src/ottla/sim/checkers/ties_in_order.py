"""Records of a queue that are due in the same millisecond are delivered in the order in which they were parked."""

from ottla.model.queue_names import DUE_MS, ORIGIN
from ottla.sim.checkers import Contents
from ottla.sim.simulated_world import SimulatedWorld


class TiesInOrder:
    """Compares the origins of what was delivered. Records of transactions count from their commit, and
    released ones from their release: they are left out."""

    name = "ties keep their order"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """For each sink, origin and due time."""
        last: dict[tuple[object, ...], tuple[int, bytes]] = {}
        for arrival in contents.arrivals:
            owed = world.history.queues.owed.get(arrival.name)
            if owed is None or owed.transaction is not None or owed.released_at is not None:
                continue
            origin, _, offset = arrival.header(ORIGIN).rpartition("/")
            world.history.check(
                origin == f"{owed.parked_in.topic}/{owed.parked_in.partition}",
                self.name,
                f"{arrival.name.decode()} was parked in {owed.parked_in}; its header says {origin!r}",
            )
            tie = (arrival.partition, origin, arrival.header(DUE_MS))
            before, name = last.get(tie, (-1, b""))
            world.history.check(
                int(offset or -1) > before or not tie[2],
                self.name,
                f"{arrival.partition}: {arrival.name.decode()}, parked at {offset}, comes after {name.decode()}, parked"
                f" at {before} and due at the same time",
            )
            last[tie] = (int(offset or -1), arrival.name)
