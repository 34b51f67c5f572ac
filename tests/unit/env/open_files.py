"""Which files this process holds open, as the operating system sees it."""

import os
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """The open files in this folder; others come and go with threads and garbage collection."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:
            continue
        if target.startswith(str(folder)):
            found.append(target)
    return found
