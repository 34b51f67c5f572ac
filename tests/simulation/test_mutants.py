"""Every planted bug is found by a few seeds; some of them here, with `OTTLA_SIM_MUTANTS=all` all of them."""

import os

import pytest

from ottla.sim.mutants import applied
from ottla.sim.mutants.catching import CAUGHT_BY, CHECKED_BY, UNSEEN
from ottla.sim.mutants.planted import MUTANTS
from ottla.sim.report import simulate
from tests.simulation.loss_stories import LOSS_STORIES
from tests.simulation.stories import STORIES

SEEDS_MAX = 12
"""Seeds that are tried, first the one that found it: with every change of the code, seeds give other runs."""
SOME = [
    "acks before replication",
    "truncation by high watermark",
    "sequence check dropped",
    "same epoch for the next leader",
    "coordinator without memory",
    "aborted transactions are shown",
    "lost folders are not missed",
    "holes are not missed",
    "queues deliver early",
    "unfinished plans are forgotten",
    "deliveries are not idempotent",
    "aborted cancels count",
    "releases are ignored",
    "ties are reversed",
    "expired records are shown",
    "rollbacks are commits",
    "share locks never expire",
    "share acknowledgements are answered early",
    "share delivery counts are not loaded",
    "share locks are ignored",
    "share start offsets pass acquired records",
]


@pytest.mark.parametrize("name", list(CAUGHT_BY) if os.environ.get("OTTLA_SIM_MUTANTS") == "all" else SOME)
def test_planted_bug_is_found(name: str) -> None:
    seeds = dict.fromkeys([CAUGHT_BY[name], *range(SEEDS_MAX)])
    scenario = MUTANTS[name].scenario
    if name not in CHECKED_BY:
        assert any(simulate(seed, name, scenario=scenario, to_first=True).violations for seed in seeds)
        return
    of_checker = f"{CHECKED_BY[name]}: "
    runs = (simulate(seed, name, scenario=scenario) for seed in seeds)
    assert any(each.startswith(of_checker) for run in runs for each in run.violations)


@pytest.mark.parametrize(("scenario", "seed"), sorted({(MUTANTS[name].scenario, CAUGHT_BY[name]) for name in SOME}))
def test_the_same_life_without_the_bug_is_right(scenario: str, seed: int) -> None:
    assert [] == simulate(seed, scenario=scenario).violations


@pytest.mark.parametrize("name", list(MUTANTS))
def test_what_a_planted_bug_replaces_exists(name: str) -> None:
    with applied(name):
        pass


def test_every_bug_is_found_somewhere_or_is_none() -> None:
    assert len(CAUGHT_BY) + len(STORIES) >= 20
    of_losses = {mutant for mutant, _ in LOSS_STORIES if mutant is not None}
    assert set(MUTANTS) == {*CAUGHT_BY, *STORIES, *of_losses, *UNSEEN}
