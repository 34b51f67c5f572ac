"""System calls that not every POSIX system has, each with what takes its place where it is missing.

The names without suffix are chosen once, when the module is imported. The replacements are as correct, but slower:
they copy, or sync more than is asked for. `real_disk.py` and `real_network.py` use them; tests switch the Linux calls
off.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final

from ottla.model.buffer import Buffer

COPY_BYTES_MAX: Final = 256 * 1024
"""How much of a file is copied through the process for one send."""

_FULL_SYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
"""On macOS, fsync only hands the data to the disk; this waits until the disk has stored it."""


def pwritev_by_pwrite(descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Writes several buffers as one; returns the number of bytes."""
    return os.pwrite(descriptor, b"".join(buffers), position)


def preadv_by_pread(descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
    """Reads into the first buffer; returns the number of bytes, 0 at the end of the file."""
    data = os.pread(descriptor, len(buffers[0]), position)
    buffers[0][: len(data)] = data
    return len(data)


def sync_data_by_fsync(descriptor: int) -> None:
    """Returns once everything that was written would survive a power cut."""
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            # Not every file system has it.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
        else:
            return
    os.fsync(descriptor)


def sendfile_by_copy(descriptor: int, file: int, position: int, size: int) -> int:
    """Sends a range of a file from a non-blocking socket; returns the number of bytes, 0 at the end of the file. Raises
    BlockingIOError if there is no room."""
    data = os.pread(file, min(size, COPY_BYTES_MAX), position)
    return os.write(descriptor, data) if data else 0


pwritev: Final[Callable[[int, Sequence[Buffer], int], int]] = getattr(os, "pwritev", pwritev_by_pwrite)
preadv: Final[Callable[[int, Sequence[bytearray | memoryview], int], int]] = getattr(os, "preadv", preadv_by_pread)
sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", sync_data_by_fsync)
sendfile: Final[Callable[[int, int, int, int], int]] = getattr(os, "sendfile", sendfile_by_copy)

UNNAMED_FILE: Final[int] = getattr(os, "O_TMPFILE", 0)
"""Opens a file without a name; 0 if the system has no such files."""
MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
"""Promises that another send follows at once; 0 if the system does not take it."""
KEEPALIVE_IDLE: Final[int] = getattr(socket, "TCP_KEEPIDLE", 0) or getattr(socket, "TCP_KEEPALIVE", 0x10)
"""The option for the time before the first keepalive probe, which macOS names differently."""


def has_kernel_tls() -> bool:
    """Whether the kernel can encrypt TCP connections: Linux with CONFIG_TLS, its module `tls` loaded."""
    try:
        with open("/proc/sys/net/ipv4/tcp_available_ulp", encoding="ascii") as offered:
            return "tls" in offered.read().split()
    except OSError:
        return False
