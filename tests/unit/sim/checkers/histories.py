"""What checkers are shown: what was read back, what a queue owed and delivered, and the files of a replica."""

from typing import Any

from ottla.model.ids import TopicPartition
from ottla.records.builder import BatchBuilder
from ottla.sim.checkers import Checker, Contents
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.queue_history import ORDERS, Arrival, Owed
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.crashes import put

P0, P1 = TopicPartition("events", 0), TopicPartition("events", 1)
ORDERS_0, ORDERS_1 = TopicPartition(ORDERS, 0), TopicPartition(ORDERS, 1)
PARKED_0 = TopicPartition("orders.delayed", 0)
SEGMENT = "00000000000000000000.log"


def finish(checker: Checker, world: SimulatedWorld, **contents: Any) -> list[str]:
    """The violations at the end of a run that left this."""
    checker.finish(world, Contents(**{"everything": {}, "committed": {}, **contents}))
    return world.history.violations


def owe(world: SimulatedWorld, name: bytes, **facts: Any) -> Owed:
    """A delayed record that was acknowledged, unless the facts say otherwise."""
    owed = Owed(**{"name": name, "sink": ORDERS, "parked_in": ORDERS_0, "sent_at": 0.0, "outcome": "arrives", **facts})
    world.history.queues.owed[name] = owed
    return owed


def arrival(name: bytes, offset: int = 0, partition: TopicPartition = ORDERS_0, **headers: str) -> Arrival:
    """A record in a sink; the headers' names are given without `ottla.` and with `_` for `-`."""
    named = {f"ottla.{header.replace('_', '-')}": value.encode() for header, value in headers.items()}
    return Arrival(name, partition, offset, tuple(named.items()))


def put_log(machine: Machine, partition: TopicPartition, *values: bytes, folder: str | None = None) -> str:
    """Writes a log with one batch for each value; returns the path of its segment."""
    path = f"{DATA_DIR}/{folder or partition}"
    machine.disk.make_dirs(path)
    batches = []
    for offset, value in enumerate(values):
        builder = BatchBuilder(base_offset=offset)
        builder.append(0, None, value)
        batches.append(builder.build())
    put(machine.disk, f"{path}/{SEGMENT}", b"".join(batches))
    return f"{path}/{SEGMENT}"
