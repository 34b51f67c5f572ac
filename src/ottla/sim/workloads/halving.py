"""Producers of half messages, and the service that answers when the broker asks for a decision.

What is decided about a half message follows from its name: commit, roll back, or nothing at all, after which it becomes
a dead letter. So producers and the service never contradict each other, whatever was written already.
"""

import asyncio
import zlib
from typing import Final

from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import HALF_ID, HALF_STATE, dead_letter_topic, half_checks_topic, half_topic
from ottla.sim.queue_history import TRANSFERS, Owed
from ottla.sim.simulated_world import SimulatedWorld

CHECK_AFTER_MS: Final = 1_500
CHECK_INTERVAL_MS: Final = 1_000
HALF_CONFIGS: Final = {
    "ottla.half.enable": "true",
    "ottla.half.check.after.ms": str(CHECK_AFTER_MS),
    "ottla.half.check.interval.ms": str(CHECK_INTERVAL_MS),
    "ottla.half.check.max": "12",
}


def decision_of(name: bytes) -> bytes | None:
    """What is decided about a half message."""
    return (b"commit", b"commit", b"rollback", None)[zlib.crc32(name) % 4]


async def prepare(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """Prepares half messages and decides most of them, until the faults end."""
    client, history, random = world.client(name), world.history, world.random.fork()
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=20_000, max_block_ms=10_000)
        await producer.start()
        is_well = True
        while is_well and not world.is_over:
            await client.clock.sleep(pause_seconds * random.random() * 2)
            if world.is_calm:
                continue
            half = f"transfer {name}/{next(world.numbers[f'{name} transfers'])}".encode()
            decision = decision_of(half)
            partition = random.randrange(partitions)
            where = TopicPartition(half_topic(TRANSFERS), partition)
            owed = Owed(
                name=half,
                sink=dead_letter_topic(TRANSFERS) if decision is None else TRANSFERS,
                parked_in=where,
                sent_at=world.loop.time(),
                is_half=True,
            )
            history.queues.owed[half] = owed
            headers = [(HALF_ID, half), (HALF_STATE, b"prepare")]
            try:
                await producer.send_and_wait(where.topic, half, headers=headers, partition=partition)
                owed.acked_at = world.loop.time()
                owed.outcome = "aborted" if decision == b"rollback" else "arrives"
                if decision is not None and random.random() < 0.6:
                    # Usually to the partition of the half message; other partitions hand the decision on.
                    other = partition if random.random() < 0.8 else random.randrange(partitions)
                    await decide(world, producer, half, other)
            except OttlaError as error:
                history.note(f"{half.decode()} is not acknowledged: {type(error).__name__}")
                is_well = False
        await producer.close(timeout=5)


async def decide(world: SimulatedWorld, producer: AsyncProducer, half: bytes, partition: int) -> None:
    """Sends the decision about a half message. Raises OttlaError."""
    decision = decision_of(half)
    if decision is None:
        return
    owed = world.history.queues.owed[half]
    if owed.decided_at is None:
        owed.decided_at = world.loop.time()
    headers = [(HALF_ID, half), (HALF_STATE, decision)]
    await producer.send_and_wait(half_topic(TRANSFERS), None, headers=headers, partition=partition)


async def answer(world: SimulatedWorld, name: str, partitions: int) -> None:
    """Answers questions, until the run is over."""
    client, history = world.client(name), world.history
    places = [TopicPartition(half_checks_topic(TRANSFERS), index) for index in range(partitions)]
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=10_000, max_block_ms=10_000)
        consumer = client.consumer(auto_offset_reset="none", default_api_timeout_ms=10_000)
        await producer.start()
        consumer.assign(places)
        for place in places:
            consumer.seek(place, history.queues.answered.get(place, 0))
        try:
            while not world.is_over:
                for place, records in (await consumer.poll(timeout_ms=500)).items():
                    for record in records:
                        history.check(
                            dict(record.headers).get(HALF_ID) == record.value,
                            "questions name their half message",
                            f"{place} {record.offset}: {record.value!r} has the headers {record.headers}",
                        )
                        await decide(world, producer, record.value, place.partition)
                        history.queues.answered[place] = record.offset + 1
                await asyncio.sleep(0.1)
        except OttlaError as error:
            history.note(f"{name} restarts: {type(error).__name__}")
            await client.clock.sleep(0.5)
        await consumer.close()
        await producer.close(timeout=5)
