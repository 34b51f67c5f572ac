"""`python -m ottla.sim`: replays a cluster's life from a seed, or many. See docs/simulation.md."""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from ottla.sim.report import Report, simulate
from ottla.sim.swarm import SCENARIOS

SHOWN_MAX: Final = 5
"""Violations of one seed that are printed; the first says most."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; answers its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ottla.sim", description=__doc__)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="one seed")
    which.add_argument("--seeds", metavar="A..B", help="the seeds from A up to B, without B")
    parser.add_argument("--trace", action="store_true", help="print what happened, line by line")
    parser.add_argument("--mutant", help="plant this bug (see ottla.sim.mutants)")
    parser.add_argument("--scenario", choices=list(SCENARIOS), default="swarm", help="what a life consists of")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        seeds = [options.seed]
    else:
        first, _, last = options.seeds.partition("..")
        seeds = list(range(int(first), int(last)))
    one = partial(simulate, mutant=options.mutant, scenario=options.scenario)
    if len(seeds) > 1:
        # A process of its own for each: what one life leaves in memory must not touch the next.
        with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool:
            reports = _told(pool.map(one, seeds), options.trace)
    else:
        reports = _told(map(one, seeds), options.trace)
    bad = [each.seed for each in reports if each.violations]
    print(
        f"{len(reports)} seeds, {sum(each.faults for each in reports)} faults injected, "
        f"{sum(each.seconds for each in reports) / 3600:.2f} virtual hours, "
        f"{sum(each.checks for each in reports)} checks, "
        + (f"VIOLATIONS with seeds {', '.join(map(str, bad))}" if bad else "no violation")
    )
    return 1 if bad else 0


def _told(reports: object, trace: bool) -> list[Report]:
    told: list[Report] = []
    for report in reports:  # type: ignore[attr-defined]
        if trace:
            print("\n".join(report.trace))
        for violation in report.violations[:SHOWN_MAX]:
            print(f"seed {report.seed}: {violation}", flush=True)
        if len(report.violations) > SHOWN_MAX:
            print(f"seed {report.seed}: and {len(report.violations) - SHOWN_MAX} more", flush=True)
        told.append(report)
    return told


if __name__ == "__main__":
    sys.exit(main())
