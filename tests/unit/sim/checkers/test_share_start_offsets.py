"""The start offset of a share-partition never goes back."""

from ottla.sim.checkers.share_start_offsets import ShareStartOffsets
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import finish
from tests.unit.sim.checkers.share_histories import ShareGroup


def test_start_offsets_that_stay_or_grow(world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    for at, offset in enumerate((0, 4, 4, 5)):
        group.show_start(offset, at)
    assert [] == finish(ShareStartOffsets(), world)


def test_a_start_offset_that_goes_back(world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    for at, offset in enumerate((0, 4, 3, 5)):
        group.show_start(offset, at)
    assert ["share start offsets never go back: events-0: 4 was told at 1.000, and 3 at 2.000"] == finish(
        ShareStartOffsets(), world
    )
