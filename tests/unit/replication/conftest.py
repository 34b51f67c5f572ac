"""Each of these tests runs on both event loops, where one is needed."""

import pytest

from tests.unit.env.event_loops import EVENT_LOOPS, Run


@pytest.fixture(params=EVENT_LOOPS)
def run(request: pytest.FixtureRequest) -> Run[None]:
    """Runs a scenario on one of the event loops."""
    chosen: Run[None] = request.param
    return chosen
