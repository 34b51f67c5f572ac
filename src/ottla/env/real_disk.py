"""The real disk: files, folders, mappings and locks of a POSIX system.

Implements the `Disk` port. Mappings come from the compiled `mapped_file`; `ottla.sim.disk` models what a power cut
does. Every OSError names its path.
"""

import asyncio
import errno
import fcntl
import logging
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from ottla.env.mapped_file import MappedFile
from ottla.env.system_calls import UNNAMED_FILE, preadv, pwritev, sync_data
from ottla.model.buffer import Buffer
from ottla.model.ids import TimestampMs

P = ParamSpec("P")
T = TypeVar("T")

IOV_MAX: Final = 1024
"""The limit of buffers in one gathered write on Linux."""

READ_UNCHECKED_BYTES_MAX: Final = 1 << 20
"""A larger read checks the file's size first, so that an absurd size does not allocate absurd memory."""

BACKGROUND_THREADS_MAX: Final = 16
"""Enough to keep several disks busy with syncs; the threads wait in the kernel, so that they cost the event loop
nothing."""

FILE_MODE: Final = 0o600
DIR_MODE: Final = 0o700
"""Records are for those whom the broker allows to read them, also in a data dir that others may enter."""
PARENT_DIR_MODE: Final = 0o777
"""Of the folders that lead to a data dir: what the umask leaves of it."""

_LOGGER: Final = logging.getLogger(__name__)
_NO_UNNAMED_FILES: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL})
"""How file systems and kernels refuse O_TMPFILE."""


def _warn_of_others(path: str) -> None:
    status = _status(path)
    if status is not None and status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        _LOGGER.warning(
            "%s has mode %o: other users of this machine have access, whatever ACLs say; restrict it with chmod %o %s",
            path,
            stat.S_IMODE(status.st_mode),
            DIR_MODE,
            path,
        )


