"""Whole runs from the seeds that once failed: no promise may be broken."""

import subprocess
import sys

import pytest

from tests.simulation.regressions import REGRESSIONS, SCENARIO_REGRESSIONS


@pytest.mark.parametrize(
    ("seed", "scenario"),
    [
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
