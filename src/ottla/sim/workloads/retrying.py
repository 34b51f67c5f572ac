"""A group that hands records back, some of them repeatedly, until it is done with them or they are dead letters."""

import asyncio
import zlib
from typing import Final

from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import RETRY_ATTEMPT, RETRY_REASON, RETRY_REJECT, retry_topic
from ottla.sim.queue_history import GROUP, JOBS, REDELIVERED, REJECTED, Owed, retry_name
from ottla.sim.simulated_world import SimulatedWorld

BACKOFF_MS: Final = 400
JITTER: Final = 0.2
ATTEMPTS_MAX: Final = 2
RETRY_CONFIGS: Final = {
    "ottla.retry.enable": "true",
    "ottla.retry.backoff.ms": str(BACKOFF_MS),
    "ottla.retry.backoff.jitter": str(JITTER),
    "ottla.retry.max.attempts": str(ATTEMPTS_MAX),
}
Headers = list[tuple[str, bytes | None]]


async def hand_back(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """Hands new records back until the faults end; a producer that fails is replaced by another."""
    client, random = world.client(name), world.random.fork()
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=20_000, max_block_ms=10_000)
        await producer.start()
        is_well = True
        while is_well and not world.is_over:
            if not world.is_calm:
                value = f"job {name}/{next(world.numbers[f'{name} jobs'])}".encode()
                is_well = await _hand_back(world, producer, value, 1, random.randrange(partitions), [])
            await client.clock.sleep(pause_seconds * random.random() * 2)
        await producer.close(timeout=5)


async def work(world: SimulatedWorld, name: str, partitions: int) -> None:
    """Reads what returns, and hands most of it back once more; not to be killed, since it remembers what it did."""
    client, history = world.client(name), world.history
    places = [TopicPartition(REDELIVERED, index) for index in range(partitions)]
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=20_000, max_block_ms=10_000)
        consumer = client.consumer(auto_offset_reset="none", default_api_timeout_ms=10_000)
        await producer.start()
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        try:
            while not world.is_over:
                for place, records in (await consumer.poll(timeout_ms=500)).items():
                    for record in records:
                        attempt = int(dict(record.headers)[RETRY_ATTEMPT] or b"0")
                        again = retry_name(record.value, attempt + 1)
                        if again in history.queues.handed_back:
                            continue
                        history.queues.handed_back.add(again)
                        if zlib.crc32(again) % 3 > 0:
                            await _hand_back(
                                world, producer, record.value, attempt + 1, place.partition, list(record.headers)
                            )
                await asyncio.sleep(0.1)
        except OttlaError as error:
            history.note(f"{name} restarts: {type(error).__name__}")
            await client.clock.sleep(0.5)
        await consumer.close()
        await producer.close(timeout=5)


async def _hand_back(
    world: SimulatedWorld, producer: AsyncProducer, value: bytes, attempt: int, partition: int, headers: Headers
) -> bool:
    is_rejected = zlib.crc32(value) % 7 == 0
    is_dead = is_rejected or attempt > ATTEMPTS_MAX
    where = TopicPartition(retry_topic(JOBS, GROUP), partition)
    owed = Owed(
        name=retry_name(value, attempt),
        sink=REJECTED if is_dead else REDELIVERED,
        parked_in=where,
        sent_at=world.loop.time(),
        delay_ms=0 if is_dead else int((BACKOFF_MS << (attempt - 1)) * (1 - JITTER)) - 1,
    )
    world.history.queues.owed[owed.name] = owed
    reasons: Headers = [(RETRY_REASON, b"simulated")]
    if is_rejected:
        reasons.append((RETRY_REJECT, b"not wanted"))
    try:
        metadata = await producer.send_and_wait(where.topic, value, headers=[*headers, *reasons], partition=partition)
    except OttlaError as error:
        world.history.note(f"{owed.name.decode()} is not acknowledged: {type(error).__name__}")
        return False
    owed.outcome, owed.acked_at, owed.offset = "arrives", world.loop.time(), metadata.offset
    return True
