"""Short runs in which one thing goes wrong at the worst moment, each for a bug that random runs seldom show.

Three brokers, one partition, led by the first; mostly `min.insync.replicas=1`, so that what matters is who is in sync.
Each story ends with a check of what a client was told.
"""

import asyncio

from ottla.client.admin.values import NewTopic
from ottla.coordination.runtime.internal_topic import partition_of
from ottla.model.ids import TopicPartition
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.simulated_world import SimulatedWorld
from tests.simulation.test_truncation import read_all
from tests.unit.sim.ledgers import TOPIC, write

PARTITION = TopicPartition(TOPIC, 0)


async def begin(world: SimulatedWorld, replicas: int = 3, min_in_sync: int = 1) -> list[Machine]:
    """The brokers, and the partition on so many of them."""
    world.boot()
    await world.wait_until(world.has_begun, 20)

    async def create() -> None:
        admin = world.client("admin").admin()
        configs = {"min.insync.replicas": str(min_in_sync)}
        where = {0: list(range(1, replicas + 1))}
        await admin.create_topics([NewTopic(TOPIC, replica_assignments=where, topic_configs=configs)])
        await admin.close()

    await asyncio.wait([world.spawn("admin", create())[1]])
    return world.machines


def end_of(machine: Machine) -> int:
    """The end of a broker's copy; -1 without one."""
    found = None if machine.broker is None else machine.broker.partitions.held.get(PARTITION)
    return -1 if found is None else found.end_offset


def leader(world: SimulatedWorld) -> int:
    return world.truth().topics[TOPIC].partitions[0].leader


def isr(world: SimulatedWorld) -> set[int]:
    return set(world.truth().topics[TOPIC].partitions[0].isr)


def kill(world: SimulatedWorld, machine: Machine) -> None:
    """Kills a broker, and nobody needs to wait until its session is over."""
    token = _token(machine)
    machine.kill()
    world.ensemble.expire(token)


def lose_power(world: SimulatedWorld, machine: Machine) -> None:
    """Cuts a machine's power and starts it again; it need not wait until its former session is over."""
    token = _token(machine)
    machine.crash()
    world.ensemble.expire(token)
    machine.boot()


def _token(machine: Machine) -> str:
    assert machine.store is not None
    assert machine.store.session is not None
    return machine.store.session.token


def part(world: SimulatedWorld, one: Machine, other: Machine) -> None:
    world.wire.cut(one.host, other.host)
    world.wire.cut(other.host, one.host)


async def all_is_there(world: SimulatedWorld, *values: bytes) -> None:
    """What was acknowledged can be read, when everybody is back."""
    world.heal()
    await world.wait_until(world.is_whole, 60)
    world.history.check(
        list(values) == await read_all(world), "acked records survive", f"not all are there: {values!r}"
    )


async def who_is_late_is_not_in_sync(world: SimulatedWorld) -> None:
    """A follower that was away returns over a slow line, and the leader is killed as soon as it counts as in sync."""
    first, second, _ = await begin(world, replicas=2)
    await write(world, b"one")
    kill(world, second)
    await world.wait_until(lambda: isr(world) == {1}, 30)
    await write(world, b"two")
    await write(world, b"three")
    world.wire.slow(first.host, second.host, 400)
    second.boot()
    await world.wait_until(lambda: isr(world) == {1, 2}, 30)
    kill(world, first)
    await world.wait_until(lambda: leader(world) == 2, 30)
    await all_is_there(world, b"one", b"two", b"three")


async def who_lost_its_disk_is_not_in_sync(world: SimulatedWorld) -> None:
    """A follower loses power, and is back before it was missed; then the leader is killed."""
    first, second, _ = await begin(world)
    await write(world, b"one")
    await write(world, b"two")
    part(world, first, second)
    lose_power(world, second)
    await world.wait_until(lambda: second.is_serving, 1.5)
    kill(world, first)
    await world.wait_until(lambda: leader(world) in (2, 3), 30)
    await all_is_there(world, b"one", b"two")


async def a_full_disk_is_not_lost(world: SimulatedWorld) -> None:
    """A follower loses power, and the leader's disk is full before it is missed; then the follower is back alone."""
    first, second, _ = await begin(world, replicas=2, min_in_sync=2)
    await write(world, b"one")
    await write(world, b"two")
    second.crash()
    first.disk.capacity = first.disk.used_bytes()
    large = b"three" * 2_000
    writing = asyncio.create_task(write(world, large))
    await world.wait_until(lambda: leader(world) == 2, 30)
    world.history.check(leader(world) == 2, "the story is told", "the leader does not hand over")
    second.boot()
    await world.wait_until(lambda: second.is_serving, 30)
    first.disk.capacity = None
    await writing
    await all_is_there(world, b"one", b"two", large)


