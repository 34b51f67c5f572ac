"""What a test may leave in its own process: open files, child processes and threads."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_until


class Leftovers:
    """What this process holds, to be compared with what it held before: less is fine, more is a leak."""

    def __init__(self) -> None:
        self.files = len(os.listdir("/proc/self/fd"))
        self.children = children(os.getpid())
        self.threads = set(threading.enumerate())

    def check(self) -> None:
        """Fails if the process still holds more than when this was made, after all had time to end.

        An executor's threads end on their own, and a thread of another test's broker may have a file open for a moment.
        """
        with suppress(AssertionError):  # what is left is said below
            wait_until(lambda: not self._is_exceeded_by(Leftovers()))
        now = Leftovers()
        assert now.files <= self.files
        assert set() == now.children - self.children
        assert set() == now.threads - self.threads

    def _is_exceeded_by(self, now: "Leftovers") -> bool:
        return now.files > self.files or not now.children <= self.children or not now.threads <= self.threads


def children(parent: int) -> set[int]:
    """The process ids of the children of a process, of whichever of its threads; zombies are children too."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            # A process may end between the listing and the read.
            with suppress(FileNotFoundError, ProcessLookupError):
                # The name in parentheses may hold spaces and parentheses; behind it come the state and the parent.
                _, parent_field, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(parent_field) == parent:
                    found.add(int(folder.name))
    return found
