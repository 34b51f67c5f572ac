"""What a queue owes arrives: every record that was acknowledged and not cancelled, where it belongs.

A transaction whose outcome its producer does not know arrives completely or not at all.
"""

from ottla.model.queue_names import dead_letter_topic
from ottla.records.murmur2 import partition_for_key
from ottla.sim.checkers import Contents
from ottla.sim.queue_history import ORDERS, Owed
from ottla.sim.simulated_world import SimulatedWorld

REFUSED_AHEAD_MS = 3_500_000
"""Topics refuse timestamps more than an hour ahead, by default."""
GROWN_SECONDS = 10.0
"""So long after the topic grew, and after the faults, every broker knows it."""


RELEASED_SECONDS = 15.0
"""So long after it was released, and after the cluster is healthy again, a record must have arrived."""
RIGHT_MS = 500
"""Clocks that were never further from the world's time are right."""


class ReleasedArrive:
    """Records that an operator released arrive long before they would have been due."""

    name = "released records arrive"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every record whose release was acknowledged, unless a clock was wrong: by that clock it may not be due."""
        clocks = [each.clock for each in world.machines]
        if any(abs(lead) > RIGHT_MS for clock in clocks for lead in clock.leads_ms()):
            return
        seen_at = world.history.queues.seen_at
        for owed in world.history.queues.owed.values():
            if owed.release_acked_at is None or not owed.must_arrive:
                continue
            late = max(owed.release_acked_at, world.whole_at) + RELEASED_SECONDS
            if owed.parked_until(clocks) > late:
                world.history.check(
                    seen_at.get(owed.name, late + 1) <= late,
                    self.name,
                    f"{owed.name.decode()} was released at {owed.release_acked_at:.3f} s, and was first seen at"
                    f" {seen_at.get(owed.name)} s",
                )


class OwedArrive:
    """Compares what is owed with what arrived."""

    name = "what is owed arrives"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every record that was sent."""
        history = world.history
        places = {arrival.name: arrival.partition for arrival in contents.arrivals}
        transactions: dict[str, list[bool]] = {}
        # A broker whose clock is far behind refuses records of the future: they become dead letters.
        is_refused = any(each.clock.leads_ms()[0] < -REFUSED_AHEAD_MS for each in world.machines)
        for owed in history.queues.owed.values():
            place = places.get(owed.name)
            if owed.must_arrive:
                history.check(
                    place is not None, self.name, f"{owed.name.decode()}, acknowledged in {owed.parked_in}, is lost"
                )
            if place is not None:
                expected = self._places(world, owed)
                # A half message whose decision comes too late is a dead letter.
                may_die = is_refused or owed.is_half
                topics = {owed.sink, dead_letter_topic(owed.sink)} if may_die else {owed.sink}
                history.check(
                    place.topic in topics and place.partition in expected,
                    self.name,
                    f"{owed.name.decode()} of {owed.parked_in} is in {place}, not in {owed.sink} {sorted(expected)}",
                )
            if owed.transaction is not None and owed.outcome == "unknown" and owed.id is None:
                transactions.setdefault(owed.transaction, []).append(place is not None)
        for transaction, arrived in transactions.items():
            history.check(
                all(arrived) or not any(arrived),
                self.name,
                f"{sum(arrived)} of {len(arrived)} delayed records of transaction {transaction} arrived",
            )
        for value, (where, offset) in history.queues.offers_acked.items():
            if history.queues.expiry_ms[value] > contents.read_ms:
                found = dict(contents.everything.get(where, [])).get(offset)
                history.check(
                    found == value, self.name, f"{value.decode()} has not expired, but {where} {offset} has {found!r}"
                )

    def _places(self, world: SimulatedWorld, owed: Owed) -> set[int]:
        """The partitions where the record may be: where it was parked, or by its key after the topic grew."""
        own, grew_at = owed.parked_in.partition, world.history.queues.grew_at
        if grew_at is None or owed.sink != ORDERS or owed.key is None:
            return {own}
        asked_at, known_at = grew_at
        by_key = partition_for_key(owed.key, world.partitions_of(ORDERS))
        due = owed.due_from(each.clock for each in world.machines)
        was_before = owed.acked_at is not None and owed.acked_at < asked_at
        if was_before and owed.outcome == "arrives" and due > max(known_at, world.healed_at) + GROWN_SECONDS:
            return {by_key}
        return {own, by_key}
