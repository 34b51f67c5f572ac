"""The numbers of a producer grow in each partition."""

from ottla.sim.checkers.no_duplicates import NoDuplicates
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import P0, P1, finish


def test_numbers_that_grow(world: SimulatedWorld) -> None:
    everything = {
        P0: [(0, b"x:1"), (1, b"y:1"), (2, b"x:4"), (3, b"pay/1/0"), (4, b"copy of x:1")],
        P1: [(0, b"x:2"), (1, b"x:3")],
    }
    assert [] == finish(NoDuplicates(), world, everything=everything)


def test_a_number_again_and_one_too_late(world: SimulatedWorld) -> None:
    everything = {P0: [(0, b"x:1"), (1, b"x:1")], P1: [(3, b"x:3"), (4, b"y:1"), (5, b"x:2")]}
    assert [
        "no duplicates: events-0 offset 1 has b'x:1', after number 1 at offset 0",
        "no duplicates: events-1 offset 5 has b'x:2', after number 3 at offset 3",
    ] == finish(NoDuplicates(), world, everything=everything)
