"""A filesystem of a few megabytes, held in memory, that can be filled to its last byte and be given room again."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.processes import run

CHUNK: Final = bytes(1 << 16)


class SmallFilesystem:
    """Mounted at `path`; made by `small_filesystem`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def free_bytes(self) -> int:
        """What is left."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Takes all the room but so much."""
        with self._filler.open("ab", buffering=0) as filler:
            while (left := self.free_bytes() - leave_bytes) > 0:
                try:
                    filler.write(CHUNK[: min(left, len(CHUNK))])
                except OSError:
                    return

    def make_room(self) -> None:
        """Gives back what `fill` took."""
        self._filler.unlink(missing_ok=True)


def cannot_mount() -> str | None:
    """Why there can be no such filesystem here; None if there can."""
    if os.geteuid() == 0 and _try_mount():
        return None
    return "a small filesystem can be mounted only by root, where the system allows it to mount"


def _try_mount() -> bool:
    with TemporaryDirectory() as folder:
        if _run("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder) != 0:
            return False
        return _run("umount", folder) == 0


@contextmanager
def small_filesystem(path: Path, size_mib: int) -> Iterator[SmallFilesystem]:
    """Mounted while the block runs."""
    path.mkdir()
    if _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(path)) != 0:
        raise RuntimeError(f"cannot mount a filesystem at {path}")
    try:
        yield SmallFilesystem(path)
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> int:
    try:
        return run(command, status=None).returncode
    except FileNotFoundError:
        return -1
