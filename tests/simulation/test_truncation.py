"""The two classic failures of cutting a follower's log by its high watermark, told as stories.

Each holds with the code as it is, and fails with the planted bug: that is what leader epochs are for.
"""

import asyncio

import pytest

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import Contents
from ottla.sim.checkers.logs_equal import LogsEqual
from ottla.sim.history import History
from ottla.sim.mutants import applied
from ottla.sim.simulated_world import SimulatedWorld, Story, run
from tests.unit.sim.ledgers import TOPIC, begin, write

MUTANT = "truncation by high watermark"


async def read_all(world: SimulatedWorld) -> list[bytes]:
    """The partition's records, as a consumer sees them."""
    found: list[bytes] = []

    async def read() -> None:
        consumer = world.client("reader").consumer(auto_offset_reset="earliest")
        consumer.assign([TopicPartition(TOPIC, 0)])
        end = (await consumer.end_offsets([TopicPartition(TOPIC, 0)]))[TopicPartition(TOPIC, 0)]
        while len(found) < end:
            for records in (await consumer.poll(timeout_ms=500)).values():
                found.extend(record.value for record in records)
        await consumer.close()

    task = world.spawn("reader", read())[1]
    await asyncio.wait([task], timeout=60)
    task.result()
    return found


async def a_committed_record_is_kept(world: SimulatedWorld) -> None:
    """A follower has a record, and has not heard that it is committed, when both brokers are killed.

    The follower comes back first and leads. Its high watermark is older than the record; to cut its log there would
    lose what was acknowledged.
    """
    leader, follower = await begin(world)
    await write(world, b"first")
    await write(world, b"second")
    leader.kill()
    follower.kill()
    follower.boot()
    await world.wait_until(lambda: follower.is_serving and world.truth().topics[TOPIC].partitions[0].leader == 2, 30)
    world.history.check([b"first", b"second"] == await read_all(world), "acked records survive", "the second is lost")


async def replicas_do_not_diverge(world: SimulatedWorld) -> None:
    """A leader writes alone and is killed; the other broker, which lacks the record, leads instead and writes another.

    When the first one returns, its log has a different record at the same offset, below its own high watermark: only
    the epochs tell that it is not the leader's.
    """
    leader, follower = await begin(world)
    await write(world, b"common")
    follower.kill()
    await world.wait_until(lambda: world.truth().topics[TOPIC].partitions[0].isr == (1,), 30)
    await write(world, b"of the first leader")
    leader.kill()
    await world.wait_until(lambda: 1 not in world.truth().brokers, 30)
    follower.boot()
    await world.wait_until(lambda: world.truth().topics[TOPIC].partitions[0].leader == 2, 30)
    world.history.reads.clear()
    await write(world, b"of the second leader")
    leader.boot()
    await world.wait_until(world.is_whole, 30)
    LogsEqual().finish(world, Contents(everything={}, committed={}))
    world.history.check(
        [b"common", b"of the second leader"] == await read_all(world), "the leader decides", "it does not"
    )


STORIES = [a_committed_record_is_kept, replicas_do_not_diverge]


def told(story: Story, mutant: str | None) -> History:
    with applied(mutant):
        return run(story, 1, brokers=2)


@pytest.mark.parametrize("story", STORIES)
def test_leader_epochs_keep_it_right(story: Story) -> None:
    history = told(story, None)
    assert [] == history.violations
    assert history.checks > 0


@pytest.mark.parametrize("story", STORIES)
def test_cutting_by_high_watermark_is_found_out(story: Story) -> None:
    assert [] != told(story, MUTANT).violations
