"""All machines lose power in the same instant, in the middle of writing: what `flush.messages=1` promises, and what
its absence does not."""

import asyncio

import pytest

from ottla.client.admin.values import NewTopic
from ottla.model.ids import TopicPartition
from ottla.sim.history import History
from ottla.sim.simulated_world import SimulatedWorld, Story, run

TOPIC = "ledger"
WHERE = TopicPartition(TOPIC, 0)
SEEDS = range(8)


def story_with(flush_messages: str | None, acked: dict[int, bytes]) -> Story:
    """Writes until the power fails after some seconds; then everything comes back, and is read."""

    async def story(world: SimulatedWorld) -> None:
        world.boot()
        await world.wait_until(lambda: all(each.is_serving for each in world.machines), 20)
        configs = {"min.insync.replicas": "2"}
        if flush_messages is not None:
            configs["flush.messages"] = flush_messages

        async def create() -> None:
            admin = world.client("admin").admin()
            await admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2, 3]}, topic_configs=configs)])
            await admin.close()

        async def write() -> None:
            producer = world.client("writer").producer(linger_ms=2)
            await producer.start()
            number = 0
            while True:
                number += 1
                sent = await asyncio.gather(
                    *(producer.send_and_wait(TOPIC, b"%d-%d" % (number, each), partition=0) for each in range(3))
                )
                acked.update({metadata.offset: b"%d-%d" % (number, each) for each, metadata in enumerate(sent)})

        await asyncio.wait([world.spawn("admin", create())[1]])
        # Another one leads, so that the one who leads afterwards has only what it copied.
        await world.machines[0].stop()
        await world.wait_until(lambda: world.truth().topics[TOPIC].partitions[0].leader == 2, 30)
        world.machines[0].boot()
        await world.wait_until(world.is_whole, 30)
        process, _ = world.spawn("writer", write())
        await world.wait_until(lambda: len(acked) > 60, 30)
        for machine in world.machines:
            machine.crash()
        process.end()
        for machine in world.machines:
            machine.boot()
        await world.wait_until(world.is_whole, 60)
        found = await read_all(world)
        for offset, value in acked.items():
            world.history.check(found.get(offset) == value, "acked records survive", f"{value!r} at {offset} is lost")

    return story


async def read_all(world: SimulatedWorld) -> dict[int, bytes]:
    """The partition's records by offset."""
    found: dict[int, bytes] = {}

    async def read() -> None:
        consumer = world.client("reader").consumer(auto_offset_reset="earliest")
        consumer.assign([WHERE])
        end = (await consumer.end_offsets([WHERE]))[WHERE]
        while await consumer.position(WHERE) < end:
            for records in (await consumer.poll(timeout_ms=500)).values():
                found.update({record.offset: record.value for record in records})
        await consumer.close()

    task = world.spawn("reader", read())[1]
    await asyncio.wait([task], timeout=60)
    task.result()
    return found


def told(flush_messages: str | None, seed: int) -> tuple[History, dict[int, bytes]]:
    acked: dict[int, bytes] = {}
    return run(story_with(flush_messages, acked), seed, brokers=3), acked


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_flushed_by_all_in_sync_before_it_was_acknowledged_is_there(seed: int) -> None:
    history, acked = told("1", seed)
    assert [] == history.violations
    assert len(acked) > 60


def test_without_that_it_may_be_lost() -> None:
    """Or the test above could not fail."""
    assert any(told(None, seed)[0].violations for seed in SEEDS)
