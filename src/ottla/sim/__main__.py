"""Runs simulations of a cluster from one seed or many. docs/simulation.md explains them."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from ottla.sim.mutants.planted import MUTANTS
from ottla.sim.report import Report, simulate
from ottla.sim.swarm import SCENARIOS

SHOWN_MAX: Final = 5
"""The number of violations of one seed that are printed."""
TOLD_EVERY: Final = 50
"""Progress is printed after this number of seeds if there is no terminal."""
EXAMPLES: Final = """examples:
  python -m ottla.sim --seed 104 --trace
  python -m ottla.sim --seeds 0..100 --jobs 2
  python -m ottla.sim --seeds 0..20 --scenario power --mutant "lost disks are trusted"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m ottla.sim",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="one seed")
    which.add_argument("--seeds", type=_seeds, metavar="A..B", help="the seeds from A up to B, without B")
    parser.add_argument("--trace", action="store_true", help="print what happened, line by line")
    parser.add_argument("--mutant", choices=list(MUTANTS), metavar="NAME", help="plant this bug (docs/simulation.md)")
    parser.add_argument("--scenario", choices=list(SCENARIOS), default="swarm", help="workloads and faults of a run")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    options = parser.parse_args(arguments)
    seeds = options.seeds if options.seed is None else range(options.seed, options.seed + 1)
    one = partial(simulate, mutant=options.mutant, scenario=options.scenario)
    if len(seeds) > 1:
        # One process per seed: a run must not be affected by what an earlier run left in memory.
        with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool:
            reports = _told(pool.map(one, seeds), len(seeds), options.trace)
    else:
        reports = _told(map(one, seeds), len(seeds), options.trace)
    bad = [each.seed for each in reports if each.violations]
    print(
        f"{len(reports)} seeds, {sum(each.faults for each in reports)} faults injected, "
        f"{sum(each.seconds for each in reports) / 3600:.2f} virtual hours, "
        f"{sum(each.checks for each in reports)} checks, "
        + (f"VIOLATIONS with seeds {', '.join(map(str, bad))}" if bad else "no violation")
    )
    return 1 if bad else 0


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not dots or not first.isdecimal() or not last.isdecimal() or int(first) >= int(last):
        raise argparse.ArgumentTypeError(f"{text!r} is not A..B with A below B, as in 0..100")
    return range(int(first), int(last))


def _told(reports: Iterable[Report], total: int, trace: bool) -> list[Report]:
    told: list[Report] = []
    shows_all = sys.stderr.isatty()
    for report in reports:
        if trace:
            print("\n".join(report.trace))
        for violation in report.violations[:SHOWN_MAX]:
            print(f"seed {report.seed}: {violation}", flush=True)
        if len(report.violations) > SHOWN_MAX:
            print(f"seed {report.seed}: and {len(report.violations) - SHOWN_MAX} more", flush=True)
        told.append(report)
        if total > 1 and (shows_all or len(told) % TOLD_EVERY == 0):
            bad = sum(bool(each.violations) for each in told)
            is_over = len(told) == total
            print(
                f"{len(told)} of {total} seeds, {bad} with violations",
                end="\r" if shows_all and not is_over else "\n",
                file=sys.stderr,
                flush=True,
            )
    return told


if __name__ == "__main__":
    sys.exit(main())
