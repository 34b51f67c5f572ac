"""Below the high watermark all replicas have the same bytes."""

from ottla.sim.checkers.logs_equal import LogsEqual
from ottla.sim.simulated_world import SimulatedWorld, run
from tests.unit.sim.checkers.histories import P0, SEGMENT, finish
from tests.unit.sim.ledgers import begin, write


async def write_and_flip(world: SimulatedWorld) -> None:
    """A bit of the last record of two is another one on the follower."""
    _, follower = await begin(world, P0.topic)
    for value in (b"a", b"b"):
        await write(world, value, P0.topic)
    await world.wait_until(lambda: 2 == high_watermark(world), 20)
    path = f"/data/{P0}/{SEGMENT}"
    follower.disk.flip(path, follower.disk.size(path) - 1, 0)


def high_watermark(world: SimulatedWorld) -> int:
    brokers = [each.broker for each in world.machines if each.broker is not None]
    return min(int(each.partitions.held[P0].high_watermark) for each in brokers)


def test_equal_replicas() -> None:
    async def story(world: SimulatedWorld) -> None:
        await begin(world, P0.topic)
        await write(world, b"a", P0.topic)
        before = world.history.checks
        finish(LogsEqual(), world)
        assert before + 1 == world.history.checks

    assert [] == run(story, 1, brokers=2).violations


def test_replicas_that_differ() -> None:
    async def story(world: SimulatedWorld) -> None:
        await write_and_flip(world)
        finish(LogsEqual(), world)

    assert ["replicas are equal: events-0, offsets 0 to 2: brokers 1 and 2 differ"] == run(
        story, 1, brokers=2
    ).violations


def test_a_replica_whose_bit_was_flipped_by_the_simulator_is_left_out() -> None:
    async def story(world: SimulatedWorld) -> None:
        await write_and_flip(world)
        world.rotten.add((2, *P0))
        finish(LogsEqual(), world)

    assert [] == run(story, 1, brokers=2).violations
