"""A program that sends delayed records which their topic refuses when they are due: they become dead letters."""

from typing import Final

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import DELIVER_AT_MS, dead_letter_topic, delayed_topic
from ottla.sim.queue_history import ORDERS, Owed
from ottla.sim.simulated_world import SimulatedWorld
from ottla.sim.workloads.delaying import DELAY_MAX_MS, TICK_MS

REFUSING_CONFIGS: Final = {"message.timestamp.before.max.ms": "3600000"}
_OLD_MS: Final = 7_200_000
"""The age of the records' timestamps: more than the topic accepts."""


async def send_refused(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """Sends records until the faults end; they are due together with others, and so are planned with them."""
    client, random = world.client(name), world.random.fork()
    where = delayed_topic(ORDERS)
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=20_000, max_block_ms=10_000)
        await producer.start()
        is_well = True
        while is_well and not world.is_over:
            if not world.is_calm:
                now_ms = client.clock.now_ms()
                at_ms = (now_ms + random.randrange(DELAY_MAX_MS)) // TICK_MS * TICK_MS
                owed = Owed(
                    name=f"refused {name}/{next(world.numbers[f'{name} refused'])}".encode(),
                    sink=dead_letter_topic(ORDERS),
                    parked_in=TopicPartition(where, random.randrange(partitions)),
                    sent_at=world.loop.time(),
                    at_ms=at_ms,
                )
                world.history.queues.owed[owed.name] = owed
                try:
                    await producer.send_and_wait(
                        where,
                        owed.name,
                        headers=[(DELIVER_AT_MS, b"%d" % at_ms)],
                        partition=owed.parked_in.partition,
                        timestamp_ms=now_ms - _OLD_MS,
                    )
                    owed.outcome, owed.acked_at = "arrives", world.loop.time()
                except OttlaError as error:
                    world.history.note(f"{owed.name.decode()} is not acknowledged: {type(error).__name__}")
                    is_well = False
            await client.clock.sleep(pause_seconds * random.random() * 2)
        await producer.close(timeout=5)
