"""A record of a share group is acquired by one member at a time.

A member whose acknowledgement was confirmed has held the record since it was acquired: brokers refuse acknowledgements
of locks that have expired or were forgotten. Only acknowledgements of records that the group is done with, below the
start offset, are confirmed whichever member sends them: if the other member has acknowledged the record, or has had it
for long, nothing is certain.
"""

from collections.abc import Iterator
from typing import Final

from ottla.sim.checkers import Contents
from ottla.sim.shares.history import ShareHistory
from ottla.sim.simulated_world import SimulatedWorld

HELD_SECONDS: Final = 1.0
"""Shorter than any lock."""


class ShareOneHolder:
    """Looks for fetches of other members that were sent and answered while a member held the record."""

    name = "one holder of a record"

    def look(self, world: SimulatedWorld) -> None:
        """Nothing to see before the end."""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """Every confirmed acknowledgement against the acquisitions of other members."""
        for is_right, what in self.verdicts(world.history.shares):
            world.history.check(is_right, self.name, what)

    def verdicts(self, shares: ShareHistory) -> Iterator[tuple[bool, str]]:
        """Whether each is right, and what it is."""
        for place, confirmations in shares.confirmed.items():
            for held, type_, asked_at, told_at in confirmations:
                given = [at for member, at in shares.given[place] if member != held.member]
                is_given = any(held.told_at < at < told_at for at in given)
                others = [
                    each
                    for each in shares.acquired[place]
                    if each.member != held.member
                    and each.asked_at > held.told_at
                    and each.told_at < asked_at
                    and not (is_given or told_at - each.asked_at > HELD_SECONDS)
                ]
                yield (
                    not others,
                    f"{place[0]} offset {place[1]}: {held.member} held it from {held.told_at:.3f} to {asked_at:.3f}"
                    f" ({type_.name} was confirmed), and {others[:1]} acquired it",
                )
