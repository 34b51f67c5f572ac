"""What the simulated disk hands out: open files, mappings and locks.

They carry out single operations on an `Inode`, with the errors a real system gives, and count each with `Faults`.
"""

import errno
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.env.ports import Buffer
from ottla.model.errors import MisuseError
from ottla.sim.folders import os_error
from ottla.sim.inode import Inode, Write

if TYPE_CHECKING:
    from ottla.sim.disk import SimDisk

RESERVE_STEP_BYTES: Final = 16 * 1024
"""The same steps as the real mapping's."""


class SimFile:
    """An open file of the simulated disk."""

    __slots__ = ("_disk", "_inode", "_open", "_writable", "path")

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
        """In bytes."""
        self._check(0)
        return len(self._inode.content)

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros."""
        self._check(size)
        if not self._writable:
            raise os_error(errno.EINVAL, self.path)
        self._disk.resize(self._inode, self.path, size)

    def sync(self) -> None:
        """Makes all that was written, and the size, survive a power cut."""
        self._check(0)
        self._disk.sync_file(self._inode, self.path, "sync")

    def fileno(self) -> int:
        """There is no handle of the operating system behind this."""
        raise OSError(errno.ENOTSUP, "a simulated file has no descriptor; read it instead", self.path)

    def close(self) -> None:
        """Ends the use of this handle; closing twice, or after a crash, is harmless."""
        self._open = False


class SimMapping:
    """A mapping of a simulated file: its `view` is the page cache itself."""

    __slots__ = ("__weakref__", "_disk", "_inode", "_pages", "_reserved", "path", "writable")

    def __init__(self, disk: "SimDisk", inode: Inode, path: str, *, writable: bool) -> None:
        self.path: Final = path
        self.writable: Final = writable
        self._disk = disk
        self._inode = inode
        self._pages: memoryview | None = memoryview(inode.content)
        self._reserved = 0
        inode.mappings.add(self)
        inode.mapped = inode.mapped or writable

    @property
    def view(self) -> memoryview:
        """The whole mapping; writable if it was asked for."""
        pages = self._check()
        return pages[:] if self.writable else pages.toreadonly()

    def __len__(self) -> int:
        return len(self._check())

    def _check(self) -> memoryview:
        if self._pages is None:
            raise ValueError(f"the mapping of {self.path} is closed")
        return self._pages

    def reserve(self, size: int) -> None:
        """Gives the first `size` bytes room on disk, or raises."""
        mapped_bytes = len(self._check())
        if not self.writable:
            raise ValueError(f"{self.path} is mapped read-only, so there is nothing to reserve")
        if not 0 <= size <= mapped_bytes:
            raise ValueError(f"cannot reserve {size} bytes of {self.path}, which is mapped with {mapped_bytes}")
        if size <= self._reserved:
            return
        wanted = min(mapped_bytes, -(-size // RESERVE_STEP_BYTES) * RESERVE_STEP_BYTES)
        self._disk.reserve(self._inode, self.path, wanted)
        self._reserved = wanted

    def sync(self) -> None:
        """Makes what was written through the mapping survive a power cut."""
        self._check()
        self._check_stores()
        self._disk.sync_file(self._inode, self.path, "msync")

    def close(self) -> None:
        """Unmaps; raises BufferError while slices of `view` are alive. Closing twice, or after a crash, is harmless."""
        if self._pages is None:
            return
        self._pages.release()
        self._pages = None
        self._inode.mappings.discard(self)
        try:
            # Python refuses to resize a buffer that somebody looks at; another mapping of the file hides that.
            if self._inode.content and not self._inode.mappings:
                self._inode.content.append(self._inode.content.pop())
        except BufferError:
            self._pages = memoryview(self._inode.content)
            self._inode.mappings.add(self)
            raise BufferError(f"{self.path} cannot be unmapped: views of it are in use; release them first") from None
        self._check_stores()

    def _check_stores(self) -> None:
        """A store beyond what was reserved goes well until the day the disk is full; then it kills the process."""
        inode = self._inode
        beyond = inode.content[inode.room_bytes :]
        if self.writable and beyond != bytes(len(beyond)):
            raise MisuseError(
                f"{self.path} was written through its mapping beyond byte {inode.room_bytes}, which was never "
                "reserved: on a full disk that is a SIGBUS; call reserve first"
            )


class SimLock:
    """A lock of the simulated disk; it ends with `release` or with the machine."""

    __slots__ = ("_disk", "_inode")

    def __init__(self, disk: "SimDisk", inode: Inode) -> None:
        self._disk = disk
        self._inode = inode

    def release(self) -> None:
        """Lets others take it. Releasing twice, or after a crash, is harmless."""
        self._disk.unlock(self._inode, self)
