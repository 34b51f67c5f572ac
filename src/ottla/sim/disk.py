"""A disk in memory with a precise and repeatable fault model.

# The fault model
A *kill* (of the process) loses no byte and no name: the page cache survives; handles, mappings and locks end.
A *crash* (of the machine) keeps what was synced and decides for the rest, from the given randomness:
- **Bytes** of a file are durable after `File.sync`. Of unsynced writes any subset of their 512-byte sectors survives,
  in any order across sectors; one sector holds the bytes of some moment since the sync, never a later write without an
  earlier one. A sector is not torn, and no foreign garbage appears: a drive with power-loss-safe sectors, a file system
  that does not expose stale blocks (ext4 and XFS in their default modes).
- **Size** changes are metadata: those of one file survive as a prefix of their order. A size may survive without its
  bytes (they read as zeros), and the size of the last surviving append may be cut at any byte.
- **Names** (create, rename, remove, make a folder) are durable after `sync_dir` of their folder; syncing a new file
  does not sync its name. Unsynced ones survive as a prefix of each folder's order, or, with `NameOrder.NAME`, of each
  name's order only. A rename is one step: a crash finds the old name or the new one, never both and never neither.
- **A failed sync** leaves any part written and forgets the rest: a second sync that succeeds does not save it (Linux
  marks the pages clean). The unsynced bytes of the file must not be trusted afterwards.
- **Not modelled by a crash**: synced bytes that are lost. See below.
After a crash or kill this object and all it gave out are dead and raise `SimulatedCrash`; `crash` and `kill` return the
disk that the next process finds. So a task of the dead process that is still unwinding cannot reach the new disk.

# Losses
What a crash may not take can be taken by hand, while no process runs, whether it was stopped, killed or crashed. It is
gone for good, synced or not:
- `vanish` takes a file or a whole folder away, as a failed file system check or a slip of an operator does;
- `cut` takes the end of a file away;
- `flip` turns one bit over, in place.
A loss leaves no trace elsewhere: names, checkpoints and clean-shutdown marks in other files stay as they were. Which
copies may be taken at a time is in `fault_limits.py`, what is taken in `losses.py`.

# Faults
Every mutating operation is counted and traced. Run a scenario once, look at `operation_count`, then run it again for
each number with `fail_at`. A mistake that kills a real process only now and then always raises `MisuseError` here: a
file resized while it is mapped. A disk with a capacity counts in pages of 4096 bytes and knows no sparse files.

Bytes are kept in `inode.py`, names in `folders.py`, planned faults in `disk_faults.py`, handles in `handles.py`.
"""

import asyncio
import errno
import posixpath
from collections.abc import Callable
from functools import lru_cache
from typing import Final, ParamSpec, TypeVar

from ottla.env.ports import Random
from ottla.model.errors import MisuseError
from ottla.model.ids import TimestampMs
from ottla.sim.clock import START_MS
from ottla.sim.disk_faults import Faults, Moment, Operation, SimulatedCrash
from ottla.sim.folders import Folder, NameOrder, Tree, os_error
from ottla.sim.handles import SimFile, SimLock, SimMapping
from ottla.sim.inode import PAGE_BYTES, Change, Inode, Resize, Write
from ottla.sim.random import SimRandom

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["Moment", "NameOrder", "Operation", "SimDisk", "SimulatedCrash"]

UNLIMITED_FREE_BYTES: Final = 1 << 40
"""The free space of a disk without a capacity."""


@lru_cache(maxsize=10_000)
def normal(path: str) -> str:
    """The normalized absolute path."""
    return posixpath.normpath("/" + path).replace("//", "/")


