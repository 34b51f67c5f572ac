"""Building simulated disks, crashing them with many kinds of luck, and looking at what is left."""

from collections.abc import Callable

from ottla.sim.disk import NameOrder, SimDisk
from ottla.sim.random import SimRandom

SEEDS = range(200)


def put(disk: SimDisk, path: str, data: bytes, *, position: int = 0, synced: bool = False) -> None:
    file = disk.open(path, create=True)
    file.write_at(position, [data])
    if synced:
        file.sync()


def outcomes(build: Callable[[], SimDisk], look: Callable[[SimDisk], object]) -> set[object]:
    """What `look` sees after crashes of the same disk with different luck."""
    return {look(build().crash(SimRandom(seed))) for seed in SEEDS}


def names(disk: SimDisk, folder: str = "/d") -> str:
    return " ".join(disk.list_dir(folder))


def with_synced_file(data: bytes, order: NameOrder = NameOrder.FOLDER) -> SimDisk:
    disk = SimDisk(order=order)
    disk.make_dirs("/d")
    put(disk, "/d/a", data, synced=True)
    disk.sync_dir("/d")
    return disk
