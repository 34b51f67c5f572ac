"""The standard run: a seed chooses workloads and faults; safety is checked throughout, progress after healing."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.client.admin.values import NewTopic
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.checkers import Contents, all_checkers
from ottla.sim.fault_injector import FaultInjector
from ottla.sim.losses import ROLL_MS, Losses
from ottla.sim.queue_history import Arrival
from ottla.sim.queue_work import QUEUE_WORKS, QueueWork
from ottla.sim.random import SimRandom
from ottla.sim.shares.work import ShareWork
from ottla.sim.simulated_world import Program, SimulatedWorld, chosen
from ottla.sim.workloads.administering import DEEDS, administer
from ottla.sim.workloads.copying import copy
from ottla.sim.workloads.producing import produce
from ottla.sim.workloads.reading import Isolation, read
from ottla.sim.workloads.sharing import Group
from ottla.sim.workloads.transacting import transact

EVENTS: Final = "events"
PAYMENTS: Final = "payments"
COPIES: Final = "copies"
PARTITIONS: Final = 2
TOPICS: Final = (EVENTS, PAYMENTS, COPIES)
DANGER_SECONDS: Final = 20.0
HEALING_SECONDS: Final = 60.0
DELAYS_MS: Final = (2.0, 10.0, 40.0)
"""Network delays without a fault; the seed chooses."""
RARELY: Final = 0x5EED0F0DD
"""Rare faults have a separate random generator, so that runs without them do not change."""
BY_LOSS: Final = 0x105535EED
"""Losses have a separate random generator, too."""
BY_QUEUE: Final = 0x90E0E5EED
"""And so have queues."""
BY_SHARE: Final = 0x5A4E5EED
"""And share groups."""
SHARES_SHARE: Final = 0.3
"""The share of runs without losses and queues that have a share group."""
QUEUES_SHARE: Final = 0.3
"""The share of runs without losses whose clients use queues."""
LOSSES_SHARE: Final = 0.4
"""The share of runs with losses of disks or the metadata store."""
FLUSHED_SHARE: Final = 0.1
"""The share of runs on clusters that sync before they acknowledge."""
WORKLOADS: Final = ("transact", "copy", "classic group", "consumer group", "administer")


LOSS_DANGERS: Final = ("kill", "slow link", "clock jump", "lossy network")
"""Together with losses: few enough that replicas are intact in between."""


QUEUE_DANGERS: Final = (
    "kill", "restart", "freeze", "isolate", "cut", "expire session", "breaking connections", "slow link", "kill client",
)  # fmt: skip
"""What moves leaders of queues and of their sinks, and interrupts what is sent."""

OWING_WORKS: Final = ("delay", "delay in transactions", "grow", "retry", "expire")
"""All but half messages, which have a scenario of their own, and instructions by offset."""
INSTRUCTED_WORKS: Final = (*OWING_WORKS, "instruct", "instruct in transactions")


SHARE_DANGERS: Final = (*QUEUE_DANGERS, "clients cut off", "lossy network")
"""What moves leaders of share-partitions and their coordinators, and what takes sessions from members."""


class Scenario(NamedTuple):
    """What a run consists of; None leaves it to the seed."""

    faults: tuple[str, ...] | None = None
    works: tuple[str, ...] | None = None
    is_flushed: bool = False
    losses: tuple[str, ...] | None = ()
    queues: tuple[str, ...] | None = ()
    has_shares: bool | None = False


SCENARIOS: Final = {
    "swarm": Scenario(losses=None, queues=None, has_shares=None),
    "lossless": Scenario(),
    "failover": Scenario(("kill", "isolate", "freeze", "slow link", "cut"), ()),
    "sessions": Scenario(("cut from store", "expire session", "freeze", "slow link", "isolate"), ()),
    "power": Scenario(("crash", "kill", "slow link"), ()),
    "retries": Scenario(("breaking connections", "kill", "slow link"), ()),
    "transactions": Scenario(("kill", "restart", "breaking connections", "slow link"), ("transact",)),
    "markers": Scenario(("kill", "freeze", "isolate", "slow link"), ("transact",)),
    "groups": Scenario(("kill", "restart", "slow link"), ("classic group",)),
    "rot": Scenario(("rotten bit", "kill", "slow disk", "isolate"), ("transact", "classic group")),
    "clocks": Scenario(("long clock jump", "clock drift", "kill"), ("transact", "classic group", "consumer group")),
    "writers": Scenario(("kill client", "kill", "breaking connections"), ("transact", "copy")),
    "folders": Scenario(LOSS_DANGERS, (), losses=("lost folder", "loss while all are down")),
    "holes": Scenario(LOSS_DANGERS, (), losses=("lost segment", "cut log", "loss while all are down")),
    "damage": Scenario(LOSS_DANGERS, (), losses=("damaged segment", "loss while all are down")),
    "stores": Scenario(("expire session", "slow link"), ("administer",), losses=("older store", "empty store")),
    "blackouts": Scenario(("blackout", "kill", "slow disk", "crash"), ("transact",), is_flushed=True),
    "queues": Scenario(QUEUE_DANGERS, (), queues=OWING_WORKS),
    "queue clocks": Scenario(("clock jump", "long clock jump", "clock drift", "kill"), (), queues=OWING_WORKS),
    "queue power": Scenario(("crash", "kill", "full disk", "failing sync", "slow disk"), (), queues=OWING_WORKS),
    "queue blackouts": Scenario(("blackout", "kill", "crash"), (), is_flushed=True, queues=OWING_WORKS),
    "queue swarm": Scenario(queues=OWING_WORKS),
    "queue instructions": Scenario(queues=INSTRUCTED_WORKS),
    "slow queues": Scenario(("slow disk", "long clock jump", "clock jump", "kill"), (), queues=INSTRUCTED_WORKS),
    "refusals": Scenario(QUEUE_DANGERS, (), queues=("delay", "refuse")),
    "halves": Scenario(QUEUE_DANGERS, (), queues=("delay", "halve")),
    "shares": Scenario(SHARE_DANGERS, (), has_shares=True),
    "share failover": Scenario(("kill", "freeze", "isolate", "cut"), (), has_shares=True),
    "share power": Scenario(("crash", "kill", "full disk", "failing sync", "slow disk"), (), has_shares=True),
    "share clocks": Scenario(("clock jump", "long clock jump", "clock drift", "kill"), (), has_shares=True),
    "share swarm": Scenario(losses=None, has_shares=True),
}
"""By name; `swarm` is what seeds are run with, the others look closer at one thing."""


async def live(world: SimulatedWorld, scenario: str = "swarm") -> None:
    """One whole run; what was wrong with it is in its history."""
    faults, works, is_flushed, lost, queued, has_shares = SCENARIOS[scenario]
    world.wire.usual_delay_ms = DELAYS_MS[world.random.randrange(len(DELAYS_MS))]
    world.checkers.extend(all_checkers())
    rare = SimRandom(world.seed ^ RARELY)
    if is_flushed or (faults is None and rare.random() < FLUSHED_SHARE):
        world.flush_each()
    by_loss = SimRandom(world.seed ^ BY_LOSS)
    if lost is None and by_loss.random() >= LOSSES_SHARE:
        lost = ()
    losses = None if lost == () else Losses(world, by_loss, None if lost is None else list(lost))
    if losses is not None:
        for machine in world.machines:
            machine.settings["log.roll.ms"] = ROLL_MS
    queues = None if losses is not None else _queues(world, queued)
    if has_shares is None and (losses is not None or queues is not None):
        has_shares = False
    shares = _shares(world, has_shares)
    world.boot()
    if not await world.wait_until(world.has_begun, HEALING_SECONDS):
        world.history.violated("progress", "the brokers do not start")
        return
    if not await _make_topics(world, queues, shares):
        return
    groups = _begin_work(world, list(works) if works is not None else chosen(world.random.fork(), WORKLOADS, 0.4))
    if queues is not None:
        queues.begin()
    if shares is not None:
        shares.begin()
    world.run_beside(FaultInjector(world, rare, None if faults is None else list(faults)).run())
    if losses is not None:
        world.run_beside(losses.run())
    await asyncio.sleep(DANGER_SECONDS)
    world.heal()
    if await _has_progress(world, groups) and await _is_shared_out(world, shares):
        world.is_over = True
        await _end_work(world)
        await _finish(world, queues, [] if shares is None else shares.partitions)
    world.history.note(f"end after {world.loop.steps} steps")


def _queues(world: SimulatedWorld, works: tuple[str, ...] | None) -> QueueWork | None:
    """What the clients do with queues, if they use any; None leaves it to the seed."""
    if works is None:
        random = SimRandom(world.seed ^ BY_QUEUE)
        works = tuple(chosen(random, QUEUE_WORKS, 0.6)) if random.random() < QUEUES_SHARE else ()
    return QueueWork(world, works) if works else None


def _shares(world: SimulatedWorld, has_shares: bool | None) -> ShareWork | None:
    """The run's share group, if it has one; None leaves it to the seed."""
    random = SimRandom(world.seed ^ BY_SHARE)
    if has_shares is None:
        has_shares = random.random() < SHARES_SHARE
    return ShareWork(world, random) if has_shares else None


