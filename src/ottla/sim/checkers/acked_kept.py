"""An acknowledged record is on some disk at every moment; the leader and all replicas in sync have all of them.

`acked_survive.py` asks at the end what clients can read; this looks at the disks' bytes all along. Losses are bounded
so that one intact copy is left (`fault_limits.py`): if no copy has a record, brokers removed the last one. A broker
that leads with less than was acknowledged makes its followers truncate their logs, and assigns offsets twice. One that
is in the ISR with less may be elected at any time.
"""

from collections.abc import Iterator
from typing import Final

from ottla.metadata.image import ClusterImage, PartitionImage
from ottla.metadata.records import broker_key, partition_key
from ottla.model.ids import BrokerId, TopicPartition
from ottla.sim.checkers import Contents
from ottla.sim.disk_copies import Copy, read_copy
from ottla.sim.history import Acked
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.simulated_world import SimulatedWorld

LOOK_SECONDS: Final = 1.0
"""Logs are read from beginning to end, so not at every look."""


class AckedKept:
    """Reports a partition once."""

    name = "acked records are kept"

    def __init__(self) -> None:
        self._next_look = 0.0
        self._reported: set[TopicPartition] = set()
        self._lacking: set[tuple[str, TopicPartition]] = set()
        """Broker processes in sync that lacked something at the last look: a broker may need a moment to withdraw."""

    def look(self, world: SimulatedWorld) -> None:
        """Every acknowledged record against the copies on all disks, first of those that count."""
        if world.loop.time() < self._next_look:
            return
        self._next_look = world.loop.time() + LOOK_SECONDS
        image = world.truth()
        lacking: set[tuple[str, TopicPartition]] = set()
        for partition, acked in world.history.acked.items():
            if partition not in self._reported:
                wrong = self._what_is_wrong(world, image, partition, acked, lacking)
                world.history.check(not wrong, self.name, f"{partition}: {wrong}")
                if wrong:
                    self._reported.add(partition)
        self._lacking = lacking

    def _what_is_wrong(
        self,
        world: SimulatedWorld,
        image: ClusterImage,
        partition: TopicPartition,
        acked: list[Acked],
        lacking: set[tuple[str, TopicPartition]],
    ) -> str:
        copies = {each.id: read_copy(each.disk, f"{DATA_DIR}/{partition}") for each in world.machines}
        gone = [offset for value, offset in acked if not any(_has(each, offset, value) for each in copies.values())]
        if gone:
            return f"no broker has the acknowledged records at {_span(gone)}"
        topic = image.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return ""
        record = topic.partitions[partition.partition]
        for machine, leads in _counted_on(world, image, partition, record):
            missing = [offset for value, offset in acked if not _has(copies[machine.id], offset, value)]
            if missing and leads:
                return f"broker {machine.id} leads without the acknowledged records at {_span(missing)}"
            if missing and machine.process is not None:
                lacking.add((machine.process.name, partition))
                if (machine.process.name, partition) in self._lacking:
                    return f"broker {machine.id} is in sync without the acknowledged records at {_span(missing)}"
        return ""

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """One more look."""
        self._next_look = 0.0
        self.look(world)


def _has(copy: Copy | None, offset: int, value: bytes) -> bool:
    return copy is not None and copy.values.get(offset) == value


def _counted_on(
    world: SimulatedWorld, image: ClusterImage, partition: TopicPartition, record: PartitionImage
) -> Iterator[tuple[Machine, bool]]:
    """The brokers that count as having everything, and whether each leads.

    Not those that say that their log is damaged, which refuse what they lack; nor those that said when they registered
    that they may lack something, until they are counted in the ISR after that.
    """
    revision = image.revision_of(partition_key(*partition))
    for machine in world.machines:
        held = None if machine.broker is None else machine.broker.partitions.held.get(partition)
        if held is None or not held.log.health.is_sound or (machine.id, *partition) in world.rotten:
            continue
        registered = image.revision_of(broker_key(BrokerId(machine.id)))
        is_trusted = registered > 0 and (image.brokers[BrokerId(machine.id)].is_intact or registered < revision)
        if machine.id == record.leader and held.leader is not None and held.leader_epoch == record.leader_epoch:
            yield machine, True
        elif machine.id in record.isr and is_trusted and _is_registered(world, machine):
            yield machine, False


def _is_registered(world: SimulatedWorld, machine: Machine) -> bool:
    """Whether it is this process that is registered, and not one before it. By the store: brokers are not disturbed."""
    lease = world.ensemble.table.get(broker_key(BrokerId(machine.id)))
    session = None if machine.store is None else machine.store.session
    return lease is not None and session is not None and lease.owner == session.token


def _span(offsets: list[int]) -> str:
    return f"offset {offsets[0]}" + (f" and {len(offsets) - 1} more" if offsets[1:] else "")
