"""What a history itself refuses: two records at an offset, two owners, and offsets that go back."""

from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import P0, P1


def test_clients_that_see_the_same(world: SimulatedWorld) -> None:
    history = world.history
    history.on_acked(P0, b"a", 0)
    history.on_read(P0, 0, b"a", "reader", committed=True)
    history.on_read(P1, 0, b"b", "reader", committed=False)
    history.on_owned("group", 1, "x", P0)
    history.on_owned("group", 1, "x", P0)
    history.on_owned("group", 1, "y", P1)
    history.on_owned("group", 2, "y", P0)
    history.on_group_offset("group", P0, 5)
    history.on_group_offset("group", P0, 3)
    assert 5 == history.group_offsets["group", P0]
    history.on_group_offset_read("group", P0, 5, 5)
    assert [] == history.violations
    assert ({P0: {0: b"a"}}, 8) == (history.committed_reads, history.checks)


def test_two_records_at_an_offset(world: SimulatedWorld) -> None:
    history = world.history
    history.on_acked(P0, b"a", 0)
    history.on_read(P0, 0, b"b", "reader", committed=False)
    assert ["one record per offset: events-0 offset 0 was b'a', but is b'b' for reader"] == history.violations


def test_two_owners_of_a_partition(world: SimulatedWorld) -> None:
    history = world.history
    history.on_owned("group", 1, "x", P0)
    history.on_owned("group", 1, "y", P0)
    assert [
        "one owner per generation: events-0 of group group, generation 1, belongs to x and to y"
    ] == history.violations


def test_a_committed_offset_goes_back(world: SimulatedWorld) -> None:
    history = world.history
    history.on_group_offset("group", P0, 5)
    history.on_group_offset_read("group", P0, 4, history.group_offsets["group", P0])
    assert [
        "group offsets never go back: events-0 of group group: 5 was committed, and then 4 was read"
    ] == history.violations
    assert ["   0.000000 VIOLATION " + history.violations[0]] == history.trace


def test_a_violation_is_announced(world: SimulatedWorld) -> None:
    announced = []
    history = world.history
    history.on_violation = lambda: announced.append(list(history.violations))
    history.check(True, "checker", "right")
    history.check(False, "checker", "wrong")
    assert [["checker: wrong"]] == announced
