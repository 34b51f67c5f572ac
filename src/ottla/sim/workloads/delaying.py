"""Programs that send delayed records, name some of them, and cancel or replace these; with transactions or without."""

import asyncio
from collections.abc import Sequence
from functools import partial

from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.model.queue_names import (
    DELAY_CANCEL,
    DELAY_ID,
    DELAY_MS,
    DELAY_REPLACE,
    DELIVER_AT_MS,
    delayed_topic,
)
from ottla.sim.clients import ClientMachine
from ottla.sim.queue_history import ORDERS, Owed
from ottla.sim.random import SimRandom
from ottla.sim.simulated_world import SimulatedWorld

IN_FLIGHT_MAX = 6
RECORDS_MAX = 4
DELAY_MAX_MS = 6_000
LONG_DELAY_MS = 30_000
"""Longer than the faults last: due when the topic has grown, if it grows at all."""
TICK_MS = 500
"""Due times are rounded to this, so that several records are due in the same millisecond."""
Header = tuple[str, bytes]


class _Author:
    """Makes up records, and remembers those that have an id and can be cancelled."""

    def __init__(self, world: SimulatedWorld, client: ClientMachine, name: str, partitions: int) -> None:
        self._world = world
        self._clock = client.clock
        self._name = name
        self._partitions = partitions
        self._random = world.random.fork()

    @property
    def random(self) -> SimRandom:
        """For other choices."""
        return self._random

    def new(self, *, replaced: Owed | None = None, transaction: str | None = None) -> tuple[Owed, list[Header]]:
        """A record, with the headers to send."""
        world, random = self._world, self._random
        number = next(world.numbers[f"{self._name} delayed"])
        headers: list[Header] = []
        draw = random.random()
        at_ms, delay_ms = None, 0
        span = LONG_DELAY_MS if random.random() < 0.1 else random.randrange(DELAY_MAX_MS)
        if draw < 0.5:
            at_ms = (self._clock.now_ms() + span) // TICK_MS * TICK_MS
            headers.append((DELIVER_AT_MS, b"%d" % at_ms))
        elif draw < 0.95:
            delay_ms = span
            headers.append((DELAY_MS, b"%d" % delay_ms))
        id = replaced.id if replaced is not None else None
        if id is None and random.random() < 0.4:
            id = f"{self._name}-{number}".encode()
        if id is not None:
            headers.append((DELAY_ID, id))
        if replaced is not None:
            headers.append((DELAY_REPLACE, b"true"))
        partition = replaced.parked_in.partition if replaced is not None else random.randrange(self._partitions)
        owed = Owed(
            name=f"delayed {self._name}/{number}".encode(),
            sink=ORDERS,
            parked_in=TopicPartition(delayed_topic(ORDERS), partition),
            sent_at=world.loop.time(),
            delay_ms=delay_ms,
            at_ms=at_ms,
            key=b"%d" % random.randrange(50) if random.random() < 0.7 else None,
            id=id,
            transaction=transaction,
        )
        world.history.queues.owed[owed.name] = owed
        return owed, headers

    def cancellable(self) -> Owed | None:
        """A record of this program that is written, and was not cancelled or replaced."""
        found = [
            each
            for each in self._world.history.queues.owed.values()
            if each.id is not None and each.id.startswith(self._name.encode() + b"-") and each.must_arrive
        ]
        # Not one whose replacement may have been written, too.
        found = [each for each in found if not any(self._is_unclear(other, each) for other in self._of(each))]
        return found[self._random.randrange(len(found))] if found else None

    def _of(self, owed: Owed) -> Sequence[Owed]:
        return [each for each in self._world.history.queues.owed.values() if each.id == owed.id]

    @staticmethod
    def _is_unclear(other: Owed, owed: Owed) -> bool:
        return other is not owed and (other.outcome == "unknown" or other.may_be_cancelled)


