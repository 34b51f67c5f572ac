"""The first seed of this commit: each commit is tried with seeds that no other commit was tried with.

`python -m tests.simulation.first_seed` prints it. Without Git the clock decides.
"""

import subprocess
import time
from pathlib import Path
from typing import Final

COMMITS: Final = 1_000_000
"""Numbers of commits, so that two commits seldom have the same one, and seeds have nine digits."""
SEEDS: Final = 1_000
"""More than `make test-sim` tries of one commit."""


def first_seed(commit: str) -> int:
    """The first of the seeds that belong to a commit, by its hash."""
    return int(commit, 16) % COMMITS * SEEDS


def current_commit() -> str:
    """The hash of the commit that is checked out; without one, the time in hexadecimal."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    ended = subprocess.run(git, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else f"{time.time_ns() // 1_000_000_000:x}"


if __name__ == "__main__":
    print(first_seed(current_commit()))
