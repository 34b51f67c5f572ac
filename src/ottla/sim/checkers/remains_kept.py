"""Records of a damaged replica are not deleted: they stay in place or are set aside until the replica is intact.

Only what was acknowledged is asked for: the rest may be cut off, as the leader decides. Nor is it asked for after a
power cut, which may take what was copied since.
"""

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import Contents
from ottla.sim.disk_copies import values_kept
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.simulated_world import SimulatedWorld


class RemainsKept:
    """Reads the disks. Reports a replica once for each loss."""

    name = "what is left of a damaged copy is kept"

    def look(self, world: SimulatedWorld) -> None:
        """Every copy that something was taken from."""
        remains = world.fault_limits.remains
        for (broker, partition), (boot_id, left) in list(remains.items()):
            machine = world.machines[broker - 1]
            is_moved = partition in world.history.moved or partition.topic in world.history.deleted
            if machine.disk.boot_id != boot_id or is_moved or world.fault_limits.is_intact(machine, partition):
                del remains[broker, partition]
                continue
            now = _everything(machine, partition)
            gone = [offset for offset, value in left.items() if value not in now.get(offset, ())]
            world.history.check(
                not gone,
                self.name,
                f"{machine.host}: {partition} had {len(left)} acknowledged records left, and lost {len(gone)} of them",
            )
            if gone:
                del remains[broker, partition]

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """One more look."""
        self.look(world)


def _everything(machine: Machine, partition: TopicPartition) -> dict[int, set[bytes]]:
    """The records of a partition that a machine has, in the folder's place or set aside."""
    found: dict[int, set[bytes]] = {}
    for name in machine.disk.list_dir(DATA_DIR):
        if name == str(partition) or (name.startswith(f"{partition}.") and name.endswith("-stray")):
            for offset, value in values_kept(machine.disk, f"{DATA_DIR}/{name}"):
                found.setdefault(offset, set()).add(value)
    return found