async def a_former_life_does_not_lead(world: SimulatedWorld) -> None:
    """A leader loses power, and is back before anybody can elect another; the record still has its name."""
    first, second, third = await begin(world)
    await write(world, b"one")
    await write(world, b"two")
    for other in (second, third):
        assert other.store is not None
        world.ensemble.cut(other.store)
    lose_power(world, first)
    await world.wait_until(lambda: False, 1.5)
    await all_is_there(world, b"one", b"two")


async def who_left_a_small_isr_may_lead(world: SimulatedWorld) -> None:
    """A follower loses power, and before it is missed the leader's session ends: the dead one is elected."""
    first, second, _ = await begin(world, replicas=2, min_in_sync=2)
    await write(world, b"one")
    second.crash()
    world.ensemble.expire(_token(first))
    await world.wait_until(lambda: leader(world) == 2, 5)
    second.boot()
    await all_is_there(world, b"one")


async def too_few_commit_nothing(world: SimulatedWorld) -> None:
    """A leader is alone, takes a record all the same, and loses power; the other one comes back."""
    first, second, _ = await begin(world, replicas=2, min_in_sync=2)
    await write(world, b"one")
    kill(world, second)
    await world.wait_until(lambda: isr(world) == {1}, 30)

    async def send() -> None:
        producer = world.client("hasty").producer(acks=1, enable_idempotence=False)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"two", partition=0)
        await producer.close()

    await asyncio.wait([world.spawn("hasty", send())[1]], timeout=30)
    seen = await read_all(world)
    lose_power(world, first)
    second.boot()
    await all_is_there(world, *seen)


async def who_differs_keeps_what_is_common(world: SimulatedWorld) -> None:
    """A follower in sync has a record that the next leader lacks, cuts it off, and has to lead at once."""
    first, second, third = await begin(world)
    await write(world, b"one")
    await world.wait_until(lambda: end_of(second) == end_of(third) == 1, 5)
    part(world, first, second)

    async def send() -> None:
        producer = world.client("hasty").producer()
        await producer.start()
        await producer.send(TOPIC, b"of the first leader", partition=0)
        await producer.flush()

    world.spawn("hasty", send())
    await world.wait_until(lambda: end_of(third) == 2, 5)
    world.client("hasty")
    for machine in world.machines:
        world.wire.cut("hasty", machine.host)
    world.wire.slow(second.host, third.host, 400)
    kill(world, first)
    await world.wait_until(lambda: leader(world) == 2 and end_of(third) < 2, 30)
    kill(world, second)
    await world.wait_until(lambda: leader(world) == 3, 30)
    world.history.check(end_of(third) >= 1, "acked records survive", "the common record is gone")


async def an_end_does_not_go_back(world: SimulatedWorld) -> None:
    """A leader tells an end that its followers have not heard of, and is killed; the next cannot reach the other."""
    first, second, third = await begin(world)
    await write(world, b"one")
    await world.wait_until(lambda: end_of(second) == end_of(third) == 1, 5)
    # They are sent the record; that it is committed they would hear with the next answer.
    told: list[int] = []

    async def ask() -> None:
        consumer = world.client("asker").consumer()
        told.append((await consumer.end_offsets([PARTITION]))[PARTITION])
        await consumer.close()

    await write(world, b"two")
    await asyncio.wait([world.spawn("asker", ask())[1]], timeout=30)
    part(world, second, third)
    kill(world, first)
    await world.wait_until(lambda: leader(world) == 2, 30)
    await asyncio.wait([world.spawn("asker", ask())[1]], timeout=30)
    world.history.check(len(told) == 2 and told[0] <= told[1], "the end never goes back", f"it was told as {told}")


