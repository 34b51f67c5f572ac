"""What a test may leave in its own process: open files, child processes and threads."""

import os
import threading
from contextlib import suppress
from pathlib import Path

# How long a thread may take to end after what it worked for was closed: an executor's threads end on their own.
SECONDS = 10


class Leftovers:
    """What this process holds, to be compared with what it held before: less is fine, more is a leak."""

    def __init__(self) -> None:
        self.files = len(os.listdir("/proc/self/fd"))
        self.children = children(os.getpid())
        self.threads = set(threading.enumerate())

    def check(self) -> None:
        """Fails if the process holds more than when this was made."""
        for thread in set(threading.enumerate()) - self.threads:
            thread.join(SECONDS)
        now = Leftovers()
        assert now.files <= self.files
        assert set() == now.children - self.children
        assert set() == now.threads - self.threads


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
