"""The real disk: files, folders, mappings and locks of a POSIX system.

Covers the `Disk` port. Mappings come from the compiled `mapped_file`; what a power cut would do to all this is modelled
by `ottla.sim.disk`. Every OSError names the path it is about.
"""

import asyncio
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from ottla.env.mapped_file import MappedFile
from ottla.model.buffer import Buffer
from ottla.model.ids import TimestampMs

P = ParamSpec("P")
T = TypeVar("T")

IOV_MAX: Final = 1024
"""How many buffers Linux takes in one gathered write."""

READ_UNCHECKED_BYTES_MAX: Final = 1 << 20
"""A read of more than this looks at the file's size first, so that an absurd size does not allocate absurd memory."""

BACKGROUND_THREADS_MAX: Final = 16
"""Enough to keep several disks busy with syncs; the threads wait in the kernel, so they cost the event loop nothing."""

FILE_MODE: Final = 0o644


class RealFile:
    """An open file. Not to be closed while another thread still works on it: await the sync first."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._descriptor = -1
        self.path: Final = path
        self._descriptor = os.open(path, flags, FILE_MODE)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Writes all bytes of all buffers (of bytes, contiguous), or raises; then any part may be written."""
        size = 0
        for buffer in buffers:
            size += len(buffer)
        if size == 0:
            return
        if position < 0:
            # The system call takes -1 for "wherever the last write ended".
            raise OSError(errno.EINVAL, f"cannot write at the negative position {position}", self.path)
        try:
            written = os.pwritev(self._descriptor, buffers, position) if len(buffers) <= IOV_MAX else 0
            if written != size:
                self._write_rest(position, buffers, written)
        except OSError as error:
            error.filename = self.path
            raise

    def _write_rest(self, position: int, buffers: Sequence[Buffer], written: int) -> None:
        """Continues after a short write, or gathers in several turns when there are too many buffers for one."""
        rest = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer) > 0]
        start = 0
        position += written
        while True:
            while start < len(rest) and written >= len(rest[start]):
                written -= len(rest[start])
                start += 1
            if start == len(rest):
                return
            rest[start] = rest[start][written:]
            written = os.pwritev(self._descriptor, rest[start : start + IOV_MAX], position)
            if written == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes and gives no reason")
            position += written

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        try:
            if size > READ_UNCHECKED_BYTES_MAX:
                size = max(0, min(size, os.fstat(self._descriptor).st_size - position))
            found = os.pread(self._descriptor, size, position)
            if len(found) == size or not found:
                return found
            pieces = [found]
            got = len(found)
            while got < size and (found := os.pread(self._descriptor, size - got, position + got)):
                pieces.append(found)
                got += len(found)
            return b"".join(pieces)
        except OSError as error:
            error.filename = self.path
            raise

    def read_into(self, position: int, buffer: bytearray | memoryview) -> int:
        """Fills the buffer as far as the file reaches, and says how far."""
        size = len(buffer)
        if position < 0:
            raise OSError(errno.EINVAL, f"cannot read at the negative position {position}", self.path)
        try:
            got = os.preadv(self._descriptor, [buffer], position)
            if got == size or got == 0:
                return got
            with memoryview(buffer) as view:
                while got < size and (found := os.preadv(self._descriptor, [view[got:]], position + got)):
                    got += found
            return got
        except OSError as error:
            error.filename = self.path
            raise

    def size(self) -> int:
        """In bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            error.filename = self.path
            raise

    def truncate(self, size: int) -> None:
        """Cuts the file, or extends it with zeros."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            error.filename = self.path
            raise

    def sync(self) -> None:
        """Returns once all that was written, and the size, would survive a power cut."""
        try:
            os.fdatasync(self.fileno())
        except OSError as error:
            error.filename = self.path
            raise

    def fileno(self) -> int:
        """The handle, for `sendfile`."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._descriptor

    def close(self) -> None:
        """Gives the handle back; closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class RealLock:
    """A lock file held by this process. Forgetting the object does not release it: only `release` or the end does."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Lets others take it; the file stays, empty. Releasing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


class RealDisk:
    """The operating system's file system. It pickles, so that a helper process can work on the same files.

    Each has its own few threads: with one `RealDisk` per device, a slow one does not hold up the others.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_threads": None}

    @property
    def boot_id(self) -> str:
        """The kernel's own name for this life of the machine."""
        try:
            return self.read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
        except OSError:
            return ""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        """Opens an existing file, or with `create` makes it if it is missing."""
        return RealFile(path, (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0))

    def map(self, path: str) -> MappedFile:
        """Maps a file for reading; it must not be resized while it is mapped."""
        return MappedFile(path)

    def read(self, path: str) -> bytes:
        """The whole of a small file."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def exists(self, path: str) -> bool:
        """Whether a file or folder has this name; a disk that cannot tell raises."""
        return _status(path) is not None

    def size(self, path: str) -> int:
        """In bytes."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> TimestampMs:
        """When the file was last written to, by the wall clock."""
        return TimestampMs(os.stat(path).st_mtime_ns // 1_000_000)

    def truncate(self, path: str, size: int) -> None:
        """Cuts the file, or extends it with zeros."""
        os.truncate(path, size)

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        """Whether a folder has this name; a disk that cannot tell raises."""
        status = _status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def make_dir(self, path: str) -> None:
        """One folder in an existing one; nothing happens if it is there."""
        try:
            os.mkdir(path)
        except FileExistsError:
            if not self.is_dir(path):
                raise

    def make_dirs(self, path: str) -> None:
        """The folder and those above it; nothing happens if it is there. Their names are synced."""
        missing = []
        folder = os.path.normpath(path)
        while not self.is_dir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder) or "."
        for folder in reversed(missing):
            self.make_dir(folder)
            self.sync_dir(os.path.dirname(folder) or ".")

    def remove(self, path: str) -> None:
        """Removes a file; missing is an error."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Removes a folder with all in it; missing is not an error."""
        while os.path.lexists(path):
            # A name that vanishes under our hands is what was wanted, but it stops the walk: walk again.
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue

    def rename(self, source: str, target: str) -> None:
        """Atomically gives a file or folder another name, replacing a file of that name."""
        os.replace(source, target)

    def sync_dir(self, path: str) -> None:
        """Returns once the names in this folder would survive a power cut."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def free_bytes(self, path: str) -> int:
        """What a process without privileges may still write on this path's file system."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        """The size of this path's file system."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def try_lock(self, path: str, owner: str) -> RealLock | str:
        """Takes an exclusive lock and writes `owner` into the file; or, if it is held, answers who holds it.

        The system drops the lock when the process ends, however it ends. `owner` is for people: let it name the
        program, the process id and the machine.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
            os.close(descriptor)
            return text or "a process that has not yet written its name"
        except OSError as error:
            os.close(descriptor)
            error.filename = path
            raise
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner.encode(), 0)
        except OSError as error:
            os.close(descriptor)
            error.filename = path
            raise
        return RealLock(descriptor)

    async def in_background(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs what waits for the disk in a thread, so that the event loop does not.

        Cancelling the caller does not stop work that has begun.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(BACKGROUND_THREADS_MAX, thread_name_prefix="ottla-disk")
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Waits for what still runs in the background and ends its threads; the next call starts others."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()


def _status(path: str) -> os.stat_result | None:
    """None only where there is nothing: a broken disk must not look like an empty one."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
