"""Notices at once when another process on this machine dies that holds a lease.

A process handle (`pidfd`) becomes readable when the process ends. Where a handle cannot be opened, for example for a
process in another container, or with a Python that was built without `os.pidfd_open`, the lease must expire.
`lease_owner.py` decides whether an owner is dead.
"""

import asyncio
import os
from collections.abc import Callable, Iterable

from ottla.metadata.lease_owner import LeaseOwner, can_be_seen


class OwnerWatch:
    """Belongs to one event loop. `on_gone` is called for each watched process that ends, or had ended before."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone
        self._handles: dict[tuple[int, str], int] = {}

    def watch(self, owners: Iterable[LeaseOwner]) -> None:
        """Watches the processes of these owners, and no others."""
        if not hasattr(os, "pidfd_open"):
            return
        wanted = {(owner.pid, owner.start_ticks) for owner in owners if owner.pid != os.getpid() and can_be_seen(owner)}
        for process in self._handles.keys() - wanted:
            self._drop(process)
        for process in sorted(wanted - self._handles.keys()):
            try:
                handle = os.pidfd_open(process[0])
            except ProcessLookupError:
                # It ended before it could be watched.
                asyncio.get_running_loop().call_soon(self._on_gone)
                continue
            except OSError:
                # It cannot be watched; the next check of the leases finds out whether it has ended.
                continue
            self._handles[process] = handle
            asyncio.get_running_loop().add_reader(handle, self._on_readable, process)

    def close(self) -> None:
        """Stops watching."""
        for process in list(self._handles):
            self._drop(process)

    def _on_readable(self, process: tuple[int, str]) -> None:
        # Once is enough: the handle stays readable.
        self._drop(process)
        self._on_gone()

    def _drop(self, process: tuple[int, str]) -> None:
        handle = self._handles.pop(process)
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)
