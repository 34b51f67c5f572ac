"""Losses of disks and metadata stores while no process uses them, chosen from a seed.

A broker is stopped or killed, and while it is down something of its data dir disappears: a partition's folder, all
segments in it, the whole data dir, single segments from the front or the middle, or the end of a log; or bits turn over
before the last segment. Or all brokers are down and one of them loses something; or they find an older metadata store
when they come back, until an operator brings back the right one or accepts it, or an empty one.

`fault_limits.py` says which copies may be lost at a time. A loss is one that a broker can know of:
- what is cut from a log's end after a kill begins below its recovery point or its high-watermark checkpoint: those two
  are all that a broker can compare with;
- a segment is missing from a log that some checkpoint has told of: a new log may begin anywhere;
- bits turn over beyond the recovery point, after a kill: then they are found when the log is opened. Below it, or after
  a clean stop, they are found only when they are read; that is the fault "rotten bit" in `fault_injector.py`;
- an older metadata store is older than what every broker has seen and written down, by more commits than the ends of
  its own leases.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ottla.model.errors import CorruptError
from ottla.model.ids import TopicPartition
from ottla.sim.disk import SimDisk
from ottla.sim.disk_copies import CHECKED_FROM, Place, held_by, places, segments
from ottla.sim.machine import DATA_DIR, Machine
from ottla.sim.random import SimRandom
from ottla.sim.simulated_world import SimulatedWorld, chosen
from ottla.sim.store_ensemble import EMPTY_STORE, StoreBackup
from ottla.storage.data_dirs import names
from ottla.storage.data_dirs.checkpoints import read_offsets

KINDS: Final = (
    "lost folder", "lost segment", "damaged segment", "cut log",
    "loss while all are down", "older store", "empty store",
)  # fmt: skip
ROLL_MS: Final = "1500"
"""Segments of runs with losses are short, so that logs have several."""
SEEN_SECONDS: Final = 2.0
"""After this time a broker has stored the revision of the metadata that it has seen."""


class Losses:
    """Injects faults until the calm phase of the run."""

    def __init__(self, world: SimulatedWorld, random: SimRandom, kinds: list[str] | None = None) -> None:
        self.kinds = kinds if kinds is not None else chosen(random, KINDS, 0.5)
        self._world = world
        self._fault_limits = world.fault_limits
        self._random = random
        self._pause_seconds = 1 + 3 * random.random()
        self._ways: dict[str, Callable[[Machine], list[TopicPartition]]] = {
            "lost folder": self._lose_folder,
            "lost segment": self._lose_segments,
            "damaged segment": self._damage,
            "cut log": self._cut,
        }

    async def run(self) -> None:
        """Injects losses one after another, never two at a time."""
        deeds: dict[str, Callable[[Machine], Coroutine[Any, Any, None]]] = {
            "loss while all are down": self._lose_while_all_are_down,
            "older store": self._offer_older_store,
            "empty store": self._empty_store,
        }
        world, random = self._world, self._random
        world.history.note(f"losses: {', '.join(self.kinds)}")
        while not world.is_calm:
            await asyncio.sleep(self._pause_seconds * (0.2 + 1.6 * random.random()))
            kind = self.kinds[random.randrange(len(self.kinds))]
            machine = world.machines[random.randrange(len(world.machines))]
            if world.is_calm or not self._fault_limits.is_none():
                continue
            world.history.note(f"fault: {kind} ({machine.host})")
            world.history.fault_counts[kind] += 1
            if kind in deeds:
                await deeds[kind](machine)
            else:
                await self._lose(machine, self._ways[kind])

    async def _a_while(self, most: float) -> None:
        await self._world.wait_until(lambda: self._world.is_calm, 0.1 + most * self._random.random() ** 2)

    # When

    async def _lose(self, machine: Machine, way: Callable[[Machine], list[TopicPartition]]) -> None:
        """Stops or kills a broker, and removes something from its disk."""
        is_clean = self._random.random() < 0.5 and way != self._damage
        await self._take_down([machine], cleanly=is_clean)
        self._take(machine, way)
        await self._a_while(4)
        if machine.is_up:
            machine.boot()

    async def _lose_while_all_are_down(self, machine: Machine) -> None:
        await self._take_down(self._world.machines, cleanly=self._random.random() < 0.5)
        ways = [way for kind, way in self._ways.items() if kind in self.kinds] or list(self._ways.values())
        self._take(machine, ways[self._random.randrange(len(ways))])
        # The broker with the loss is often the first to return: then only it could lead.
        order = sorted(self._world.machines, key=lambda each: self._random.random() * (0.3 if each is machine else 1))
        for each in order:
            if each.is_up:
                each.boot()
            await self._world.wait_until(lambda: self._world.is_calm, 0.1 + 8 * self._random.random())

    async def _offer_older_store(self, _: Machine) -> None:
        """All brokers restart with a store that is older than what each of them has seen.

        After a while an operator brings the right one back; or has nothing better, and says that it is to be accepted.
        """
        world, ensemble = self._world, self._world.ensemble
        backup = ensemble.backup()
        deleted = len(world.history.deleted)
        # The leases in the backup end one by one, and each end is a commit that makes it look newer.
        enough = backup.revision + backup.lease_count + 1
        if not await world.wait_until(lambda: self._have_all_seen(enough), 8):
            return
        await asyncio.sleep(SEEN_SECONDS)
        if world.is_calm or not self._have_all_seen(enough) or not self._fault_limits.is_none():
            return
        await self._take_down(world.machines, cleanly=self._random.random() < 0.5)
        right = ensemble.backup()
        self._replace_store(backup)
        self._fault_limits.is_store_old = True
        self._boot_all()
        await self._a_while(6)
        for machine in world.machines:
            machine.kill()
        self._fault_limits.is_store_old = False
        # A topic that was deleted since would come back, and no broker has its folders: an operator has to see to it.
        if deleted == len(world.history.deleted) and self._random.random() < 0.3:
            world.history.note("the older store is accepted")
            await self._accept_store()
        else:
            self._replace_store(right)
            self._boot_all()

    async def _accept_store(self) -> None:
        for machine in self._world.machines:
            machine.accepts_older_metadata = True
        self._boot_all()
        await self._world.wait_until(self._world.is_whole, 30)
        for machine in self._world.machines:
            machine.accepts_older_metadata = False

    async def _empty_store(self, _: Machine) -> None:
        """All brokers restart with an empty store, and have to recover the metadata themselves."""
        await self._take_down(self._world.machines, cleanly=self._random.random() < 0.5)
        if self._fault_limits.is_none():
            self._replace_store(EMPTY_STORE)
        self._boot_all()

    def _replace_store(self, backup: StoreBackup) -> None:
        before = self._world.ensemble.table.revision
        self._world.ensemble.restore(backup)
        self._world.history.note(
            f"the store of revision {before} is replaced by a backup of revision {backup.revision}"
        )

    def _boot_all(self) -> None:
        for machine in self._world.machines:
            if machine.is_up:
                machine.boot()

    def _have_all_seen(self, revision: int) -> bool:
        return all(
            each.is_serving and each.broker is not None and each.broker.image.revision >= revision
            for each in self._world.machines
        )

    async def _take_down(self, machines: list[Machine], *, cleanly: bool) -> None:
        """Stops all brokers, also those that another fault has started meanwhile."""
        if cleanly:
            for machine in machines:
                await machine.stop()
        for machine in machines:
            machine.kill()

    def _take(self, machine: Machine, way: Callable[[Machine], list[TopicPartition]]) -> None:
        for partition in way(machine):
            self._fault_limits.on_copy_lost(machine, partition)

    # Kinds of losses; each returns the partitions whose replicas lost something

    def _lose_folder(self, machine: Machine) -> list[TopicPartition]:
        disk, random = machine.disk, self._random
        if random.random() < 0.1:
            every = held_by(disk, DATA_DIR)
            if not self._fault_limits.may_lose(machine, every):
                return []
            for name in disk.list_dir(DATA_DIR):
                self._vanish(machine, f"{DATA_DIR}/{name}")
            return every
        partition = self._pick(machine, lambda each: True)
        if partition is None:
            return []
        folder = f"{DATA_DIR}/{partition}"
        if random.random() < 0.6:
            self._vanish(machine, folder)
        else:
            for path in [f"{folder}/{name}" for name in disk.list_dir(folder)]:
                if path.endswith(names.SEGMENT_SUFFIXES):
                    self._vanish(machine, path)
        return [partition]

    def _lose_segments(self, machine: Machine) -> list[TopicPartition]:
        """Removes segments from the front or the middle; the last one stays."""
        disk, random = machine.disk, self._random

        def has_some(partition: TopicPartition) -> bool:
            is_known = _checkpointed(disk, names.RECOVERY_POINTS, partition) is not None
            return is_known and _is_read_back(partition) and len(_filled(disk, partition)) > 1

        partition = self._pick(machine, has_some)
        if partition is None:
            return []
        lasting = _filled(disk, partition)[:-1]
        at = 0 if random.random() < 0.4 else random.randrange(len(lasting))
        count = 1 + (random.randrange(len(lasting) - at) if random.random() < 0.3 else 0)
        with_indexes = random.random() < 0.7
        for path in lasting[at : at + count]:
            stem = path.removesuffix(names.LOG)
            for suffix in names.SEGMENT_SUFFIXES if with_indexes else (names.LOG,):
                if disk.exists(stem + suffix):
                    self._vanish(machine, stem + suffix)
        return [partition]

    def _damage(self, machine: Machine) -> list[TopicPartition]:
        """Flips bits in one batch, after the recovery point and before the last segment."""
        disk, random = machine.disk, self._random
        if disk.exists(f"{DATA_DIR}/{names.CLEAN_SHUTDOWN}"):
            return []

        def unflushed(partition: TopicPartition) -> list[Place]:
            flushed = _checkpointed(disk, names.RECOVERY_POINTS, partition) or 0
            lasting = _filled(disk, partition)[:-1]
            return [place for path in lasting for place in places(disk, path) if place.base_offset >= flushed]

        partition = self._pick(machine, lambda each: _is_read_back(each) and bool(unflushed(each)))
        if partition is None:
            return []
        some = unflushed(partition)
        place = some[random.randrange(len(some))]
        for _ in range(1 + random.randrange(8)):
            position = place.position + CHECKED_FROM + random.randrange(place.size_bytes - CHECKED_FROM)
            disk.flip(place.path, position, random.randrange(8))
        self._world.history.note(f"{machine.host}: {place.path} is damaged at {place.position}")
        return [partition]

    def _cut(self, machine: Machine) -> list[TopicPartition]:
        """Truncates a log, in its last segment or in one before it."""
        disk, random = machine.disk, self._random

        def known(partition: TopicPartition) -> int:
            files = (names.RECOVERY_POINTS, names.HIGH_WATERMARKS)
            return max(_checkpointed(disk, file, partition) or 0 for file in files)

        def cuttable(partition: TopicPartition) -> list[Place]:
            return [
                place
                for path in segments(disk, f"{DATA_DIR}/{partition}")
                for place in places(disk, path)
                if place.base_offset < known(partition)
            ]

        partition = self._pick(machine, lambda each: _is_read_back(each) and bool(cuttable(each)))
        if partition is None:
            return []
        some = cuttable(partition)
        place = some[random.randrange(len(some))]
        size = place.position + (random.randrange(place.size_bytes) if random.random() < 0.5 else 0)
        disk.cut(place.path, size)
        self._world.history.note(f"{machine.host}: {place.path} ends at byte {size}, offset {place.base_offset}")
        for path in segments(disk, f"{DATA_DIR}/{partition}"):
            if path > place.path:
                self._vanish(machine, path)
        return [partition]

    def _pick(self, machine: Machine, is_fit: Callable[[TopicPartition], bool]) -> TopicPartition | None:
        """A replica that may have a loss, mostly one that clients have written to."""
        fit = [
            each
            for each in held_by(machine.disk, DATA_DIR)
            if is_fit(each) and self._fault_limits.may_lose(machine, [each])
        ]
        if not fit:
            return None
        if self._random.random() < 0.9:
            fit = [each for each in fit if each in self._world.history.acked] or fit
        return fit[self._random.randrange(len(fit))]

    def _vanish(self, machine: Machine, path: str) -> None:
        self._world.history.note(f"{machine.host}: {path} disappears")
        self._fault_limits.vanished.add((machine.id, path))
        machine.disk.vanish(path)


def _checkpointed(disk: SimDisk, name: str, partition: TopicPartition) -> int | None:
    """The entry of a partition in a checkpoint file, if any."""
    try:
        return read_offsets(disk, f"{DATA_DIR}/{name}").get(partition)
    except (CorruptError, OSError):
        return None


def _filled(disk: SimDisk, partition: TopicPartition) -> list[str]:
    """The segments of a replica that are not empty."""
    return [path for path in segments(disk, f"{DATA_DIR}/{partition}") if disk.size(path)]


def _is_read_back(partition: TopicPartition) -> bool:
    """Whether it is a topic of clients; compaction leaves gaps in the others, which look like losses."""
    return not partition.topic.startswith("__")
