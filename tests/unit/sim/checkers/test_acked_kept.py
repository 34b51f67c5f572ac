"""Acknowledged records are on some disk, and on those of the leader and all in-sync replicas."""

import asyncio

from ottla.sim.checkers.acked_kept import LOOK_SECONDS, AckedKept
from ottla.sim.history import Acked
from ottla.sim.machine import Machine
from ottla.sim.simulated_world import SimulatedWorld, run
from tests.unit.sim.checkers.histories import P0, SEGMENT, finish, put_log
from tests.unit.sim.ledgers import begin, write


def damage(machine: Machine) -> None:
    """Flips a bit of the last record."""
    path = f"/data/{P0}/{SEGMENT}"
    machine.disk.flip(path, machine.disk.size(path) - 1, 0)


async def write_three(world: SimulatedWorld) -> tuple[Machine, Machine]:
    machines = await begin(world, P0.topic)
    for value in (b"a", b"b", b"c"):
        await write(world, value, P0.topic)
    return machines


async def look_twice(world: SimulatedWorld) -> None:
    checker = AckedKept()
    checker.look(world)
    await asyncio.sleep(LOOK_SECONDS)
    checker.look(world)


def test_replicas_with_everything() -> None:
    async def story(world: SimulatedWorld) -> None:
        await write_three(world)
        before = world.history.checks
        await look_twice(world)
        assert before + 2 == world.history.checks

    assert [] == run(story, 1, brokers=2).violations


def test_a_leader_without_a_record() -> None:
    async def story(world: SimulatedWorld) -> None:
        leader, _ = await write_three(world)
        damage(leader)
        await look_twice(world)

    assert ["acked records are kept: events-0: broker 1 leads without the acknowledged records at offset 2"] == run(
        story, 1, brokers=2
    ).violations


def test_a_replica_in_sync_without_a_record() -> None:
    """Reported at the second look: a broker may need a moment to withdraw."""

    async def story(world: SimulatedWorld) -> None:
        _, follower = await write_three(world)
        damage(follower)
        AckedKept().look(world)
        assert [] == world.history.violations
        await look_twice(world)

    assert [
        "acked records are kept: events-0: broker 2 is in sync without the acknowledged records at offset 2"
    ] == run(story, 1, brokers=2).violations


def test_a_replica_whose_bit_was_flipped_by_the_simulator_does_not_count() -> None:
    async def story(world: SimulatedWorld) -> None:
        _, follower = await write_three(world)
        damage(follower)
        world.rotten.add((2, *P0))
        await look_twice(world)

    assert [] == run(story, 1, brokers=2).violations


def test_one_copy_is_enough_for_a_partition_without_brokers(world: SimulatedWorld) -> None:
    put_log(world.machines[2], P0, b"a", b"b")
    world.history.acked[P0] = [Acked(b"a", 0), Acked(b"b", 1)]
    assert [] == finish(AckedKept(), world)


def test_no_broker_has_a_record(world: SimulatedWorld) -> None:
    put_log(world.machines[0], P0, b"a", b"x")
    world.history.acked[P0] = [Acked(b"a", 0), Acked(b"b", 1), Acked(b"c", 2)]
    checker = AckedKept()
    checker.look(world)
    assert [
        "acked records are kept: events-0: no broker has the acknowledged records at offset 1 and 1 more"
    ] == finish(checker, world)
