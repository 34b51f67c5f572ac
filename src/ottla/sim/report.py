"""Runs one seed and reports the result."""

from dataclasses import dataclass
from functools import partial

from ottla.sim.mutants import applied
from ottla.sim.simulated_world import run
from ottla.sim.swarm import live


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one seed."""

    seed: int
    violations: list[str]
    faults: int
    seconds: float
    checks: int
    trace: list[str]


def simulate(seed: int, mutant: str | None = None, *, scenario: str = "swarm", to_first: bool = False) -> Report:
    """Runs one seed; with `to_first`, only to the first violation."""
    with applied(mutant):
        history = run(partial(live, scenario=scenario), seed, to_first=to_first)
    end = float(history.trace[-1].split()[0])
    return Report(
        seed=seed,
        violations=history.violations,
        faults=sum(history.fault_counts.values()),
        seconds=end,
        checks=history.checks,
        trace=history.trace,
    )