async def _make_topics(world: SimulatedWorld, queues: QueueWork | None, shares: ShareWork | None) -> bool:
    async def make() -> None:
        admin = world.client("admin").admin()
        queued = [] if queues is None else queues.topics()
        shared = [] if shares is None else shares.topics()
        await admin.create_topics([*(NewTopic(topic, PARTITIONS, 3) for topic in TOPICS), *queued, *shared])
        if shares is not None:
            await admin.alter_configs(shares.configs())
        await admin.close()

    _, task = world.spawn("admin", make())
    await asyncio.wait([task])
    if (error := task.exception()) is not None:
        world.history.violated("progress", f"topics cannot be created: {error!r}")
    return error is None


def _begin_work(world: SimulatedWorld, works: list[str]) -> list[Group]:
    history = world.history
    history.note(f"works: {', '.join(works)}")
    groups: list[Group] = []
    every = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)]

    def begin(name: str, program: Callable[..., Coroutine[Any, Any, None]], *args: Any, mortal: bool = False) -> None:
        world.begin(name, partial(program, world, name, *args), may_be_killed=mortal)

    for number in (1, 2):
        begin(f"producer-{number}", produce, EVENTS, PARTITIONS, 0.2, mortal=True)
    begin("reader-1", read, every, "read_uncommitted")
    if "transact" in works:
        for number in (1, 2):
            begin(f"payer-{number}", transact, PAYMENTS, PARTITIONS, 0.4, mortal=True)
        begin("reader-2", read, every, "read_committed")
    if "copy" in works:
        begin("copier", copy, EVENTS, COPIES, PARTITIONS, mortal=True)
    if "classic group" in works:
        groups.append(Group(world, "classics", EVENTS, 3, "classic"))
    if "consumer group" in works:
        groups.append(Group(world, "moderns", EVENTS, 2, "consumer"))
    if "administer" in works:
        begin("keeper", administer, list(TOPICS), chosen(world.random.fork(), DEEDS, 0.6))
    for group in groups:
        world.programs[group.name] = Program(None, world.run_beside(group.run()), group.run, may_be_killed=False)
    return groups


