"""A queue delivers a record once, and never one that was cancelled in time or whose transaction was aborted."""

from ottla.sim.checkers import Contents
from ottla.sim.queue_history import Arrival
from ottla.sim.simulated_world import SimulatedWorld

MARKER_SECONDS = 5.0
"""So long after the faults, the markers of all transactions are written."""


class DeliveredOnce:
    """Looks at everything that arrived."""

    name = "nothing is delivered twice"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every name once."""
        first: dict[bytes, Arrival] = {}
        for arrival in contents.arrivals:
            before = first.setdefault(arrival.name, arrival)
            world.history.check(
                before is arrival,
                self.name,
                f"{arrival.name.decode()} is at {before.partition} {before.offset}, and again at"
                f" {arrival.partition} {arrival.offset}",
            )


class WithdrawnStayAway:
    """Looks at records that were cancelled, replaced or aborted."""

    name = "what was withdrawn is not delivered"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """None of them may be there, unless a broker may have held it for due when the cancel was acknowledged."""
        places = {arrival.name: arrival for arrival in contents.arrivals}
        clocks = [each.clock for each in world.machines]
        for owed in world.history.queues.owed.values():
            place = places.get(owed.name)
            where = "" if place is None else f"{place.partition} {place.offset}"
            if owed.outcome == "aborted":
                # Nothing is delivered; a half message that was rolled back too late may be a dead letter.
                is_right = place is None or (owed.is_half and place.partition.topic != owed.sink)
                world.history.check(is_right, self.name, f"{owed.name.decode()} was rolled back, and is at {where}")
            counts_from = owed.cancelled_at
            if counts_from is not None and owed.is_cancel_transactional:
                counts_from = max(counts_from, world.healed_at + MARKER_SECONDS)
            if counts_from is not None and owed.due_from(clocks) > counts_from:
                world.history.check(
                    place is None, self.name, f"{owed.name.decode()} was cancelled in time, and is at {where}"
                )
