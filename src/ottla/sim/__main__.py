"""Runs simulations of a cluster from one seed or many. docs/simulation.md explains them."""

import argparse
import shlex
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from typing import Final

from ottla.sim.mutants.planted import MUTANTS
from ottla.sim.report import Report, simulate
from ottla.sim.seed_runs import run_seeds, take_within
from ottla.sim.swarm import SCENARIOS

PROGRAM: Final = "python -m ottla.sim"
SCENARIO: Final = "swarm"
VIOLATIONS_MAX: Final = 5
"""The number of violations of one seed that are printed."""
PROGRESS_SEEDS: Final = 50
"""Progress is printed after this number of seeds if there is no terminal."""
EXAMPLES: Final = """examples:
  python -m ottla.sim --seed 104 --trace
  python -m ottla.sim --seeds 0..100 --jobs 2
  python -m ottla.sim --seeds 4000.. --seconds 600 --jobs 2
  python -m ottla.sim --seeds 0..20 --scenario power --mutant "lost disks are trusted"
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="one seed")
    which.add_argument(
        "--seeds",
        type=_seeds,
        metavar="A..B",
        help="the seeds from A up to B, without B; A.. goes on until the time of --seconds is up",
    )
    parser.add_argument(
        "--seconds", type=_seconds, metavar="N", help="begin no seed after this time; those that run end"
    )
    parser.add_argument("--trace", action="store_true", help="print what happened, line by line")
    parser.add_argument("--mutant", choices=list(MUTANTS), metavar="NAME", help="plant this bug (docs/simulation.md)")
    parser.add_argument("--scenario", choices=list(SCENARIOS), default=SCENARIO, help="workloads and faults of a run")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    options = parser.parse_args(arguments)
    if options.seconds is None and isinstance(options.seeds, count):
        parser.error("--seeds A.. needs --seconds, or an end: A..B")
    if options.seconds is not None and options.seeds is None:
        parser.error("--seconds needs --seeds")
    simulate_one = partial(simulate, mutant=options.mutant, scenario=options.scenario)
    if options.seed is not None:
        runs: Iterable[Report] = map(simulate_one, [options.seed])
    else:
        runs = run_seeds(simulate_one, take_within(options.seconds, options.seeds), options.jobs)
    reports = _print_each(runs, options)
    seeds = [each.seed for each in reports]
    bad = sorted(each.seed for each in reports if each.violations)
    print(
        f"{len(seeds)} seeds ({min(seeds)}..{max(seeds) + 1}), {sum(each.faults for each in reports)} faults injected, "
        f"{sum(each.seconds for each in reports) / 3600:.2f} virtual hours, "
        f"{sum(each.checks for each in reports)} checks, "
        + (f"VIOLATIONS with seeds {', '.join(map(str, bad))}" if bad else "no violation")
    )
    return 1 if bad else 0


def _seeds(text: str) -> Iterable[int]:
    first, dots, end = text.partition("..")
    if not dots or not first.isdecimal() or not (end == "" or (end.isdecimal() and int(first) < int(end))):
        raise argparse.ArgumentTypeError(f"{text!r} is not A..B with A below B, as in 0..100, nor A..")
    return range(int(first), int(end)) if end else count(int(first))


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not more than 0")
    return seconds


def _print_each(runs: Iterable[Report], options: argparse.Namespace) -> list[Report]:
    """Prints what is wrong with a seed as soon as it has ended, and how many have."""
    reports: list[Report] = []
    total = f" of {len(options.seeds)}" if isinstance(options.seeds, range) else ""
    is_terminal = sys.stderr.isatty()
    for report in runs:
        reports.append(report)
        if options.trace:
            print("\n".join(report.trace))
        for violation in report.violations[:VIOLATIONS_MAX]:
            print(f"seed {report.seed}: {violation}", flush=True)
        if len(report.violations) > VIOLATIONS_MAX:
            print(f"seed {report.seed}: and {len(report.violations) - VIOLATIONS_MAX} more", flush=True)
        if report.violations:
            print(f"seed {report.seed}: repeat it with {_command(report.seed, options)}", flush=True)
        if options.seed is None and (is_terminal or len(reports) % PROGRESS_SEEDS == 0):
            bad = sum(bool(each.violations) for each in reports)
            print(
                f"{len(reports)}{total} seeds, {bad} with violations",
                end="\r" if is_terminal else "\n",
                file=sys.stderr,
                flush=True,
            )
    if options.seed is None and is_terminal:
        print(file=sys.stderr)
    return reports


def _command(seed: int, options: argparse.Namespace) -> str:
    """The command that runs this seed again and prints its trace."""
    scenario = [] if options.scenario == SCENARIO else ["--scenario", options.scenario]
    mutant = [] if options.mutant is None else ["--mutant", options.mutant]
    return shlex.join([*PROGRAM.split(), "--seed", str(seed), *scenario, *mutant, "--trace"])


if __name__ == "__main__":
    sys.exit(main())