async def _has_progress(world: SimulatedWorld, groups: list[Group]) -> bool:
    """Demands what a healed cluster must do again: sync, elect, accept, share."""
    history = world.history
    if not await world.wait_until(world.is_manned, HEALING_SECONDS):
        history.violated("progress", "a killed client was not replaced")
        return False
    if not await world.wait_until(world.is_whole, HEALING_SECONDS):
        history.violated("progress", f"the cluster is unhealthy after {HEALING_SECONDS:g} s: {_what_is_missing(world)}")
        return False
    world.whole_at = world.loop.time()
    history.checks += 1
    _, probe = world.spawn("probe", _probe(world))
    await asyncio.wait([probe], timeout=HEALING_SECONDS)
    if not probe.done() or probe.exception() is not None:
        history.violated("progress", f"a partition cannot be written to: {probe!r}")
        return False
    history.checks += 1
    for group in groups:
        if not await world.wait_until(partial(_is_shared, group), HEALING_SECONDS):
            history.violated("progress", f"group {group.name} does not share its topic: {sorted(group.owned)}")
            return False
        history.checks += 1
    return True


async def _is_shared_out(world: SimulatedWorld, shares: ShareWork | None) -> bool:
    """Demands that the share group gets done with all records."""
    if shares is None:
        return True
    is_done = await shares.wait_done(HEALING_SECONDS)
    world.history.check(is_done, "progress", f"the share group is not done: {'; '.join(shares.missing())}")
    return is_done


def _is_shared(group: Group) -> bool:
    owned = [each for some in group.owned.values() for each in some]
    return sorted(owned) == [TopicPartition(group.topic, index) for index in range(PARTITIONS)]


