"""How long and with which seed: seconds and seed from the environment, and the tasks that fill the time."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Final

FUZZ_SECONDS: Final = float(os.environ.get("OTTLA_HOSTILE_SECONDS", "20"))
SEED: Final = int(os.environ.get("OTTLA_HOSTILE_SEED", "1"))
WORKERS: Final = 4


def repeat(task: Callable[[Random], None], seconds: float, *, workers: int = WORKERS) -> int:
    """Runs a task again and again in a few threads, each with its own random numbers; answers how often.

    The first failure ends it and is raised, with the seed that leads to it.
    """
    deadline = time.monotonic() + seconds

    def work(number: int) -> int:
        rounds = 0
        while time.monotonic() < deadline:
            seed = f"{SEED}-{number}-{rounds}"
            try:
                task(Random(seed))
            except BaseException as error:
                error.add_note(f"with Random({seed!r})")
                raise
            rounds += 1
        return rounds

    with ThreadPoolExecutor(workers) as pool:
        return sum(pool.map(work, range(workers)))
