"""Whole runs from seeds: no promise may be broken. `OTTLA_SIM_SEEDS` says how many there are, 5 unless it is set."""

import os
import subprocess
import sys

import pytest

from tests.simulation.regressions import REGRESSIONS, SCENARIO_REGRESSIONS

SEEDS = range(1000, 1000 + int(os.environ.get("OTTLA_SIM_SEEDS", "5")))


@pytest.mark.parametrize(
    ("seed", "scenario"),
    [
        *((seed, "swarm") for seed in SEEDS),
        *((seed, "lossless") for seed in REGRESSIONS),
        *((seed, scenario) for scenario, seed in SCENARIO_REGRESSIONS),
    ],
)
def test_no_promise_is_broken(seed: int, scenario: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "ottla.sim", "--seed", str(seed), "--scenario", scenario],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout.endswith("no violation\n"), ended.stdout + ended.stderr
    assert 0 == ended.returncode
