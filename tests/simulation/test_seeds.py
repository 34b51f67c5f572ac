"""Whole runs from the seeds that once failed, each in a process of its own: no promise may be broken."""

from functools import partial

import pytest

from ottla.sim.report import simulate
from ottla.sim.seed_runs import run_seeds
from tests.simulation.regressions import REGRESSIONS, SCENARIO_REGRESSIONS


@pytest.mark.parametrize(
    ("seed", "scenario"),
    [
        *((seed, "lossless") for seed in REGRESSIONS),
        *((seed, scenario) for scenario, seed in SCENARIO_REGRESSIONS),
    ],
)
def test_no_promise_is_broken(seed: int, scenario: str) -> None:
    (report,) = run_seeds(partial(simulate, scenario=scenario), [seed], jobs=1)
    assert [] == report.violations
