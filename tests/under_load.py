"""Runs suites on a machine in a bad mood: `python -m tests.under_load [--rounds 3] [SUITE...]`, for example `test`.

Beside each suite run four busy loops, and every second or two one of the suite's processes is stopped for two seconds
(SIGSTOP), as if the machine had taken its core away. All must pass, as often as `--rounds` says: what fails here fails
by chance elsewhere. A test that fails is not run again.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from tests.ci_steps import LOGS, STEPS, Run, Step, look, processes_of, start, stop

SUITES: Final = tuple(step.name for step in STEPS if step.name.startswith("make test"))
BUSY_LOOPS: Final = 4
STOPPED_SECONDS: Final = 2.0
PAUSE_SECONDS: Final = (0.5, 2.0)
SLOWER: Final = 6
"""How many times longer than alone a suite may take."""


@contextmanager
def busy_loops() -> Iterator[None]:
    """Processes that keep the cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops a process, unless it has ended, and lets it go on in the end."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def run_suite(step: Step, chance: random.Random) -> Run:
    """Returns when the suite has ended."""
    run = start(step)
    try:
        while not look(run):
            pids = sorted(set(processes_of(step)) - {run.process.pid})
            if pids:
                with stopped(chance.choice(pids)):
                    time.sleep(STOPPED_SECONDS)
            time.sleep(chance.uniform(*PAUSE_SECONDS))
    finally:
        stop(run, signal.SIGKILL)
    return run


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs suites beside busy loops, and stops their processes at random.")
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help="'make test', 'make test-sim', ...; all if none is given"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often all must pass in a row (default: 3)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="chooses what is stopped, and when")
    options = parser.parse_args()
    steps = {step.name: step for step in STEPS}
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"no such suite: {', '.join(sorted(unknown))}; there are: {', '.join(SUITES)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"--seed {options.seed}", flush=True)
    chance = random.Random(options.seed)
    for number in range(1, options.rounds + 1):
        for name in options.suites or SUITES:
            step = Step(name=name, minutes=SLOWER * steps[name].minutes, cores=2)
            with busy_loops():
                run = run_suite(step, chance)
            print(f"round {number}: {name}: status {run.status} after {run.seconds:.0f} s; {run.log}", flush=True)
            if run.status:
                print(run.log.read_text(errors="replace")[-4000:])
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
