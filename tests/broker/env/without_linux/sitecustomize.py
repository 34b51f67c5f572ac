"""Takes from each Python process that has this folder on its PYTHONPATH what only Linux has: calls, flags and /proc."""

import ctypes
import os
import socket
import sys
from typing import Any

CALLS = ("fdatasync", "memfd_create", "pidfd_open", "preadv", "pwritev", "sendfile", "O_TMPFILE")

for name in CALLS:
    delattr(os, name)
del socket.MSG_MORE


def hide_proc(event: str, values: tuple[Any, ...]) -> None:
    """Files of /proc and /sys are not found."""
    if event == "open" and isinstance(values[0], str) and values[0].startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "No such file or directory", values[0])


def readlink(path: Any, *, dir_fd: int | None = None) -> Any:
    """As `os.readlink`, without /proc."""
    if str(path).startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", path)
    return real_readlink(path, dir_fd=dir_fd)


class Library(ctypes.CDLL):
    """A C library without inotify."""

    def __getattr__(self, name: str) -> Any:
        """Other functions are as they are."""
        if name.startswith("inotify"):
            raise AttributeError(name)
        return super().__getattr__(name)


real_readlink = os.readlink
os.readlink = readlink
ctypes.CDLL = Library  # type: ignore[misc]
sys.addaudithook(hide_proc)
