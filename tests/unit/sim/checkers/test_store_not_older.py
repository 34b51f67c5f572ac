"""No broker serves with a metadata store that is older than what it has seen."""

from ottla.sim.checkers.store_not_older import StoreNotOlder
from ottla.sim.simulated_world import SimulatedWorld, run
from tests.unit.sim.checkers.histories import P0
from tests.unit.sim.ledgers import begin


async def look(world: SimulatedWorld, *, is_old: bool, serves: bool) -> None:
    """Looks twice at two brokers, the first of which serves or has just been started."""
    first, _ = await begin(world, P0.topic)
    if not serves:
        first.kill()
        first.boot()
        world.machines[1].kill()
    world.fault_limits.is_store_old = is_old
    checker = StoreNotOlder()
    checker.look(world)
    checker.look(world)


def test_brokers_that_serve_with_the_right_store_or_do_not_serve() -> None:
    assert [] == run(lambda world: look(world, is_old=False, serves=True), 1, brokers=2).violations
    assert [] == run(lambda world: look(world, is_old=True, serves=False), 1, brokers=2).violations


def test_brokers_that_serve_with_an_older_store() -> None:
    assert [
        "an older store is refused: broker-1 life 1 serves with an older metadata store",
        "an older store is refused: broker-2 life 1 serves with an older metadata store",
    ] == run(lambda world: look(world, is_old=True, serves=True), 1, brokers=2).violations
