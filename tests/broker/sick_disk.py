"""A real disk whose files of some partition fail or hang as told, as a full, broken or dying one does."""

import errno
import os
import threading
from collections.abc import Sequence

from ottla.env.real_disk import RealDisk, RealFile
from ottla.model.buffer import Buffer

HANG_SECONDS_MAX = 60.0


class SickFile(RealFile):
    """Asks its disk before it writes or syncs."""

    __slots__ = ("disk",)

    disk: "SickDisk"

    def read_at(self, position: int, size: int) -> bytes:
        self.disk.wait_read(self.path)
        return super().read_at(position, size)

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> None:
        self.disk.check("write", self.path)
        super().write_at(position, buffers)

    def sync(self) -> None:
        self.disk.check("sync", self.path)
        self.disk.wait_sync(self.path)
        super().sync()


class SickDisk(RealDisk):
    """`fail` says which operation fails, in whose folder, and how; `hang` and `hang_reads`, whose syncs and reads hang.

    `heal` ends all.
    """

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[tuple[str, str], int] = {}
        self._hanging = ""
        self._hanging_reads = ""
        self._is_well = threading.Event()
        self.failed = 0
        """How often something was refused."""
        self.hung = 0
        """How many syncs and reads have hung."""

    def fail(self, operation: str, folder: str, code: int = errno.EIO) -> None:
        self._failures[operation, folder] = code

    def hang(self, folder: str) -> None:
        self._hanging = folder
        self._is_well.clear()

    def hang_reads(self, folder: str) -> None:
        self._hanging_reads = folder
        self._is_well.clear()

    def heal(self) -> None:
        self._failures.clear()
        self._hanging = self._hanging_reads = ""
        self._is_well.set()

    def wait_sync(self, path: str) -> None:
        self._wait(path, self._hanging)

    def wait_read(self, path: str) -> None:
        # The event loop goes on.
        if threading.current_thread() is not threading.main_thread():
            self._wait(path, self._hanging_reads)

    def _wait(self, path: str, hanging: str) -> None:
        if path.endswith(".log") and path.split("/")[-2] == hanging:
            self.hung += 1
            if not self._is_well.wait(HANG_SECONDS_MAX):
                raise TimeoutError(path)

    def check(self, operation: str, path: str) -> None:
        code = self._failures.get((operation, path.split("/")[-2]))
        if code is not None and path.endswith(".log"):
            self.failed += 1
            raise OSError(code, os.strerror(code), path)

    def make_dirs(self, path: str) -> None:
        self._check_dir(path)
        super().make_dirs(path)

    def make_dir(self, path: str) -> None:
        self._check_dir(path)
        super().make_dir(path)

    def _check_dir(self, path: str) -> None:
        code = self._failures.get(("make_dir", path.split("/")[-1]))
        if code is not None:
            self.failed += 1
            raise OSError(code, os.strerror(code), path)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> RealFile:
        self.check("open", path)
        file = SickFile(path, (os.O_RDWR if writable else os.O_RDONLY) | (os.O_CREAT if create else 0))
        file.disk = self
        return file
