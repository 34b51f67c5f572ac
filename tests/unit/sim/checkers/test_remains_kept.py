"""Acknowledged records that a damaged copy still has are not deleted."""

from collections.abc import Callable

import pytest

from ottla.sim.checkers.remains_kept import RemainsKept
from ottla.sim.machine import DATA_DIR
from ottla.sim.simulated_world import SimulatedWorld
from ottla.storage.data_dirs import names
from tests.unit.sim.checkers.histories import P0, SEGMENT, put_log

FOLDER = f"{DATA_DIR}/{P0}"
STRAY = names.stray_name(P0, "0" * 32)


def damage(world: SimulatedWorld) -> None:
    """Three records were acknowledged; a broker has lost the last of them."""
    for offset, value in enumerate((b"a", b"b", b"c")):
        world.history.on_acked(P0, value, offset)
    put_log(world.machines[0], P0, b"a", b"b")
    world.fault_limits.on_copy_lost(world.machines[0], P0)


def set_aside(world: SimulatedWorld) -> None:
    world.machines[0].disk.rename(FOLDER, f"{DATA_DIR}/{STRAY}")


def set_segment_aside(world: SimulatedWorld) -> None:
    world.machines[0].disk.rename(f"{FOLDER}/{SEGMENT}", f"{FOLDER}/{SEGMENT}.damaged")


def repair(world: SimulatedWorld) -> None:
    world.machines[0].disk.remove_tree(FOLDER)
    put_log(world.machines[0], P0, b"a", b"b", b"c")


def delete_topic(world: SimulatedWorld) -> None:
    world.history.deleted.add(P0.topic)
    world.machines[0].disk.remove_tree(FOLDER)


def move(world: SimulatedWorld) -> None:
    world.history.moved.add(P0)
    world.machines[0].disk.remove_tree(FOLDER)


def lose_power(world: SimulatedWorld) -> None:
    world.machines[0].disk = world.machines[0].disk.crash()
    world.machines[0].disk.make_dirs(DATA_DIR)


@pytest.mark.parametrize("change", [set_aside, set_segment_aside, repair, delete_topic, move, lose_power])
def test_remains_are_kept_or_no_longer_needed(change: Callable[[SimulatedWorld], None], world: SimulatedWorld) -> None:
    damage(world)
    RemainsKept().look(world)
    change(world)
    RemainsKept().look(world)
    assert [] == world.history.violations


def remove(world: SimulatedWorld) -> None:
    world.machines[0].disk.remove_tree(FOLDER)


def truncate(world: SimulatedWorld) -> None:
    remove(world)
    put_log(world.machines[0], P0, b"a")


@pytest.mark.parametrize(("change", "lost"), [(remove, 2), (truncate, 1)])
def test_remains_are_deleted(change: Callable[[SimulatedWorld], None], lost: int, world: SimulatedWorld) -> None:
    damage(world)
    change(world)
    RemainsKept().look(world)
    RemainsKept().look(world)
    assert [
        "what is left of a damaged copy is kept: broker-1: events-0 had 2 acknowledged records left,"
        f" and lost {lost} of them"
    ] == world.history.violations
