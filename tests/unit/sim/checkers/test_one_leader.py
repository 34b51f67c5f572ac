"""One broker leads a partition in a leader epoch."""

from ottla.sim.checkers.one_leader import OneLeader
from ottla.sim.simulated_world import SimulatedWorld, run
from tests.unit.sim.checkers.histories import P0, finish
from tests.unit.sim.ledgers import begin


def test_another_epoch_has_another_leader() -> None:
    async def story(world: SimulatedWorld) -> None:
        leader, _ = await begin(world, P0.topic)
        checker = OneLeader()
        checker.look(world)
        leader.kill()
        await world.wait_until(lambda: 2 == world.truth().topics[P0.topic].partitions[0].leader, 20)
        await world.wait_until(lambda: bool(finish(checker, world)) or 1 < world.history.checks, 20)

    assert [] == run(story, 1, brokers=2).violations


def test_two_leaders_in_an_epoch() -> None:
    async def story(world: SimulatedWorld) -> None:
        leader, follower = await begin(world, P0.topic)
        assert leader.broker is not None
        assert follower.broker is not None
        state = leader.broker.partitions.held[P0].leader
        assert state is not None
        checker = OneLeader()
        checker.look(world)
        partitions = follower.broker.partitions
        partitions.held[P0].become_leader(state)
        partitions.refresh(partitions.held[P0])
        finish(checker, world)

    assert ["one leader per epoch: events-0 epoch 0 is led by brokers 1 and 2"] == run(story, 1, brokers=2).violations
