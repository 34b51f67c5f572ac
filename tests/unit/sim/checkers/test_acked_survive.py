"""An acknowledged record is at its offset at the end."""

from ottla.sim.checkers.acked_survive import AckedSurvive
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import P0, P1, finish


def test_records_at_their_offsets(world: SimulatedWorld) -> None:
    world.history.on_acked(P0, b"a", 0)
    world.history.on_acked(P1, b"b", 5)
    assert [] == finish(AckedSurvive(), world, everything={P0: [(0, b"a"), (1, b"unknown")], P1: [(5, b"b")]})


def test_another_record_is_there_or_none(world: SimulatedWorld) -> None:
    world.history.on_acked(P0, b"a", 0)
    world.history.on_acked(P0, b"b", 1)
    world.history.on_acked(P1, b"c", 5)
    assert [
        "acked records survive: events-0 offset 0 was acknowledged as b'a', but is b'x'",
        "acked records survive: events-0 offset 1 was acknowledged as b'b', but is None",
        "acked records survive: events-1 offset 5 was acknowledged as b'c', but is None",
    ] == finish(AckedSurvive(), world, everything={P0: [(0, b"x"), (2, b"b")]})