async def a_restart_forgets_no_batch(world: SimulatedWorld) -> None:
    """A leader has written two batches of a producer, whose answers are lost, and is restarted; both come again."""
    first, _, _ = await begin(world, replicas=1)

    async def send() -> None:
        producer = world.client("eager").producer(delivery_timeout_ms=60_000, batch_size=1)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"one", partition=0)
        world.wire.cut(first.host, "eager")
        for value in (b"two", b"three"):
            await producer.send(TOPIC, value, partition=0)
        await producer.flush()
        await producer.close()

    sending = world.spawn("eager", send())[1]
    await world.wait_until(lambda: end_of(first) == 3, 20)
    await first.stop()
    first.boot()
    # Until the producer has given up the connection on which the answers would still come.
    await asyncio.sleep(10)
    world.wire.heal(first.host, "eager")
    await asyncio.wait([sending], timeout=90)
    world.history.check([b"one", b"two", b"three"] == await read_all(world), "no duplicates", "some are there twice")


async def an_outcome_is_safe_before_it_is_told(world: SimulatedWorld) -> None:
    """A coordinator decides to commit, alone, and is killed, and so is the producer: the next one aborts.

    Nobody may have heard of the first decision: here one of the two partitions could have.
    """
    world.boot()
    await world.wait_until(world.has_begun, 20)
    payer = world.client("payer")
    makes = world.loop.process("maker")
    producer = payer.producer(transactional_id="payer", transaction_timeout_ms=10_000)

    async def prepare() -> None:
        await producer.start()
        await producer.init_transactions()

    process, task = world.spawn("payer", prepare())
    await asyncio.wait([task], timeout=30)
    states = world.truth().topics["__transaction_state"].partitions
    coordinator = world.machines[states[partition_of("payer", len(states))].leader - 1]
    other = next(each for each in world.machines if each is not coordinator)

    async def create() -> None:
        admin = world.client("admin").admin()
        where = {0: [coordinator.id], 1: [other.id]}
        configs = {"min.insync.replicas": "1"}
        await admin.create_topics([NewTopic(TOPIC, replica_assignments=where, topic_configs=configs)])
        await admin.close()

    await asyncio.wait([makes.spawn(create())], timeout=30)

    async def pay() -> None:
        producer.begin_transaction()
        for partition in (0, 1):
            await producer.send(TOPIC, b"paid", partition=partition)
        await producer.flush()
        for machine in world.machines:
            if machine is not coordinator:
                part(world, coordinator, machine)
        await producer.commit_transaction()

    process.spawn(pay())
    await world.wait_until(lambda: False, 1.0)
    process.end()
    world.wire.end_process(process)
    kill(world, coordinator)
    # What it has sent arrives when the lines are whole again: by then others must lead.
    await asyncio.sleep(1)
    world.heal()
    await world.wait_until(world.is_whole, 60)
    # The transaction's time is up, and it is aborted.
    await asyncio.sleep(20)
    found: list[int] = []

    async def read() -> None:
        consumer = world.client("reader").consumer(auto_offset_reset="earliest", isolation_level="read_committed")
        consumer.assign([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])
        for _ in range(10):
            found.extend(each.partition for each in await consumer.poll(timeout_ms=300))
        await consumer.close()

    await asyncio.wait([world.spawn("reader", read())[1]], timeout=60)
    world.history.check(len(found) in (0, 2), "transactions are whole", f"only partition {found} has it")


async def a_lost_folder_does_not_lead(world: SimulatedWorld) -> None:
    """All brokers are killed, the leader's folder is lost, and the leader is the first to come back."""
    first, second, third = await begin(world, min_in_sync=2)
    await write(world, b"one")
    await write(world, b"two")
    await world.wait_until(lambda: {2} == {end_of(each) for each in world.machines}, 30)
    for machine in world.machines:
        kill(world, machine)
    first.disk.remove_tree(f"{DATA_DIR}/{PARTITION}")
    first.boot()
    await world.wait_until(lambda: first.is_serving, 30)
    for machine in (second, third):
        machine.boot()
    await all_is_there(world, b"one", b"two")


STORIES = {
    "marker before prepare is durable": an_outcome_is_safe_before_it_is_told,
    "restarts forget batches": a_restart_forgets_no_batch,
    "late replicas are in sync": who_is_late_is_not_in_sync,
    "dead replicas stay in sync": who_lost_its_disk_is_not_in_sync,
    "full disks are not eligible": a_full_disk_is_not_lost,
    "lost folders are not missed": a_lost_folder_does_not_lead,
    "lease ignored": a_former_life_does_not_lead,
    "truncation of everything": who_differs_keeps_what_is_common,
    "end offset goes back": an_end_does_not_go_back,
    "no replica is eligible": who_left_a_small_isr_may_lead,
    "too few commit": too_few_commit_nothing,
}
"""By the planted bug that each finds."""