class SimDisk:
    """The `Disk` port in memory. `seed` decides what a failed sync leaves, and a crash without its own randomness;
    `capacity` limits the disk, in bytes."""

    def __init__(self, seed: int = 0, *, capacity: int | None = None, order: NameOrder = NameOrder.FOLDER) -> None:
        self.capacity = capacity
        self.latency_seconds = 0.0
        """The delay before background work begins."""
        self.faults: Final = Faults()
        self.boot_id = "boot 0"
        self.now_ms: Callable[[], TimestampMs] = lambda: START_MS
        """The wall clock for modification times of files."""
        self._random: Random = SimRandom(seed)
        self._tree = Tree(order)
        self._locks: dict[Inode, SimLock] = {}

    # Crash and kill

    def crash(self, random: Random | None = None) -> "SimDisk":
        """Cuts the power, unless a planned crash did; returns the disk that the restarted machine finds."""
        self.faults.dead = True
        disk = self._successor(self._tree.after_crash(random or self._random))
        disk.boot_id = f"boot {int(self.boot_id.split()[1]) + 1}"
        return disk

    def kill(self) -> "SimDisk":
        """Ends the process; returns the disk that the next process of the machine finds."""
        self.faults.dead = True
        return self._successor(self._tree.after_kill())

    def _successor(self, tree: Tree) -> "SimDisk":
        disk = SimDisk(self._random.randrange(1 << 32), capacity=self.capacity, order=tree.order)
        disk.boot_id = self.boot_id
        disk.now_ms = self.now_ms
        disk._tree = tree
        return disk

    # Faults

    @property
    def operation_count(self) -> int:
        """The number of mutating operations so far; the next one has this number."""
        return self.faults.operation_count

    @property
    def trace(self) -> list[Operation]:
        """The operations so far, to name the one at which a test fails."""
        return self.faults.trace

    def fail_at(
        self,
        number: int,
        fault: OSError | SimulatedCrash | type[SimulatedCrash] = SimulatedCrash,
        moment: Moment = Moment.BEFORE,
    ) -> None:
        """The operation with this number fails once; with a crash, the disk and every handle is dead afterwards."""
        self.faults.plan(number, fault, moment)

    def break_path(self, path: str, code: int = errno.EIO) -> None:
        """All operations at or below this path fail, also reads, until `heal`."""
        self.faults.break_path(normal(path), code)

    def make_read_only(self, path: str = "/") -> None:
        """Every change at or below this path fails with EROFS, until `heal`."""
        self.faults.make_read_only(normal(path))

    def heal(self, path: str = "/") -> None:
        """Undoes `break_path` and `make_read_only` of exactly this path."""
        self.faults.heal(normal(path))

    def vanish(self, path: str) -> None:
        """Removes a file or folder durably and unnoticed; open handles still work."""
        self._tree.vanish(normal(path))

    def cut(self, path: str, size: int) -> None:
        """Removes the end of a file durably and unnoticed."""
        inode = self._tree.file(normal(path))
        inode.durable = inode.content[:size]
        inode.content = bytearray(inode.durable)
        inode.unsynced.clear()

    def flip(self, path: str, position: int, bit: int) -> None:
        """Flips one bit, in memory and on disk."""
        inode = self._tree.file(normal(path))
        inode.content[position] ^= 1 << bit
        if position < len(inode.durable):
            inode.durable[position] ^= 1 << bit
        if inode.unsynced:
            # The byte may be in a pending write; then it is flipped there too.
            inode.unsynced.append(Write(position, bytes(inode.content[position : position + 1])))

    def used_bytes(self) -> int:
        """The space that all named files take."""
        return sum(inode.room_bytes for inode in set(self._tree.files()))

    # The port

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> SimFile:
        """Opens an existing file; with `create`, creates it if it is missing."""
        name = normal(path)
        if writable or create:
            self.faults.touch_to_change(name)
        self.faults.touch(name)
        return SimFile(self, self._find_or_create(name) if create else self._tree.file(name), name, writable=writable)

    def open_scratch(self, folder: str) -> SimFile:
        """A new file without a name; it ends with the process, and takes no space of the capacity."""
        name = normal(folder)
        self.faults.touch_to_change(name)
        self._tree.folder(name)
        return SimFile(self, Inode(modified_ms=self.now_ms()), name, writable=True)

    def _find_or_create(self, path: str) -> Inode:
        if self._tree.find(path) is not None:
            return self._tree.file(path)
        folder, name = self._tree.parent(path)
        inode = Inode(modified_ms=self.now_ms())
        with self.faults.atomic("create", path):
            self._tree.assign((folder, name, inode))
        return inode

    def map(self, path: str) -> SimMapping:
        """Maps a file for reading; it must not be resized while it is mapped."""
        return SimMapping(self, self._file(path), normal(path))

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        return bytes(self._file(path).content)

    def _file(self, path: str) -> Inode:
        self.faults.touch(normal(path))
        return self._tree.file(normal(path))

    def exists(self, path: str) -> bool:
        """Whether a file or folder has this name."""
        self.faults.touch(normal(path))
        return self._tree.find(normal(path)) is not None

    def size(self, path: str) -> int:
        """The size in bytes."""
        return len(self._file(path).content)

    def modified_ms(self, path: str) -> TimestampMs:
        """When the file was last written to, by `now_ms`."""
        return self._file(path).modified_ms

    def truncate(self, path: str, size: int) -> None:
        """Truncates the file, or extends it with zeros."""
        inode = self._file(path)
        if size < 0:
            raise os_error(errno.EINVAL, path)
        self.resize(inode, normal(path), size)

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        self.faults.touch(normal(path))
        return sorted(self._tree.folder(normal(path)).entries)

    def is_dir(self, path: str) -> bool:
        """Whether a folder has this name."""
        self.faults.touch(normal(path))
        return isinstance(self._tree.find(normal(path)), Folder)

    def make_dir(self, path: str) -> None:
        """Creates a folder in an existing one, if it does not exist."""
        path = normal(path)
        self.faults.touch(path)
        if isinstance(self._tree.find(path), Folder):
            return
        self.faults.touch_to_change(path)
        folder, name = self._tree.parent(path)
        if name in folder.entries:
            raise os_error(errno.EEXIST, path)
        with self.faults.atomic("make_dir", path):
            self._tree.assign((folder, name, Folder()))

    def make_dirs(self, path: str) -> None:
        """Creates the folder and its parents, if they do not exist, and syncs their names."""
        made = ""
        for part in normal(path).split("/")[1:]:
            above, made = made or "/", f"{made}/{part}"
            if not isinstance(self._tree.find(made), Folder):
                self.make_dir(made)
                self.sync_dir(above)

    def remove(self, path: str) -> None:
        """Removes a file; raises if it is missing."""
        self._file(path)
        self._remove(normal(path), "remove")

    def _remove(self, path: str, operation: str) -> None:
        self.faults.touch_to_change(path)
        folder, name = self._tree.parent(path)
        with self.faults.atomic(operation, path):
            self._tree.assign((folder, name, None))

    def remove_tree(self, path: str) -> None:
        """Removes a folder and its content, if it exists."""
        name = normal(path)
        if not self.exists(path):
            return
        for inner in sorted(self._tree.folder(name).entries):
            if self.is_dir(f"{name}/{inner}"):
                self.remove_tree(f"{name}/{inner}")
            else:
                self.remove(f"{name}/{inner}")
        self._remove(name, "remove_dir")

    def rename(self, source: str, target: str) -> None:
        """Atomically gives a file or folder another name, replacing a file of that name."""
        old, new = normal(source), normal(target)
        self.faults.touch_to_change(old)
        self.faults.touch_to_change(new)
        old_folder, old_name = self._tree.parent(old)
        entry = old_folder.entries.get(old_name)
        if entry is None:
            raise os_error(errno.ENOENT, source)
        if new.startswith(old + "/"):
            raise os_error(errno.EINVAL, target)
        new_folder, new_name = self._tree.parent(new)
        replaced = new_folder.entries.get(new_name)
        if isinstance(replaced, Folder) and replaced is not entry:
            if not isinstance(entry, Folder):
                raise os_error(errno.EISDIR, target)
            if replaced.entries:
                raise os_error(errno.ENOTEMPTY, target)
        elif isinstance(replaced, Inode) and isinstance(entry, Folder):
            raise os_error(errno.ENOTDIR, target)
        with self.faults.atomic("rename", f"{old} -> {new}"):
            if entry is not replaced:
                self._tree.assign((old_folder, old_name, None), (new_folder, new_name, entry))

    def sync_dir(self, path: str) -> None:
        """Makes the names in this folder survive a power cut."""
        name = normal(path)
        self.faults.touch(name)
        folder = self._tree.folder(name)
        with self.faults.atomic("sync_dir", name):
            self._tree.sync(folder)

    def free_bytes(self, path: str) -> int:
        """What is left of the capacity."""
        self.faults.touch(normal(path))
        if self._tree.find(normal(path)) is None:
            raise os_error(errno.ENOENT, path)
        return UNLIMITED_FREE_BYTES if self.capacity is None else max(0, self.capacity - self.used_bytes())

    def total_bytes(self, path: str) -> int:
        """The capacity; without one, what is used and what counts as free."""
        free = self.free_bytes(path)
        return self.used_bytes() + free if self.capacity is None else self.capacity

    def try_lock(self, path: str, owner: str) -> SimLock | str:
        """Takes an exclusive lock and writes `owner` into the file; if it is held, returns the owner."""
        file = self.open(path, create=True)
        inode = self._tree.file(normal(path))
        if inode in self._locks:
            return inode.content.decode(errors="replace")
        file.truncate(0)
        file.write_at(0, [owner.encode()])
        lock = self._locks[inode] = SimLock(self, inode)
        return lock

    async def in_background(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the work at once. Other tasks run before and after it, so that they see it in progress."""
        await asyncio.sleep(self.latency_seconds)
        answer = function(*args, **kwargs)
        await asyncio.sleep(0)
        return answer

    # Operations of handles

    def write(self, inode: Inode, path: str, write: Write) -> None:
        """Writes to the page cache; half of it if a fault is planned, or what fits if the disk is full."""
        self.faults.touch_to_change(path)
        inode.modified_ms = self.now_ms()
        planned = self.faults.begin("write", path)
        if planned is not None:
            _change(inode, path, Write(write.position, write.data[: len(write.data) // 2]))
            self.faults.strike(planned)
        fits = self._room_left(inode) - write.position
        if fits >= len(write.data):
            _change(inode, path, write)
            return
        if fits > 0:
            _change(inode, path, Write(write.position, write.data[:fits]))
        raise os_error(errno.ENOSPC, path)

    def _room_left(self, inode: Inode) -> int:
        """The maximum size of this file. Only named files take space."""
        if self.capacity is None:
            return UNLIMITED_FREE_BYTES
        free = max(0, self.capacity - self.used_bytes()) // PAGE_BYTES * PAGE_BYTES
        return inode.room_bytes + free

    def resize(self, inode: Inode, path: str, size: int) -> None:
        """Truncates, or extends with zeros, which take space."""
        self.faults.touch_to_change(path)
        with self.faults.atomic("truncate", path):
            if size > self._room_left(inode):
                raise os_error(errno.ENOSPC, path)
            _change(inode, path, Resize(size))
            inode.modified_ms = self.now_ms()

    def sync_file(self, inode: Inode, path: str) -> None:
        """Makes the bytes of a file durable; a planned error leaves the result of a failed sync."""
        self.faults.touch(path)
        try:
            planned = self.faults.begin("sync", path)
            if planned is None or isinstance(planned.fault, SimulatedCrash):
                inode.sync()
            self.faults.strike(planned)
        except OSError:
            inode.fail_sync(self._random)
            raise

    def unlock(self, inode: Inode, lock: SimLock) -> None:
        """Ends a lock, if it is still this one."""
        if self._locks.get(inode) is lock:
            del self._locks[inode]
            inode.change(Resize(0))


def _change(inode: Inode, path: str, change: Change) -> None:
    try:
        inode.change(change)
    except BufferError:
        size = len(inode.content)
        raise MisuseError(
            f"{path} is resized from {size} to {change.size_after(size)} bytes while it is mapped: a real process "
            "could die of SIGBUS; close the mapping first"
        ) from None
