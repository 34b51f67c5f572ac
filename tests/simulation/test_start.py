"""A broker's start, when something goes wrong in the middle of it."""

import asyncio

from ottla.sim.simulated_world import SimulatedWorld, run


async def _cut_off_once_registered(world: SimulatedWorld) -> None:
    """A broker is cut from the store when it has just registered, for longer than its session lasts."""
    world.boot()
    await world.wait_until(world.has_begun, 20)
    machine = world.machines[0]
    machine.kill()
    await world.wait_until(lambda: len(world.truth().brokers) == 2, 20)
    machine.boot()
    assert machine.broker is not None
    assert machine.store is not None
    for _ in range(10_000):
        if machine.broker.is_registered:
            break
        await asyncio.sleep(0.0001)
    world.ensemble.cut(machine.store)
    world.history.check(not machine.is_serving, "the story", "it was too fast")
    await world.wait_until(lambda: len(world.truth().brokers) == 2, 20)
    world.ensemble.heal(machine.store)
    world.history.check(await world.wait_until(world.is_whole, 20), "progress", "it does not start")


def test_a_session_that_ends_before_the_broker_serves_is_followed_by_another() -> None:
    assert [] == run(_cut_off_once_registered, 1).violations
