"""A folder with records disappears only if a client deleted its topic or moved its partition."""

from collections.abc import Callable

import pytest

from ottla.sim.checkers.folders_kept import FoldersKept
from ottla.sim.machine import DATA_DIR
from ottla.sim.simulated_world import SimulatedWorld
from ottla.storage.data_dirs import names
from tests.unit.sim.checkers.histories import P0, put_log
from tests.unit.sim.crashes import put

FOLDER = f"{DATA_DIR}/{P0}"
STRAY = f"{DATA_DIR}/{names.stray_name(P0, '0' * 32)}"


def with_folder(world: SimulatedWorld, *values: bytes) -> FoldersKept:
    """A broker has a folder with these records, and the checker has seen it."""
    put_log(world.machines[0], P0, *values)
    put(world.machines[0].disk, f"{FOLDER}/{names.PARTITION_METADATA}", b"version: 0\ntopic_id: first\n")
    checker = FoldersKept()
    checker.look(world)
    return checker


def remove(world: SimulatedWorld) -> None:
    world.machines[0].disk.remove_tree(FOLDER)


def set_aside(world: SimulatedWorld) -> None:
    world.machines[0].disk.rename(FOLDER, STRAY)


def delete_topic(world: SimulatedWorld) -> None:
    world.history.deleted.add(P0.topic)
    remove(world)


def move(world: SimulatedWorld) -> None:
    world.history.moved.add(P0)
    remove(world)


def lose(world: SimulatedWorld) -> None:
    world.fault_limits.vanished.add((1, FOLDER))
    remove(world)


def lose_power(world: SimulatedWorld) -> None:
    world.machines[0].disk = world.machines[0].disk.crash()
    if world.machines[0].disk.is_dir(FOLDER):
        remove(world)


@pytest.mark.parametrize("change", [set_aside, delete_topic, move, lose, lose_power, lambda _: None])
def test_folders_that_stay_or_may_disappear(change: Callable[[SimulatedWorld], None], world: SimulatedWorld) -> None:
    checker = with_folder(world, b"a")
    change(world)
    checker.look(world)
    assert [] == world.history.violations


def test_an_empty_folder_may_disappear(world: SimulatedWorld) -> None:
    checker = with_folder(world)
    remove(world)
    checker.look(world)
    assert [] == world.history.violations


def set_other_aside(world: SimulatedWorld) -> None:
    """What is set aside is of a topic of the same name that was deleted before."""
    put(world.machines[0].disk, f"{FOLDER}/{names.PARTITION_METADATA}", b"version: 0\ntopic_id: other\n")
    set_aside(world)


@pytest.mark.parametrize("change", [remove, set_other_aside])
def test_a_folder_disappears(change: Callable[[SimulatedWorld], None], world: SimulatedWorld) -> None:
    checker = with_folder(world, b"a")
    change(world)
    checker.look(world)
    checker.look(world)
    assert [
        "only deleted partitions are removed: broker-1: events-0 (topic id first) disappeared, and was not set aside"
    ] == world.history.violations
