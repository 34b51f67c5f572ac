"""Operators cancel or release parked records by their offset, as `ottla queues` does; with transactions or without."""

from collections.abc import Sequence

from ottla.client.producer.async_producer import AsyncProducer
from ottla.client.producer.batching.deliveries import AsyncDelivery
from ottla.model.errors import OttlaError
from ottla.model.queue_names import CANCEL, RELEASE
from ottla.sim.queue_history import Owed
from ottla.sim.random import SimRandom
from ottla.sim.simulated_world import SimulatedWorld

INSTRUCTED_MAX = 3
"""Records of one command."""
ANY_SHARE = 0.15
"""The share of instructions about any record: most of these are delivered already."""


class _Instruction:
    """One instruction, and what is known about its record because of it."""

    def __init__(self, world: SimulatedWorld, owed: Owed, offset: int, header: str) -> None:
        self._world = world
        self._owed = owed
        self._offset = offset
        self._header = header
        if header == CANCEL:
            owed.may_be_cancelled = True
        elif owed.released_at is None:
            owed.released_at = world.loop.time()

    async def send(self, producer: AsyncProducer) -> AsyncDelivery:
        """Sends it, without waiting for the acknowledgement."""
        where = self._owed.parked_in
        headers = [(self._header, b"%d" % self._offset)]
        return await producer.send(where.topic, None, headers=headers, partition=where.partition)

    def on_written(self, *, is_transactional: bool) -> None:
        """It was acknowledged or committed."""
        owed, now = self._owed, self._world.loop.time()
        self._world.history.note(f"{self._header} of {owed.name.decode()} is acknowledged")
        if self._header == RELEASE:
            if not is_transactional:
                owed.release_acked_at = now
        else:
            owed.cancelled_at, owed.may_be_cancelled = now, False
            owed.is_cancel_transactional = is_transactional

    def on_aborted(self) -> None:
        """Its transaction was aborted."""
        if self._header == CANCEL:
            self._owed.may_be_cancelled = False
        else:
            self._owed.released_at = None


def _instructions(world: SimulatedWorld, random: SimRandom) -> list[_Instruction]:
    """What to do now, about records that no other client is about to cancel or release."""
    clocks = [each.clock for each in world.machines]
    every = [
        (each, each.offset)
        for each in world.history.queues.owed.values()
        if each.offset is not None and each.must_arrive and each.released_at is None
    ]
    parked = [(owed, offset) for owed, offset in every if owed.parked_until(clocks) > world.loop.time()]
    among = every if random.random() < ANY_SHARE else parked
    made = []
    for _ in range(1 + random.randrange(INSTRUCTED_MAX)):
        if among:
            owed, offset = among.pop(random.randrange(len(among)))
            made.append(_Instruction(world, owed, offset, CANCEL if random.random() < 0.4 else RELEASE))
    return made


async def instruct(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """Cancels and releases records until the faults end; a producer that fails is replaced by another."""
    client, random = world.client(name), world.random.fork()
    while not world.is_over:
        producer = client.producer(delivery_timeout_ms=20_000, max_block_ms=10_000)
        await producer.start()
        try:
            while not world.is_over:
                await client.clock.sleep(pause_seconds * random.random() * 2)
                made = [] if world.is_calm else _instructions(world, random)
                for each, delivery in zip(made, [await each.send(producer) for each in made], strict=True):
                    await delivery
                    each.on_written(is_transactional=False)
        except OttlaError as error:
            world.history.note(f"{name} restarts: {type(error).__name__}")
        await producer.close(timeout=5)


async def instruct_in_transactions(world: SimulatedWorld, name: str, partitions: int, pause_seconds: float) -> None:
    """The same in transactions, some of which are aborted."""
    client, random = world.client(name), world.random.fork()
    while not world.is_over:
        producer = client.producer(
            transactional_id=name, transaction_timeout_ms=10_000, delivery_timeout_ms=15_000, max_block_ms=10_000
        )
        await producer.start()
        try:
            await producer.init_transactions()
            while not world.is_over:
                await client.clock.sleep(pause_seconds * random.random() * 2)
                made = [] if world.is_calm else _instructions(world, random)
                if made:
                    await _carry_out(producer, made, commits=random.random() < 0.6)
        except OttlaError as error:
            world.history.note(f"{name} restarts: {type(error).__name__}")
            await client.clock.sleep(0.2)
        try:
            await producer.close(timeout=5)
        except OttlaError as error:
            world.history.note(f"{name} cannot close: {type(error).__name__}")


async def _carry_out(producer: AsyncProducer, made: Sequence[_Instruction], *, commits: bool) -> None:
    producer.begin_transaction()
    for each in made:
        await each.send(producer)
    if commits:
        await producer.commit_transaction()
        for each in made:
            each.on_written(is_transactional=True)
    else:
        await producer.flush()
        await producer.abort_transaction()
        for each in made:
            each.on_aborted()
