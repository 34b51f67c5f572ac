"""What the simulated disk hands out: open files, mappings and locks.

They carry out single operations on an `Inode`, with the errors a real system gives, and count each with `Faults`.
"""

import errno
from collections.abc import Sequence
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Final

from ottla.model.buffer import Buffer
from ottla.sim.folders import os_error
from ottla.sim.inode import Inode, Write

if TYPE_CHECKING:
    from ottla.sim.disk import SimDisk


class SimFile:
    """An open file of the simulated disk."""

    __slots__ = ("__weakref__", "_disk", "_inode", "_open", "_writable", "path")

    def __init__(self, disk: "SimDisk", inode: Inode, path: str, *, writable: bool) -> None:
        self.path: Final = path
        self._disk = disk
        self._inode = inode
        self._open = True
        self._writable = writable

    def _check(self, position: int) -> None:
        self._disk.faults.touch(self.path)
        if not self._open:
            raise os_error(errno.EBADF, self.path)
        if position < 0:
            raise os_error(errno.EINVAL, self.path)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Writes all bytes of all buffers, or raises; then any part may be written."""
        data = b"".join(buffers)
        if not data:
            return
        self._check(position)
        if not self._writable:
            raise os_error(errno.EBADF, self.path)
        self._disk.write(self._inode, self.path, Write(position, data))

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        self._check(min(position, size))
        return bytes(memoryview(self._inode.content)[position : position + size])

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fills the buffer as far as the file reaches, and says how far."""
        found = self.read_at(position, len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def size(self) -> int:
        """The size in bytes."""
        self._check(0)
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        """Truncates the file, or extends it with zeros."""
        self._check(size)
        if not self._writable:
            raise os_error(errno.EINVAL, self.path)
        self._disk.resize(self._inode, self.path, size)

    def sync(self) -> None:
        """Makes all that was written, and the size, survive a power cut."""
        self._check(0)
        self._disk.sync_file(self._inode, self.path)

    def fileno(self) -> int:
        """There is no handle of the operating system behind this."""
        raise OSError(errno.ENOTSUP, "a simulated file has no descriptor; read it instead", self.path)

    def close(self) -> None:
        """Ends the use of this handle; closing twice, or after a crash, is harmless."""
        self._open = False


class SimMapping:
    """A mapping of a simulated file: its `view` is the page cache itself, which cannot be resized meanwhile."""

    __slots__ = ("_disk", "_pages", "path")

    def __init__(self, disk: "SimDisk", inode: Inode, path: str) -> None:
        self.path: Final = path
        self._disk = disk
        self._pages: memoryview | None = memoryview(inode.content).toreadonly()

    @property
    def view(self) -> memoryview:
        """The whole file, read-only."""
        if self._pages is None:
            raise ValueError(f"the mapping of {self.path} is closed")
        # A memoryview counts no slices of itself, only buffers that other kinds of objects take of it.
        return memoryview(PickleBuffer(self._pages))

    def close(self) -> None:
        """Unmaps; raises BufferError while slices of `view` are alive. Closing twice, or after a crash, is harmless."""
        if self._pages is None:
            return
        try:
            self._pages.release()
        except BufferError:
            # What unwinds after a crash must meet the crash, and nothing that hides it.
            if not self._disk.faults.dead:
                message = f"{self.path} cannot be unmapped: views of it are in use; release them first"
                raise BufferError(message) from None
        self._pages = None


class SimLock:
    """A lock of the simulated disk; it ends with `release` or with the machine."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: "SimDisk", inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def release(self) -> None:
        """Lets others take it. Releasing twice, or after a crash, is harmless."""
        self._disk.unlock(self._inode, self)
