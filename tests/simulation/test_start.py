"""A broker's start, when something goes wrong in the middle of it."""

import asyncio

from ottla.sim.life import Life, run


async def _cut_off_once_registered(life: Life) -> None:
    """A broker is cut from the store when it has just registered, for longer than its session lasts."""
    life.boot()
    await life.wait_until(life.has_begun, 20)
    machine = life.machines[0]
    machine.kill()
    await life.wait_until(lambda: len(life.truth().brokers) == 2, 20)
    machine.boot()
    assert machine.broker is not None
    assert machine.store is not None
    for _ in range(10_000):
        if machine.broker.is_registered:
            break
        await asyncio.sleep(0.0001)
    life.ensemble.cut(machine.store)
    life.history.check(not machine.is_serving, "the story", "it was too fast")
    await life.wait_until(lambda: len(life.truth().brokers) == 2, 20)
    life.ensemble.heal(machine.store)
    life.history.check(await life.wait_until(life.is_whole, 20), "progress", "it does not start")


def test_a_session_that_ends_before_the_broker_serves_is_followed_by_another() -> None:
    assert [] == run(_cut_off_once_registered, 1).violations
