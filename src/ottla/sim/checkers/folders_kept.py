"""No broker removes a folder with records unless a client deleted its topic, or moved its partition away.

A folder that its broker cannot use is set aside under another name, and stays.
"""

from ottla.model.ids import TopicPartition
from ottla.sim.checkers import Contents
from ottla.sim.disk import SimDisk
from ottla.sim.disk_copies import segments
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.simulated_world import SimulatedWorld
from ottla.storage.data_dirs import names


class FoldersKept:
    """Reads the disks."""

    name = "only deleted partitions are removed"

    def __init__(self) -> None:
        self._known: dict[int, dict[str, str]] = {}
        """By machine: the folders with records when last looked at, and the topic id in each."""
        self._boots: dict[int, str] = {}

    def look(self, world: SimulatedWorld) -> None:
        """What was in a data dir is there still."""
        for machine in world.machines:
            self._look_at(world, machine)

    def _look_at(self, world: SimulatedWorld, machine: Machine) -> None:
        disk = machine.disk
        found = _folders(disk)
        known = self._known.get(machine.id, {})
        if self._boots.get(machine.id) == disk.boot_id:
            for name, topic_id in known.items():
                if name not in found:
                    self._check_gone(world, machine, name, topic_id, found)
        # A power cut may take a folder whose name was not synced: what it left is looked at before a broker starts.
        self._known[machine.id] = {name: found[name] for name in found if _has_records(disk, f"{DATA_DIR}/{name}")}
        self._boots[machine.id] = disk.boot_id

    def _check_gone(
        self, world: SimulatedWorld, machine: Machine, name: str, topic_id: str, found: dict[str, str]
    ) -> None:
        partition = names.partition_of(name)
        is_set_aside = partition is not None and any(
            each.endswith("-stray") and _is_of(each, partition) and found[each] == topic_id for each in found
        )
        is_wanted = partition is not None and (
            partition.topic in world.history.deleted or partition in world.history.moved
        )
        is_lost = (machine.id, f"{DATA_DIR}/{name}") in world.fault_limits.vanished
        world.history.check(
            is_set_aside or is_wanted or is_lost,
            self.name,
            f"{machine.host}: {name} (topic id {topic_id or 'unknown'}) disappeared, and was not set aside",
        )

    def finish(self, world: SimulatedWorld, contents: Contents) -> None:
        """One more look."""
        self.look(world)


def _folders(disk: SimDisk) -> dict[str, str]:
    """The folders of partitions, in their place or set aside, and the topic id in each."""
    if not disk.is_dir(DATA_DIR):
        return {}
    return {
        name: _topic_id(disk, f"{DATA_DIR}/{name}/{names.PARTITION_METADATA}")
        for name in disk.list_dir(DATA_DIR)
        if disk.is_dir(f"{DATA_DIR}/{name}") and (names.partition_of(name) is not None or name.endswith("-stray"))
    }


def _has_records(disk: SimDisk, folder: str) -> bool:
    return any(disk.size(path) for path in segments(disk, folder))


def _topic_id(disk: SimDisk, path: str) -> str:
    text = disk.read(path).decode(errors="replace") if disk.exists(path) else ""
    return text.rpartition("topic_id:")[2].strip()


def _is_of(folder: str, partition: TopicPartition) -> bool:
    return folder.startswith(f"{partition}.")
