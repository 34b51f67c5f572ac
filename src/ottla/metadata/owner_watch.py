"""Tells at once when another process of this machine dies that holds a lease.

A handle on the process (`pidfd`) becomes readable when it ends, however it ends. Where there is none to be had, as for
a process in another container, nothing is told, and the lease has to expire. Whether an owner is dead is decided in
`lease_owner.py`.
"""

import asyncio
import os
from collections.abc import Callable, Iterable

from ottla.metadata.lease_owner import LeaseOwner, can_be_seen


class OwnerWatch:
    """Belongs to one event loop. `on_gone` is called for each watched process that ends."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone
        self._handles: dict[tuple[int, str], int] = {}

    def watch(self, owners: Iterable[LeaseOwner]) -> None:
        """Watches these owners' processes, and no others any more."""
        wanted = {(owner.pid, owner.start_ticks) for owner in owners if owner.pid != os.getpid() and can_be_seen(owner)}
        for process in self._handles.keys() - wanted:
            self._drop(process)
        for process in sorted(wanted - self._handles.keys()):
            try:
                handle = os.pidfd_open(process[0])
            except OSError:
                # It has ended already, or cannot be watched: a look at the leases tells the one from the other.
                continue
            self._handles[process] = handle
            asyncio.get_running_loop().add_reader(handle, self._on_readable, process)

    def close(self) -> None:
        """Watches nobody any more."""
        for process in list(self._handles):
            self._drop(process)

    def _on_readable(self, process: tuple[int, str]) -> None:
        # Once is enough: it stays readable.
        self._drop(process)
        self._on_gone()

    def _drop(self, process: tuple[int, str]) -> None:
        handle = self._handles.pop(process)
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