async def delay(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """Sends delayed records until the run is over; a producer that fails is replaced by another."""
    client, history = world.client(name), world.history
    author = _Author(world, client, name, partitions)
    random = author.random
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=20_000, linger_ms=random.randrange(3) * 5, max_block_ms=10_000)
        await producer.start()
        waiting: list[asyncio.Task[bool]] = []
        is_well = True
        while is_well and not world.is_over:
            draw = random.random()
            victim = author.cancellable() if draw < 0.2 else None
            if world.is_calm and victim is None:
                # Records that are due late would only prolong the end.
                await client.clock.sleep(0.5)
            elif victim is not None and draw < 0.12:
                is_well = await _cancel(world, producer, victim)
            else:
                if victim is not None:
                    victim.may_be_cancelled = True
                owed, headers = author.new(replaced=victim)
                sending = partial(_send, world, producer, owed, headers, victim)
                waiting.append(asyncio.create_task(sending()))
            while len(waiting) >= IN_FLIGHT_MAX or (victim is not None and waiting):
                is_well = await waiting.pop(0) and is_well
            await client.clock.sleep(pause_seconds * random.random() * 2)
        for task in waiting:
            await task
        await producer.close(timeout=5)
    history.note(f"{name} ends")


async def _send(
    world: SimulatedWorld, producer: AsyncProducer, owed: Owed, headers: list[Header], replaced: Owed | None = None
) -> bool:
    where = owed.parked_in
    try:
        delivery = await producer.send(where.topic, owed.name, key=owed.key, headers=headers, partition=where.partition)
        owed.offset = (await delivery).offset
    except OttlaError as error:
        world.history.note(f"{owed.name.decode()} is not acknowledged: {type(error).__name__}")
        return False
    owed.outcome, owed.acked_at = "arrives", world.loop.time()
    if replaced is not None:
        replaced.cancelled_at, replaced.may_be_cancelled = world.loop.time(), False
    return True


async def _cancel(world: SimulatedWorld, producer: AsyncProducer, victim: Owed) -> bool:
    victim.may_be_cancelled = True
    where = victim.parked_in
    try:
        await producer.send_and_wait(
            where.topic, None, key=victim.key, headers=[(DELAY_CANCEL, victim.id or b"")], partition=where.partition
        )
    except OttlaError as error:
        world.history.note(f"cancel of {victim.name.decode()} is not acknowledged: {type(error).__name__}")
        return False
    victim.cancelled_at, victim.may_be_cancelled = world.loop.time(), False
    world.history.note(f"{victim.name.decode()} is cancelled")
    return True


async def delay_in_transactions(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """Sends delayed records and cancels in transactions, and commits or aborts these."""
    client, history = world.client(name), world.history
    author = _Author(world, client, name, partitions)
    random = author.random
    while not world.is_over:
        producer = client.producer(
            transactional_id=name, transaction_timeout_ms=10_000, delivery_timeout_ms=15_000, max_block_ms=10_000
        )
        await producer.start()
        try:
            await producer.init_transactions()
            while not world.is_over:
                if world.is_calm:
                    await client.clock.sleep(0.5)
                    continue
                transaction = f"{name}/{next(world.numbers[name])}"
                made = [author.new(transaction=transaction) for _ in range(1 + random.randrange(RECORDS_MAX))]
                victim = author.cancellable() if random.random() < 0.3 else None
                await _carry_out(world, producer, made, victim, commits=random.random() < 0.7)
                await client.clock.sleep(pause_seconds * random.random() * 2)
        except OttlaError as error:
            history.note(f"{name} restarts: {type(error).__name__}")
            await client.clock.sleep(0.2)
        try:
            await producer.close(timeout=5)
        except OttlaError as error:
            history.note(f"{name} cannot close: {type(error).__name__}")


async def _carry_out(
    world: SimulatedWorld,
    producer: AsyncProducer,
    made: Sequence[tuple[Owed, list[Header]]],
    victim: Owed | None,
    *,
    commits: bool,
) -> None:
    producer.begin_transaction()
    for owed, headers in made:
        where = owed.parked_in
        await producer.send(where.topic, owed.name, key=owed.key, headers=headers, partition=where.partition)
    if victim is not None:
        victim.may_be_cancelled = True
        where = victim.parked_in
        await producer.send(
            where.topic, None, key=victim.key, headers=[(DELAY_CANCEL, victim.id or b"")], partition=where.partition
        )
    if commits:
        await producer.commit_transaction()
        outcome = "arrives"
        if victim is not None:
            victim.cancelled_at = world.loop.time()
            victim.is_cancel_transactional = True
    else:
        await producer.flush()
        await producer.abort_transaction()
        outcome = "aborted"
    if victim is not None:
        victim.may_be_cancelled = False
    for owed, _ in made:
        owed.outcome, owed.acked_at = outcome, world.loop.time()
