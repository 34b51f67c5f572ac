"""A copier in transactions copies each record once."""

from ottla.model.ids import TopicPartition
from ottla.sim.checkers.copies_once import CopiesOnce
from ottla.sim.simulated_world import SimulatedWorld
from ottla.sim.workloads.copying import GROUP
from tests.unit.sim.checkers.histories import P0, finish

COPIES = TopicPartition("copies", 0)


def test_a_copy_of_each_record_below_the_committed_offset(world: SimulatedWorld) -> None:
    world.history.on_group_offset(GROUP, P0, 2)
    world.history.on_group_offset("others", P0, 3)
    committed = {P0: [(0, b"a"), (1, b"b"), (2, b"c")], COPIES: [(0, b"copy of b"), (1, b"copy of a")]}
    assert [] == finish(CopiesOnce(), world, committed=committed)


def test_a_copy_twice_and_none(world: SimulatedWorld) -> None:
    world.history.on_group_offset(GROUP, P0, 2)
    committed = {P0: [(0, b"a"), (1, b"b"), (2, b"c")], COPIES: [(0, b"copy of a"), (1, b"copy of a")]}
    assert [
        "copies are made once: b'copy of a' was written 2 times",
        "copies are made once: b'b' at events-0 1 was skipped",
    ] == finish(CopiesOnce(), world, committed=committed)
