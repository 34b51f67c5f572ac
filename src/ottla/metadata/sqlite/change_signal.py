"""Wakes the processes of one machine that share a file: one touches a small file beside it, inotify wakes the others.

Polling a shared SQLite file every few milliseconds would cost each broker CPU time, and polling less often would delay
every change. inotify costs nothing while nothing happens. It is only a hint: a process that is killed between its
commit and its touch wakes no other, the number of inotify handles is limited, and only Linux has inotify, so watchers
also poll now and then.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_IN_ATTRIB: Final = 0x4
_READ_BYTES: Final = 65_536


class ChangeSignal:
    """`touch` may be called from any thread; `watch` and `close` belong to the event loop."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._inotify = -1

    def watch(self, on_touched: Callable[[], None]) -> None:
        """Calls back from the running loop after each touch, also of this process; several touches may cause one call.
        Creates the file if it is missing. If the kernel has no inotify or no handle left, there are no calls."""
        with suppress(OSError):
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(libc, "inotify_init1"):
            return
        inotify = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if inotify < 0:
            return
        if libc.inotify_add_watch(inotify, os.fsencode(self._path), _IN_ATTRIB) < 0:
            os.close(inotify)
            return
        self._inotify = inotify

        def on_readable() -> None:
            with suppress(BlockingIOError):
                os.read(inotify, _READ_BYTES)
            on_touched()

        asyncio.get_running_loop().add_reader(inotify, on_readable)

    def touch(self) -> None:
        """Wakes the watchers; does nothing if the file cannot be touched."""
        with suppress(OSError):
            os.utime(self._path)

    def close(self) -> None:
        """Stops watching; does nothing if it is not watching."""
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1
