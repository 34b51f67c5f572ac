"""Tracks machines and replicas with losses that are not yet repaired, and decides what may fail next.

# The limits of the guarantees
Records that were acknowledged survive the end of any number of processes. Without `flush.messages=1` they are in page
caches, and so survive the end of *one machine at a time*: no second one is crashed here before the first is in sync
again. No broker is stopped in between either: a broker that stops hands over its leaderships to registered brokers, and
a machine without power is registered until its session ends. If everything is flushed before it is acknowledged, all
machines may lose power together.

A failing sync counts as a loss, since it is unknown what the disk has. A full disk does not: what is in the log stays
there, so its broker must still lead if the replica that took over has lost power.

A bit that turns over on a disk counts as the loss of that machine's copy, for the rest of the run, unless recovery
must find it: it is found only when it is read. It is one of those that a batch's checksum covers, which are all but the
offset, the length and the leader epoch at the batch's front; and no process has read it before, since a checked batch
is not checked again.

A copy that loses its folder, a segment or its tail is a loss as well. It is over when the copy holds everything again,
by the bytes on its disk and not by what brokers say, and is in the ISR. Until then no other copy is harmed. A copy is
harmed only if another member of the ISR holds every acknowledged record, again by the bytes on its disk.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.metadata.records import broker_key, partition_key
from ottla.model.ids import BrokerId, TopicPartition
from ottla.sim.disk_copies import read_copy
from ottla.sim.machine import DATA_DIR, Machine

if TYPE_CHECKING:
    from ottla.sim.simulated_world import SimulatedWorld


class FaultLimits:
    """Tracks the losses of one run."""

    def __init__(self, world: "SimulatedWorld") -> None:
        self.is_store_old = False
        """Whether the brokers are offered a metadata store that is older than what they have seen."""
        self.vanished: set[tuple[int, str]] = set()
        """Paths that were taken from a machine's disk."""
        self.remains: dict[tuple[int, TopicPartition], tuple[str, dict[int, bytes]]] = {}
        """What copies that something was taken from had left of what was acknowledged, and in which boot."""
        self._world = world
        self._tainted: dict[int, int] = {}
        """Brokers whose machine went down, and that may not be in sync again; with the store's revision of then."""
        self._hurt: dict[tuple[int, TopicPartition], None] = {}
        """Copies that something was taken from, and that may lack it still."""

    def on_machine_lost(self, machine: Machine) -> None:
        """What the machine had not synced may be gone."""
        self._tainted[machine.id] = self._world.ensemble.table.revision

    def on_copy_lost(self, machine: Machine, partition: TopicPartition) -> None:
        """Something of a copy is gone; called when it is."""
        self._hurt[machine.id, partition] = None
        copy = read_copy(machine.disk, f"{DATA_DIR}/{partition}")
        left = {} if copy is None else copy.values
        acked = self._world.history.acked.get(partition, [])
        self.remains[machine.id, partition] = (
            machine.disk.boot_id,
            {offset: value for value, offset in acked if left.get(offset) == value},
        )

    def is_none(self) -> bool:
        """Whether nothing is lost, or all of it is made good."""
        if self._world.rotten or self.is_store_old:
            return False
        self._tainted = {broker: since for broker, since in self._tainted.items() if not self._is_in_sync_again(broker)}
        return not self._tainted and not self._has_hurt()

    def may_crash(self, machine: Machine) -> bool:
        """Whether the machine may lose power: then all has been flushed, or others have what it has."""
        if self._world.is_flushed:
            return machine.is_up and not self._world.rotten and not self.is_store_old and not self._has_hurt()
        image = self._world.truth()
        return (
            self.is_none()
            and machine.is_up
            and all(
                machine.id not in partition.isr
                or any(each != machine.id for each in (*partition.isr, *partition.eligible))
                for topic in image.topics.values()
                for partition in topic.partitions
            )
        )

    def may_stop(self) -> bool:
        """Whether a broker may be stopped by hand: all others have what they should."""
        return not self._has_hurt() and not self.is_store_old if self._world.is_flushed else self.is_none()

    def may_lose(self, machine: Machine, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the machine's copies may lose something: for each another member of the ISR is intact."""
        return machine.is_up and self.is_none() and all(self._has_intact_other(machine, each) for each in partitions)

    def _has_intact_other(self, machine: Machine, partition: TopicPartition) -> bool:
        topic = self._world.truth().topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return False
        record = topic.partitions[partition.partition]
        others = [each for each in self._world.machines if each is not machine and each.id in record.isr]
        return machine.id in record.replicas and any(self.is_intact(each, partition) for each in others)

    def is_intact(self, machine: Machine, partition: TopicPartition) -> bool:
        """Whether a copy has all batches whole, and every acknowledged record."""
        copy = read_copy(machine.disk, f"{DATA_DIR}/{partition}")
        return (
            copy is not None
            and copy.is_whole
            and all(copy.values.get(offset) == value for value, offset in self._world.history.acked.get(partition, ()))
        )

    def _has_hurt(self) -> bool:
        self._hurt = {each: None for each in self._hurt if not self._is_made_good(*each)}
        return bool(self._hurt)

    def _is_made_good(self, broker: int, partition: TopicPartition) -> bool:
        topic = self._world.truth().topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return not self.is_store_old
        record = topic.partitions[partition.partition]
        if broker not in record.replicas:
            return not self.is_store_old
        machine = self._world.machines[broker - 1]
        copy = read_copy(machine.disk, f"{DATA_DIR}/{partition}")
        committed = [
            held.high_watermark
            for each in self._world.machines
            if each is not machine and each.broker is not None
            if (held := each.broker.partitions.held.get(partition)) is not None
        ]
        return (
            broker in record.isr
            and copy is not None
            and bool(committed)
            and copy.end_offset >= max(committed)
            and self.is_intact(machine, partition)
        )

    def _is_in_sync_again(self, broker: int) -> bool:
        image = self._world.truth()
        registered = image.revision_of(broker_key(BrokerId(broker)))
        is_intact = registered > 0 and image.brokers[BrokerId(broker)].is_intact
        return registered > self._tainted[broker] and all(
            broker not in partition.replicas
            or (
                broker in partition.isr
                and (is_intact or registered < image.revision_of(partition_key(topic.name, index)))
            )
            for topic in image.topics.values()
            for index, partition in enumerate(topic.partitions)
        )
