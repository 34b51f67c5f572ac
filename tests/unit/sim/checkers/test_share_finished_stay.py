"""A record whose acceptance or rejection was confirmed is not delivered again."""

import pytest

from ottla.client.share.values import AcknowledgeType
from ottla.sim.checkers.share_finished_stay import ShareFinishedStay
from ottla.sim.shares.history import Acquisition
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import finish
from tests.unit.sim.checkers.share_histories import ShareGroup


@pytest.mark.parametrize(
    ("how", "confirmed_at", "asked_at"),
    [
        (AcknowledgeType.ACCEPT, 4.0, 4.0),
        (AcknowledgeType.REJECT, None, 5.0),
        (AcknowledgeType.RELEASE, 4.0, 5.0),
        (AcknowledgeType.RENEW, 4.0, 5.0),
    ],
)
def test_what_is_not_finished_for_certain_may_be_delivered_again(
    how: AcknowledgeType, confirmed_at: float | None, asked_at: float, world: SimulatedWorld
) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acknowledge("x", how, 3.0, confirmed_at)
    group.acquire("y", 2, asked_at, 6.0)
    assert [] == finish(ShareFinishedStay(), world)


@pytest.mark.parametrize("how", [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT])
def test_a_finished_record_is_delivered_again(how: AcknowledgeType, world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acknowledge("x", how, 3.0, 4.0)
    group.acquire("y", 2, 4.5, 6.0)
    assert [
        f"acknowledged records stay done: events-0 offset 5: {how.name} of x was confirmed at 4.000, then delivered"
        f" again: {[Acquisition('y', 2, 4.5, 6.0)]}"
    ] == finish(ShareFinishedStay(), world)
