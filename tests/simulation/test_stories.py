"""Each story holds with the code as it is, and fails with its planted bug."""

import pytest

from ottla.sim.history import History
from ottla.sim.mutants import applied
from ottla.sim.mutants.planted import MUTANTS
from ottla.sim.simulated_world import Story, run
from tests.simulation.loss_stories import LOSS_STORIES
from tests.simulation.stories import STORIES


def told(story: Story, mutant: str | None) -> History:
    with applied(mutant):
        return run(story, 1)


@pytest.mark.parametrize("story", [*STORIES.values(), *(story for _, story in LOSS_STORIES)])
def test_it_ends_well(story: Story) -> None:
    history = told(story, None)
    assert [] == history.violations
    assert history.checks > 0


@pytest.mark.parametrize(("mutant", "story"), [*STORIES.items(), *(each for each in LOSS_STORIES if each[0])])
def test_a_planted_bug_is_found(mutant: str, story: Story) -> None:
    assert mutant in MUTANTS
    assert [] != told(story, mutant).violations
