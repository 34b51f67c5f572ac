"""Programs that send records with a TTL, and readers that begin again and again: each must see no expired record.

Expired records are owed to the dead-letter topic.
"""

from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import TTL_MS
from ottla.sim.clock import START_MS
from ottla.sim.queue_history import EXPIRED, OFFERS, Owed
from ottla.sim.simulated_world import SimulatedWorld

TTL_MAX_MS = 4_000
FOREVER_MS = 1 << 62
SEEN = "expired records are not seen"
TTL_CONFIGS = {"ottla.ttl.enable": "true", "errors.deadletterqueue.topic.name": EXPIRED}


async def offer(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """Sends records, most of them with a TTL, until the run is over."""
    client, history, random = world.client(name), world.history, world.random.fork()
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=20_000, linger_ms=random.randrange(3) * 20, max_block_ms=10_000)
        await producer.start()
        is_well = True
        while is_well and not world.is_over:
            where = TopicPartition(OFFERS, random.randrange(partitions))
            deliveries = []
            try:
                for _ in range(1 + random.randrange(3)):
                    value = f"offer {name}/{next(world.numbers[f'{name} offers'])}".encode()
                    ttl_ms = random.randrange(TTL_MAX_MS) if random.random() < 0.7 else None
                    now_ms = client.clock.now_ms()
                    history.queues.expiry_ms[value] = FOREVER_MS if ttl_ms is None else now_ms + ttl_ms
                    if ttl_ms is not None:
                        history.queues.owed[value] = Owed(
                            name=value, sink=EXPIRED, parked_in=where, sent_at=world.loop.time(), at_ms=now_ms + ttl_ms
                        )
                    headers = [] if ttl_ms is None else [(TTL_MS, b"%d" % ttl_ms)]
                    sent = await producer.send(
                        OFFERS, value, headers=headers, partition=where.partition, timestamp_ms=now_ms
                    )
                    deliveries.append((value, sent))
                for value, sent in deliveries:
                    metadata = await sent
                    history.note(f"{value.decode()} is at {where} {metadata.offset}")
                    history.queues.offers_acked[value] = (where, metadata.offset)
                    if value in history.queues.owed:
                        history.queues.owed[value].outcome = "arrives"
            except OttlaError as error:
                history.note(f"{name} cannot send: {type(error).__name__}")
                is_well = False
            await client.clock.sleep(pause_seconds * random.random() * 2)
        await producer.close(timeout=5)


async def browse(world: SimulatedWorld, name: str, partitions: int) -> None:
    """Reads everything from the beginning with a new consumer each time, until the run is over.

    What a new consumer gets was read from the log after it began, so that its records were not expired by then.
    """
    client, history = world.client(name), world.history
    places = [TopicPartition(OFFERS, index) for index in range(partitions)]
    while not world.is_over:
        consumer = client.consumer(auto_offset_reset="none", default_api_timeout_ms=10_000)
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        began_at = world.loop.time()
        try:
            ends = await consumer.end_offsets(places)
            while not world.is_over and any([await consumer.position(each) < ends[each] for each in places]):
                for place, records in (await consumer.poll(timeout_ms=500)).items():
                    for record in records:
                        check_unexpired(world, record.value, began_at, f"{name} at {place} {record.offset}")
        except OttlaError as error:
            history.note(f"{name} restarts: {type(error).__name__}")
        await consumer.close()
        await client.clock.sleep(0.7)


def check_unexpired(world: SimulatedWorld, value: bytes, began_at: float, where: str) -> None:
    """A consumer that began at this time got the record: some broker's clock must have been before its expiry."""
    least = min(machine.clock.leads_ms(began_at)[0] for machine in world.machines)
    expiry_ms = world.history.queues.expiry_ms[value]
    began_ms = START_MS + int(began_at * 1000) + least
    world.history.check(
        expiry_ms > began_ms, SEEN, f"{value.decode()} expired {began_ms - expiry_ms} ms before {where} began to read"
    )
