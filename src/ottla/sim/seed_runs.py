"""Runs many seeds side by side, each in a process of its own, as long as a budget of time lasts."""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed, wait
from typing import Final

from ottla.sim.report import Report

PRELOADED: Final = ["ottla.sim.report"]
"""Imported once, by the process that those of the seeds are forked from."""


def take_within(
    seconds: float | None, seeds: Iterable[int], monotonic: Callable[[], float] = time.monotonic
) -> Iterator[int]:
    """Yields seeds until the time is up, at least one; all of them if there is no limit."""
    deadline = None if seconds is None else monotonic() + seconds
    for seed in seeds:
        yield seed
        if deadline is not None and monotonic() >= deadline:
            return


def run_seeds(simulate_one: Callable[[int], Report], seeds: Iterable[int], jobs: int) -> Iterator[Report]:
    """The reports of the seeds as they end. A seed is taken when one of the `jobs` can run it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)

    def run(seed: int) -> Report:
        # One process per seed: a run must not be affected by what an earlier run left in memory.
        with ProcessPoolExecutor(1, mp_context=context) as process:
            return process.submit(simulate_one, seed).result()

    with ThreadPoolExecutor(jobs) as threads:
        running: set[Future[Report]] = set()
        for seed in seeds:
            running.add(threads.submit(run, seed))
            if len(running) == jobs:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in ended)
        yield from (each.result() for each in as_completed(running))
