"""Delivery counts are within the limit, and count each confirmed release."""

import pytest

from ottla.client.share.values import AcknowledgeType
from ottla.sim.checkers.share_delivery_counts import ShareDeliveryCounts
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import finish
from tests.unit.sim.checkers.share_histories import LIMIT, ShareGroup


@pytest.mark.parametrize(
    ("how", "asked_at", "count"),
    [
        (AcknowledgeType.RELEASE, 5.0, 2),
        (AcknowledgeType.RELEASE, 5.0, LIMIT),
        (AcknowledgeType.RELEASE, 4.0, 1),  # sent before the release was confirmed
        (AcknowledgeType.RENEW, 5.0, 1),
    ],
)
def test_counts_that_grow(how: AcknowledgeType, asked_at: float, count: int, world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acknowledge("x", how, 3.0, 4.0)
    group.acquire("y", count, asked_at, 6.0)
    assert [] == finish(ShareDeliveryCounts(), world)


@pytest.mark.parametrize("count", [1, LIMIT + 1])
def test_a_release_is_not_counted_or_the_limit_passed(count: int, world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acknowledge("x", AcknowledgeType.RELEASE, 3.0, 4.0)
    group.acquire("y", count, 5.0, 6.0)
    assert [
        f"delivery counts of share groups: events-0 offset 5: delivered to y at 6.000 with count {count}; it must be 2"
        " at least and 3 at most"
    ] == finish(ShareDeliveryCounts(), world)
