"""A data dir: the file system below it, its space, and its speed, measured for at most about two seconds.

Speed is measured with an unnamed file in the data dir, or in the folder that it will be created in; the system deletes
the file even if the process is killed.
"""

import fcntl
import os
import re
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from ottla.cli.doctor.facts import Disk
from ottla.cli.doctor.probes.machine import text_of
from ottla.storage.data_dirs.names import LOCK

WRITE_SECONDS_MAX: Final = 0.6
SYNC_SECONDS_MAX: Final = 0.6
WRITE_BYTES_MAX: Final = 128 << 20
FREE_SHARE_MAX: Final = 0.05
"""The measurement never takes more of the free space than this."""
_PIECE: Final = os.urandom(1 << 20)
_APPEND: Final = _PIECE[:4096]
_ESCAPE: Final = re.compile(r"\\(\d{3})")


def probe_disk(path: str) -> Disk:
    """The data dir's facts; it need not exist."""
    data_dir = Path(path).absolute()
    folder = next(each for each in (data_dir, *data_dir.parents) if each.exists())
    space = os.statvfs(folder)
    free = space.f_bavail * space.f_frsize
    kind, mount_point, options = _mount(folder)
    failure, speed, syncs = _measure(folder, free)
    return Disk(
        path=path,
        exists=folder == data_dir,
        probed=str(folder),
        failure=failure,
        mode=stat.S_IMODE(folder.stat().st_mode) if folder == data_dir else None,
        lock_owner=_lock_owner(data_dir / LOCK),
        free_bytes=free,
        total_bytes=space.f_blocks * space.f_frsize,
        free_inodes=space.f_favail if space.f_files else None,
        file_system=kind,
        mount_point=mount_point,
        mount_options=options,
        write_bytes_per_second=speed,
        sync_ms=syncs,
    )


def _measure(folder: Path, free_bytes: int) -> tuple[str | None, float | None, tuple[float, ...]]:
    """Why nothing can be written, bytes per second, and the milliseconds of each sync."""
    try:
        if not folder.is_dir():
            return f"{folder} is not a folder", None, ()
        with tempfile.TemporaryFile(dir=folder, prefix=".ottla-doctor-", buffering=0) as file:
            speed = _write_speed(file.fileno(), min(WRITE_BYTES_MAX, int(free_bytes * FREE_SHARE_MAX)))
            return None, speed, _sync_times(file.fileno())
    except OSError as error:
        return f"cannot write to {folder}: {error.strerror}", None, ()


def _write_speed(descriptor: int, bytes_max: int) -> float | None:
    started = time.perf_counter()
    written = 0
    while written + len(_PIECE) <= bytes_max and time.perf_counter() - started < WRITE_SECONDS_MAX:
        written += os.write(descriptor, _PIECE)
    os.fsync(descriptor)
    return written / (time.perf_counter() - started) if written else None


def _sync_times(descriptor: int) -> tuple[float, ...]:
    times: list[float] = []
    started = time.perf_counter()
    while not times or (time.perf_counter() - started < SYNC_SECONDS_MAX and len(times) < 1000):
        os.write(descriptor, _APPEND)
        before = time.perf_counter()
        os.fsync(descriptor)
        times.append((time.perf_counter() - before) * 1000)
    return tuple(times)


def _lock_owner(lock: Path) -> str | None:
    """The running broker that holds the data dir's lock; None if there is none."""
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 4096, 0).decode(errors="replace").strip() or "unknown process"
    finally:
        os.close(descriptor)
    return None


def _mount(folder: Path) -> tuple[str | None, str | None, frozenset[str]]:
    """The kind of file system, where it is mounted, and its options."""
    return mount_of(str(folder.resolve()), text_of(Path("/proc/self/mountinfo")) or "")


def mount_of(folder: str, mountinfo: str) -> tuple[str | None, str | None, frozenset[str]]:
    """The mount that a folder is on, from the kernel's table: the longest mount point above it, the last of equals."""
    best: tuple[str | None, str | None, frozenset[str]] = (None, None, frozenset())
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        if len(fields.split()) < 6 or len(rest.split()) < 3:
            continue
        # The kernel writes spaces and the like as octal escapes.
        point = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields.split()[4])
        is_above = folder == point or folder.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(best[1] or ""):
            # Those of the mount and those of the file system: it is read-only if one of them says so.
            options = frozenset([*fields.split()[5].split(","), *rest.split()[2].split(",")])
            best = (rest.split()[0], point, options)
    return best
