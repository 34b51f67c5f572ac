"""The standard life: a seed chooses workloads and dangers; safety all along, then healing, then progress."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.client.admin.values import NewTopic
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from ottla.sim.checkers import Contents, all_checkers
from ottla.sim.dangers import Dangers
from ottla.sim.life import Life, Program, chosen
from ottla.sim.losses import ROLL_MS, Losses
from ottla.sim.random import SimRandom
from ottla.sim.workloads.administering import DEEDS, administer
from ottla.sim.workloads.copying import copy
from ottla.sim.workloads.producing import produce
from ottla.sim.workloads.reading import read
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
"""How slow the network may be without anything wrong; the seed chooses."""
RARELY: Final = 0x5EED0F0DD
"""What is rare is drawn from a generator of its own, so that lives without it are as they were without its kind."""
BY_LOSS: Final = 0x105535EED
"""Losses, too: a life without them is as it was before there were any."""
LOSSES_SHARE: Final = 0.4
"""How many lives lose something from disks or the metadata store."""
FLUSHED_SHARE: Final = 0.1
"""How many lives are on clusters that flush before they acknowledge."""
WORKLOADS: Final = ("transact", "copy", "classic group", "consumer group", "administer")


LOSS_DANGERS: Final = ("kill", "slow link", "clock jump", "lossy network")
"""Beside losses: not so many that copies are seldom whole between them."""


class Scenario(NamedTuple):
    """What a life consists of; None leaves it to the seed."""

    dangers: tuple[str, ...] | None = None
    works: tuple[str, ...] | None = None
    is_flushed: bool = False
    losses: tuple[str, ...] | None = ()


SCENARIOS: Final = {
    "swarm": Scenario(losses=None),
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
}
"""By name; `swarm` is what seeds are run with, the others look closer at one thing."""


async def live(life: Life, scenario: str = "swarm") -> None:
    """One whole life; what was wrong with it is in its history."""
    dangers, works, is_flushed, lost = SCENARIOS[scenario]
    life.wire.usual_delay_ms = DELAYS_MS[life.random.randrange(len(DELAYS_MS))]
    life.checkers.extend(all_checkers())
    rare = SimRandom(life.seed ^ RARELY)
    if is_flushed or (dangers is None and rare.random() < FLUSHED_SHARE):
        life.flush_each()
    by_loss = SimRandom(life.seed ^ BY_LOSS)
    if lost is None and by_loss.random() >= LOSSES_SHARE:
        lost = ()
    losses = None if lost == () else Losses(life, by_loss, None if lost is None else list(lost))
    if losses is not None:
        for machine in life.machines:
            machine.settings["log.roll.ms"] = ROLL_MS
    life.boot()
    if not await life.wait_until(life.has_begun, HEALING_SECONDS):
        life.history.violated("progress", "the brokers do not start")
        return
    if not await _make_topics(life):
        return
    groups = _begin_work(life, list(works) if works is not None else chosen(life.random.fork(), WORKLOADS, 0.4))
    life.run_beside(Dangers(life, rare, None if dangers is None else list(dangers)).run())
    if losses is not None:
        life.run_beside(losses.run())
    await asyncio.sleep(DANGER_SECONDS)
    life.heal()
    if await _has_progress(life, groups):
        life.is_over = True
        await _end_work(life)
        await _finish(life)
    life.history.note(f"end after {life.loop.steps} steps")


async def _make_topics(life: Life) -> bool:
    async def make() -> None:
        admin = life.client("admin").admin()
        await admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in TOPICS])
        await admin.close()

    _, task = life.spawn("admin", make())
    await asyncio.wait([task])
    if (error := task.exception()) is not None:
        life.history.violated("progress", f"topics cannot be made: {error!r}")
    return error is None


def _begin_work(life: Life, works: list[str]) -> list[Group]:
    history = life.history
    history.note(f"works: {', '.join(works)}")
    groups: list[Group] = []
    every = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)]

    def begin(name: str, program: Callable[..., Coroutine[Any, Any, None]], *args: Any, mortal: bool = False) -> None:
        life.begin(name, partial(program, life, name, *args), may_be_killed=mortal)

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
        groups.append(Group(life, "classics", EVENTS, 3, "classic"))
    if "consumer group" in works:
        groups.append(Group(life, "moderns", EVENTS, 2, "consumer"))
    if "administer" in works:
        begin("keeper", administer, list(TOPICS), chosen(life.random.fork(), DEEDS, 0.6))
    for group in groups:
        life.programs[group.name] = Program(None, life.run_beside(group.run()), group.run, may_be_killed=False)
    return groups


async def _has_progress(life: Life, groups: list[Group]) -> bool:
    """Demands what a healed cluster must do again: sync, elect, accept, share."""
    history = life.history
    if not await life.wait_until(life.is_manned, HEALING_SECONDS):
        history.violated("progress", "a client that was killed has no successor")
        return False
    if not await life.wait_until(life.is_whole, HEALING_SECONDS):
        history.violated("progress", f"the cluster is not whole after {HEALING_SECONDS:g} s: {_what_is_missing(life)}")
        return False
    history.checks += 1
    _, probe = life.spawn("probe", _probe(life))
    await asyncio.wait([probe], timeout=HEALING_SECONDS)
    if not probe.done() or probe.exception() is not None:
        history.violated("progress", f"a partition cannot be written to: {probe!r}")
        return False
    history.checks += 1
    for group in groups:
        if not await life.wait_until(lambda group=group: _is_shared(group), HEALING_SECONDS):  # type: ignore[misc]
            history.violated("progress", f"group {group.name} does not share its topic: {sorted(group.owned)}")
            return False
        history.checks += 1
    return True


def _is_shared(group: Group) -> bool:
    owned = [each for some in group.owned.values() for each in some]
    return sorted(owned) == [TopicPartition(group.topic, index) for index in range(PARTITIONS)]


def _what_is_missing(life: Life) -> str:
    away = [each.host for each in life.machines if not each.is_serving]
    behind = [
        f"{topic.name}-{index} leader {partition.leader} isr {list(partition.isr)} of {list(partition.replicas)}"
        for topic in life.truth().topics.values()
        for index, partition in enumerate(topic.partitions)
        if set(partition.isr) != set(partition.replicas) or partition.leader not in partition.isr
    ]
    return "; ".join([*away, *behind])


async def _probe(life: Life) -> None:
    producer = life.client("probe").producer(delivery_timeout_ms=int(HEALING_SECONDS * 1000))
    await producer.start()
    for topic in TOPICS:
        for index in range(PARTITIONS):
            value = f"probe {topic}:{index + 1}".encode()
            metadata = await producer.send_and_wait(topic, value, partition=index)
            life.history.on_acked(TopicPartition(topic, index), value, metadata.offset)
    await producer.close()


async def _end_work(life: Life) -> None:
    tasks = {name: program.task for name, program in life.programs.items()}
    await asyncio.wait(tasks.values(), timeout=HEALING_SECONDS)
    late = [name for name, task in tasks.items() if not task.done()]
    if late:
        life.history.violated("progress", f"clients do not come to an end: {', '.join(late)}")
    for task in tasks.values():
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            life.history.violated("nothing unexpected", f"a client failed: {error!r}")


def _is_decided(life: Life) -> bool:
    """Whether no transaction is open anywhere."""
    return all(
        partition.last_stable_offset == partition.high_watermark
        for machine in life.machines
        if machine.broker is not None
        for partition in machine.broker.partitions
        if partition.leader is not None and partition.topic in TOPICS
    )


async def _finish(life: Life) -> None:
    """Reads everything back, and lets the checkers look at it."""
    found: dict[str, dict[TopicPartition, list[tuple[int, bytes]]]] = {}

    async def read_back(isolation: str) -> None:
        client = life.client("auditor")
        partitions = [TopicPartition(topic, index) for topic in TOPICS for index in range(PARTITIONS)]
        consumer = client.consumer(isolation_level=isolation, auto_offset_reset="none")  # type: ignore[arg-type]
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

    for isolation in ("read_uncommitted", "read_committed"):
        if isolation == "read_committed":
            # A transaction that was left open is aborted when its time is up.
            is_decided = await life.wait_until(lambda: _is_decided(life), HEALING_SECONDS)
            life.history.check(is_decided, "progress", "a transaction stays open, and hides what comes after it")
        _, task = life.spawn(f"auditor {isolation}", read_back(isolation))
        await asyncio.wait([task], timeout=HEALING_SECONDS)
        if not task.done():
            life.history.violated("progress", f"not everything can be read back as {isolation}")
            return
        try:
            task.result()
        except OttlaError as error:
            life.history.violated("progress", f"reading back as {isolation} failed: {error}")
            return
    contents = Contents(everything=found["read_uncommitted"], committed=found["read_committed"])
    for checker in life.checkers:
        checker.finish(life, contents)