def _what_is_missing(world: SimulatedWorld) -> str:
    away = [each.host for each in world.machines if not each.is_serving]
    behind = [
        f"{topic.name}-{index} leader {partition.leader} isr {list(partition.isr)} of {list(partition.replicas)}"
        for topic in world.truth().topics.values()
        for index, partition in enumerate(topic.partitions)
        if set(partition.isr) != set(partition.replicas) or partition.leader not in partition.isr
    ]
    return "; ".join([*away, *behind])


async def _probe(world: SimulatedWorld) -> None:
    producer = world.client("probe").producer(delivery_timeout_ms=int(HEALING_SECONDS * 1000))
    await producer.start()
    for topic in TOPICS:
        for index in range(PARTITIONS):
            value = f"probe {topic}:{index + 1}".encode()
            metadata = await producer.send_and_wait(topic, value, partition=index)
            world.history.on_acked(TopicPartition(topic, index), value, metadata.offset)
    await producer.close()


async def _end_work(world: SimulatedWorld) -> None:
    tasks = {name: program.task for name, program in world.programs.items()}
    await asyncio.wait(tasks.values(), timeout=HEALING_SECONDS)
    late = [name for name, task in tasks.items() if not task.done()]
    if late:
        world.history.violated("progress", f"clients do not stop: {', '.join(late)}")
    for task in tasks.values():
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            world.history.violated("nothing unexpected", f"a client failed: {error!r}")


def _is_decided(world: SimulatedWorld) -> bool:
    """Whether no transaction is open anywhere."""
    return all(
        partition.last_stable_offset == partition.high_watermark
        for machine in world.machines
        if machine.broker is not None
        for partition in machine.broker.partitions
        if partition.leader is not None and partition.topic in TOPICS
    )


async def _finish(world: SimulatedWorld, queues: QueueWork | None, shared: list[TopicPartition]) -> None:
    """Reads everything back, and lets the checkers look at it."""
    found: dict[str, dict[TopicPartition, list[tuple[int, bytes]]]] = {}

    async def read_back(isolation: Isolation) -> None:
        client = world.client("auditor")
        partitions = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)] + shared
        consumer = client.consumer(isolation_level=isolation, auto_offset_reset="none")
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        ends = await consumer.end_offsets(partitions)
        records: dict[TopicPartition, list[tuple[int, bytes]]] = {each: [] for each in partitions}
        while any([await consumer.position(each) < ends[each] for each in partitions]):
            for partition, some in (await consumer.poll(timeout_ms=1000)).items():
                records[partition] += [(record.offset, record.value) for record in some]
        found[isolation] = records
        await consumer.close()

    isolations: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
    for isolation in isolations:
        if isolation == "read_committed":
            # A transaction that was left open is aborted when its time is up.
            is_decided = await world.wait_until(lambda: _is_decided(world), HEALING_SECONDS)
            world.history.check(is_decided, "progress", "a transaction stays open and hides later records")
        _, task = world.spawn(f"auditor {isolation}", read_back(isolation))
        await asyncio.wait([task], timeout=HEALING_SECONDS)
        if not task.done():
            world.history.violated("progress", f"not everything can be read back as {isolation}")
            return
        try:
            task.result()
        except OttlaError as error:
            world.history.violated("progress", f"reading back as {isolation} failed: {error}")
            return
    contents = Contents(everything=found["read_uncommitted"], committed=found["read_committed"])
    if queues is not None:
        await queues.settle()
        read = await _read_queues(world, queues)
        if read is None:
            return
        contents = replace(contents, arrivals=read[0], everything={**contents.everything, **read[1]}, read_ms=read[2])
    for checker in world.checkers:
        checker.finish(world, contents)


async def _read_queues(
    world: SimulatedWorld, queues: QueueWork
) -> tuple[list[Arrival], dict[TopicPartition, list[tuple[int, bytes]]], int] | None:
    """What queues delivered, what has not expired, and when that was read; None if it cannot be read."""
    found: list[tuple[list[Arrival], dict[TopicPartition, list[tuple[int, bytes]]]]] = []

    async def read_back() -> None:
        found.append(await queues.read_back())

    _, task = world.spawn("queue auditor", read_back())
    await asyncio.wait([task], timeout=HEALING_SECONDS)
    if not task.done() or task.exception() is not None:
        world.history.violated("progress", f"what queues delivered cannot be read back: {task!r}")
        return None
    return (*found[0], max(machine.clock.now_ms() for machine in world.machines))
