"""Programs that send records with acks=all and idempotence, each value once."""

import asyncio

from ottla.client.producer.batching.deliveries import AsyncDelivery
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.simulated_world import SimulatedWorld

IN_FLIGHT_MAX = 6


async def produce(
    world: SimulatedWorld, name: str, topic: str, partitions: int, pause_seconds: float, *, until_calm: bool = False
) -> None:
    """Sends numbered records until the run is over, or the faults end; a producer that fails is replaced by another."""
    client, history, random = world.client(name), world.history, world.random.fork()
    number = 0

    def is_over() -> bool:
        return world.is_over or (until_calm and world.is_calm)

    while not is_over():
        lives = next(world.numbers[name])
        producer = client.producer(delivery_timeout_ms=20_000, linger_ms=random.randrange(3) * 5, max_block_ms=10_000)
        await producer.start()
        waiting: list[asyncio.Task[bool]] = []
        is_well = True
        while is_well and not is_over():
            number += 1
            where = TopicPartition(topic, random.randrange(partitions))
            value = f"{name}.{lives}:{number}".encode()
            history.sent += 1
            try:
                delivery = await producer.send(topic, value, partition=where.partition)
            except OttlaError as error:
                history.note(f"{name} cannot send: {type(error).__name__}")
                is_well = False
                break
            waiting.append(asyncio.create_task(_wait_acked(world, where, value, delivery)))
            while len(waiting) >= IN_FLIGHT_MAX:
                is_well = await waiting.pop(0) and is_well
            await client.clock.sleep(pause_seconds * random.random() * 2)
        for task in waiting:
            await task
        await producer.close(timeout=5)


async def _wait_acked(world: SimulatedWorld, where: TopicPartition, value: bytes, delivery: AsyncDelivery) -> bool:
    try:
        metadata = await delivery
    except OttlaError as error:
        world.history.note(f"{value.decode()} is not acknowledged: {type(error).__name__}")
        return False
    world.history.on_acked(where, value, metadata.offset)
    return True
