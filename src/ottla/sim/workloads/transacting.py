"""Programs that write transactions over several partitions, and commit or abort them."""

from ottla.client.producer.async_producer import AsyncProducer
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.history import Transaction
from ottla.sim.simulated_world import SimulatedWorld

RECORDS_MAX = 5


async def transact(world: SimulatedWorld, name: str, topic: str, partitions: int, pause_seconds: float) -> None:
    """One transaction after another until the run is over; after a failure another producer takes over the name."""
    client, history, random = world.client(name), world.history, world.random.fork()
    while not world.is_over:
        producer = client.producer(
            transactional_id=name, transaction_timeout_ms=10_000, delivery_timeout_ms=15_000, max_block_ms=10_000
        )
        await producer.start()
        try:
            await producer.init_transactions()
            while not world.is_over:
                transaction = Transaction(name=f"{name}/{next(world.numbers[name])}")
                history.transactions[transaction.name] = transaction
                for at in range(1 + random.randrange(RECORDS_MAX)):
                    where = TopicPartition(topic, random.randrange(partitions))
                    transaction.records.append((where, f"{transaction.name}/{at}".encode()))
                await _carry_out(producer, transaction, commits=random.random() < 0.7)
                history.note(f"{transaction.name} {transaction.outcome}")
                await client.clock.sleep(pause_seconds * random.random() * 2)
        except OttlaError as error:
            history.note(f"{name} restarts: {type(error).__name__}")
            await client.clock.sleep(0.2)
        try:
            await producer.close(timeout=5)
        except OttlaError as error:
            history.note(f"{name} cannot close: {type(error).__name__}")


async def _carry_out(producer: AsyncProducer, transaction: Transaction, *, commits: bool) -> None:
    producer.begin_transaction()
    for where, value in transaction.records:
        await producer.send(where.topic, value, partition=where.partition)
    if commits:
        await producer.commit_transaction()
        transaction.outcome = "committed"
    else:
        await producer.flush()
        await producer.abort_transaction()
        transaction.outcome = "aborted"
