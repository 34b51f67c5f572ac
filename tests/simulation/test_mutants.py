"""Every planted bug is found by a few seeds; some of them here, with `OTTLA_SIM_MUTANTS=all` all of them."""

import os

import pytest

from ottla.sim.mutants.catching import CAUGHT_BY, UNSEEN
from ottla.sim.mutants.planted import MUTANTS
from ottla.sim.report import simulate
from tests.simulation.loss_stories import LOSS_STORIES
from tests.simulation.stories import STORIES

SEEDS_MAX = 12
"""So many are tried, the one that found it first: every change of the code makes other lives of the same seeds."""
SOME = [
    "acks before replication",
    "truncation by high watermark",
    "sequence check dropped",
    "same epoch for the next leader",
    "coordinator without memory",
    "aborted transactions are shown",
    "lost folders are not missed",
    "holes are not missed",
]


@pytest.mark.parametrize("name", list(CAUGHT_BY) if os.environ.get("OTTLA_SIM_MUTANTS") == "all" else SOME)
def test_planted_bug_is_found(name: str) -> None:
    seeds = dict.fromkeys([CAUGHT_BY[name], *range(SEEDS_MAX)])
    scenario = MUTANTS[name].scenario
    assert any(simulate(seed, name, scenario=scenario, to_first=True).violations for seed in seeds)


@pytest.mark.parametrize("name", SOME)
def test_the_same_life_without_the_bug_is_right(name: str) -> None:
    report = simulate(CAUGHT_BY[name], scenario=MUTANTS[name].scenario)
    assert [] == report.violations


def test_every_bug_is_found_somewhere_or_is_none() -> None:
    assert len(CAUGHT_BY) + len(STORIES) >= 20
    of_losses = {mutant for mutant, _ in LOSS_STORIES if mutant is not None}
    assert set(MUTANTS) == {*CAUGHT_BY, *STORIES, *of_losses, *UNSEEN}
