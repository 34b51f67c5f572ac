"""After healing, a share group is done with every committed record because it was accepted, rejected, or delivered as
often as its limit allows."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import Contents
from ottla.sim.shares.history import ShareHistory
from ottla.sim.simulated_world import SimulatedWorld

LATE_SECONDS: Final = 3.0
"""A fetch that was not answered may have acquired records this long after it was sent."""


class ShareNothingLost:
    """Asks of each record in the log why the group is done with it."""

    name = "no record lost to a share group"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every record of the group's topic."""
        for is_right, what in self.verdicts(world.history.shares, contents.everything):
            world.history.check(is_right, self.name, what)

    def verdicts(
        self, shares: ShareHistory, contents: Mapping[TopicPartition, Sequence[tuple[int, object]]]
    ) -> Iterator[tuple[bool, str]]:
        """Whether each is right, and what it is."""
        for partition, records in contents.items():
            if partition.topic != shares.topic:
                continue
            for offset, value in records:
                seen = shares.acquired.get((partition, offset), [])
                count = max((each.delivery_count for each in seen), default=0)
                last_at = max((each.asked_at for each in seen), default=0.0) - LATE_SECONDS
                passed = [each.told_at for each in shares.start_offsets[partition] if each.offset > offset]
                done_at = min(passed, default=inf)
                # Deliveries that no member saw count, too.
                unseen = sum(last_at <= each <= done_at for each in shares.lost_fetches)
                yield (
                    bool(shares.finished[partition, offset]) or count + unseen >= shares.delivery_count_limit,
                    f"{partition} offset {offset}: {value!r} was delivered {count} times, and neither accepted nor"
                    f" rejected: {seen[-1:]}",
                )