class RealFile:
    """An open file. Do not close it while another thread uses it: await the sync first."""

    __slots__ = ("__weakref__", "_descriptor", "path")

    def __init__(self, path: str, flags: int) -> None:
        self._descriptor = -1
        self.path: Final = path
        self._descriptor = os.open(path, flags, FILE_MODE)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Writes all buffers (contiguous bytes), or raises; then any part may be written."""
        size = 0
        for buffer in buffers:
            size += len(buffer)
        if size == 0:
            return
        if position < 0:
            # The system call takes -1 for "where the last write ended".
            raise OSError(errno.EINVAL, f"cannot write at the negative position {position}", self.path)
        try:
            written = pwritev(self._descriptor, buffers, position) if len(buffers) <= IOV_MAX else 0
            if written != size:
                self._write_rest(position, buffers, written)
        except OSError as error:
            error.filename = self.path
            raise

    def _write_rest(self, position: int, buffers: Sequence[Buffer], written: int) -> None:
        """Continues after a short write, or writes in several steps if there are too many buffers."""
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
            written = pwritev(self._descriptor, rest[start : start + IOV_MAX], position)
            if written == 0:
                raise OSError(errno.EIO, "the disk accepts no more bytes and reports no error")
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
        """Reads into the buffer until it is full or the file ends; returns the number of bytes."""
        size = len(buffer)
        if position < 0:
            raise OSError(errno.EINVAL, f"cannot read at the negative position {position}", self.path)
        try:
            got = preadv(self._descriptor, [buffer], position)
            if got == size or got == 0:
                return got
            with memoryview(buffer) as view:
                while got < size and (found := preadv(self._descriptor, [view[got:]], position + got)):
                    got += found
            return got
        except OSError as error:
            error.filename = self.path
            raise

    def size(self) -> int:
        """The size in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            error.filename = self.path
            raise

    def truncate(self, size: int) -> None:
        """Truncates the file, or extends it with zeros."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            error.filename = self.path
            raise

    def sync(self) -> None:
        """Returns once everything that was written, and the size, would survive a power cut."""
        try:
            sync_data(self.fileno())
        except OSError as error:
            error.filename = self.path
            raise

    def fileno(self) -> int:
        """The file descriptor, for `sendfile`."""
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._descriptor

    def close(self) -> None:
        """Releases the handle; may be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class RealLock:
    """A lock file held by this process. Dropping the object does not release it: only `release` or the end of the
    process does."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Releases the lock; the file stays, empty. May be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        try:
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)


class RealDisk:
    """The operating system's file system. It can be pickled, so that a helper process can use the same files.

    Each instance has its own threads: with one `RealDisk` per device, a slow device does not delay the others.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._warned_of: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {"_threads": None, "_warned_of": set()}

    @property
    def boot_id(self) -> str:
        """The kernel's boot id."""
        try:
            return self.read("/proc/sys/kernel/random/boot_id").decode("ascii", "replace").strip()
        except OSError:
            return ""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        """Opens an existing file, or with `create` creates it if it is missing."""
        return RealFile(path, (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0))

    def open_scratch(self, folder: str) -> RealFile:
        """A new file without a name in this folder's file system."""
        if UNNAMED_FILE:
            try:
                return RealFile(folder, os.O_RDWR | UNNAMED_FILE)
            except OSError as error:
                if error.errno not in _NO_UNNAMED_FILES:
                    raise
        path = f"{folder}/scratch-{os.getpid()}-{os.urandom(8).hex()}.tmp"
        file = RealFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        os.remove(path)
        return file

    def map(self, path: str) -> MappedFile:
        """Maps a file for reading; it must not be resized while it is mapped."""
        return MappedFile(path)

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def exists(self, path: str) -> bool:
        """Whether a file or folder of this name exists; raises if the disk fails."""
        return _status(path) is not None

    def size(self, path: str) -> int:
        """The size in bytes."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> TimestampMs:
        """When the file was last written to, by the wall clock."""
        return TimestampMs(os.stat(path).st_mtime_ns // 1_000_000)

    def truncate(self, path: str, size: int) -> None:
        """Truncates the file, or extends it with zeros."""
        os.truncate(path, size)

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        """Whether a folder of this name exists; raises if the disk fails."""
        status = _status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def make_dir(self, path: str) -> None:
        """Creates a folder in an existing one, for its owner only; does nothing if it exists."""
        self._make_dir(path, DIR_MODE)

    def _make_dir(self, path: str, mode: int) -> None:
        try:
            os.mkdir(path, mode)
        except FileExistsError:
            if not self.is_dir(path):
                raise

    def make_dirs(self, path: str) -> None:
        """Creates the folder, for its owner only, and its parents; does nothing if it exists. Their names are synced.

        A folder that others can read or write is only warned about: the operator may have meant it.
        """
        missing = []
        folder = os.path.normpath(path)
        while not self.is_dir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder) or "."
        for folder in reversed(missing):
            self._make_dir(folder, DIR_MODE if folder == missing[0] else PARENT_DIR_MODE)
            self.sync_dir(os.path.dirname(folder) or ".")
        if not missing and path not in self._warned_of:
            self._warned_of.add(path)
            _warn_of_others(path)

    def remove(self, path: str) -> None:
        """Removes a file; raises if it is missing."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Removes a folder with everything in it; does nothing if it is missing."""
        while os.path.lexists(path):
            # A name that vanishes in the meantime is fine, but it ends the walk: walk again.
            try:
                shutil.rmtree(path)
            except FileNotFoundError:
                continue

    def rename(self, source: str, target: str) -> None:
        """Atomically renames a file or folder, replacing a file of the new name."""
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
        """The space of this path's file system that is free for unprivileged processes."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def total_bytes(self, path: str) -> int:
        """The size of this path's file system."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize

    def try_lock(self, path: str, owner: str) -> RealLock | str:
        """Takes an exclusive lock and writes `owner` into the file; if the lock is held, returns its owner.

        The system drops the lock when the process ends. `owner` is for operators: it should name the program, the
        process id and the machine.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 4096, 0).decode(errors="replace").strip()
            os.close(descriptor)
            return text or "a process that has not written its name yet"
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
        """Runs blocking disk work in a thread, so that the event loop is not blocked.

        Cancelling the caller does not stop work that has begun.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(BACKGROUND_THREADS_MAX, thread_name_prefix="ottla-disk")
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Waits for running background work and ends the threads; the next call starts new ones."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown()


def _status(path: str) -> os.stat_result | None:
    """None only if the name does not exist: a broken disk must not look like an empty one."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
