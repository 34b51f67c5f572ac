"""Every planted bug is found by its seed; some of them here, with `OTTLA_SIM_MUTANTS=all` all of them."""

import os

import pytest

from ottla.sim.mutants.catching import CAUGHT_BY
from ottla.sim.mutants.planted import MUTANTS
from ottla.sim.report import simulate

SOME = [
    "acks before replication",
    "truncation by high watermark",
    "sequence check dropped",
    "same epoch for the next leader",
    "coordinator without memory",
    "aborted transactions are shown",
]


@pytest.mark.parametrize("name", list(CAUGHT_BY) if os.environ.get("OTTLA_SIM_MUTANTS") == "all" else SOME)
def test_planted_bug_is_found(name: str) -> None:
    report = simulate(CAUGHT_BY[name], name, scenario=MUTANTS[name].scenario, to_first=True)
    assert [] != report.violations


@pytest.mark.parametrize("name", SOME)
def test_the_same_life_without_the_bug_is_right(name: str) -> None:
    report = simulate(CAUGHT_BY[name], scenario=MUTANTS[name].scenario)
    assert [] == report.violations


def test_enough_bugs_are_found() -> None:
    assert len(CAUGHT_BY) >= 20
    assert set(CAUGHT_BY) <= set(MUTANTS)
