"""A small simulated cluster for stories: a topic with one partition on two brokers, the first of which leads."""

import asyncio

from ottla.client.admin.values import NewTopic
from ottla.model.ids import TopicPartition
from ottla.sim.machine import Machine
from ottla.sim.simulated_world import SimulatedWorld

TOPIC = "ledger"


async def begin(world: SimulatedWorld, topic: str = TOPIC) -> tuple[Machine, Machine]:
    """Starts the brokers and creates the topic; returns the machines of its leader and its follower."""
    world.boot()
    await world.wait_until(lambda: all(each.is_serving for each in world.machines), 20)

    async def create() -> None:
        admin = world.client("admin").admin()
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        await admin.create_topics([NewTopic(topic, replica_assignments={0: [1, 2]}, topic_configs=configs)])
        await admin.close()

    await asyncio.wait([world.spawn("admin", create())[1]])
    return world.machines[0], world.machines[1]


async def write(world: SimulatedWorld, value: bytes, topic: str = TOPIC) -> None:
    """Writes a record, and waits until all in-sync replicas have acknowledged it."""

    async def send() -> None:
        producer = world.client("writer").producer()
        await producer.start()
        metadata = await producer.send_and_wait(topic, value, partition=0)
        world.history.on_acked(TopicPartition(topic, 0), value, metadata.offset)
        await producer.close()

    task = world.spawn("writer", send())[1]
    await asyncio.wait([task], timeout=60)
    task.result()
