"""Runs benchmarks: `python -m benchmarks [NAME...] [--quick] [--json]`.

A benchmark is a module in this folder with a function `run(quick) -> list[Result]`; `measure.py` says how to write one.
Tables or JSON go to standard output, progress to standard error. A missed goal is a finding, not a failure: the exit
status is 1 only when a benchmark could not run, 2 when it does not exist.
"""

import argparse
import importlib
import json
import pkgutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import benchmarks
from benchmarks.measure import Result

Run = Callable[[bool], list[Result]]


def available() -> list[str]:
    """The modules of this folder that may be benchmarks, by name."""
    folder = str(Path(benchmarks.__file__).parent)
    return sorted(found.name for found in pkgutil.iter_modules([folder]) if found.name not in ("measure", "__main__"))


def load(name: str) -> Run | None:
    """The module's `run`, or None if it has none: then it serves other benchmarks."""
    run: Run | None = getattr(importlib.import_module(f"benchmarks.{name}"), "run", None)
    return run


def measure(names: Sequence[str], *, quick: bool, report: Callable[[str, list[Result]], None]) -> list[str]:
    """Runs the named benchmarks, reports each when it is done, and returns the names of those that failed."""
    failed = []
    for number, name in enumerate(names, start=1):
        try:
            run = load(name)
            print(f"[{number}/{len(names)}] {name}{'' if run else ': no benchmark'}", file=sys.stderr, flush=True)
            if run is not None:
                report(name, run(quick))
        except Exception:
            traceback.print_exc()
            failed.append(name)
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measured claims, as ratios between rivals."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which ones (default all): {', '.join(available())}")
    parser.add_argument("--quick", action="store_true", help="few rounds: shows that it works, not how fast it is")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of tables")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(available()))
    if unknown:
        print(f"no benchmark named {', '.join(unknown)}; there are: {', '.join(available())}", file=sys.stderr)
        return 2

    collected: dict[str, list[Result]] = {}

    def report(name: str, results: list[Result]) -> None:
        collected[name] = results
        if not options.json:
            print("\n\n".join(result.table() for result in results), end="\n\n", flush=True)

    failed = measure(options.names or available(), quick=options.quick, report=report)
    if options.json:
        print(json.dumps({name: [result.as_dict() for result in results] for name, results in collected.items()}))
    if failed:
        print(f"could not run: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
