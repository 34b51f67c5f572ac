"""A record of a share group is acquired by one member at a time."""

import pytest

from ottla.client.share.values import AcknowledgeType
from ottla.sim.checkers.share_one_holder import HELD_SECONDS, ShareOneHolder
from ottla.sim.shares.history import Acquisition
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import finish
from tests.unit.sim.checkers.share_histories import ShareGroup


@pytest.mark.parametrize(
    ("member", "asked_at", "told_at", "confirmed_at"),
    [
        ("y", 2.0, 2.2, 2.8),  # the fetch may have been answered before the other member got the record
        ("y", 2.1, 2.5, 2.8),  # or the record acquired after the acknowledgement was stored
        ("x", 2.1, 2.2, 2.8),
        ("y", 2.1, 2.2, None),
        ("y", 2.1, 2.2, 2.2 + HELD_SECONDS),
    ],
)
def test_acquisitions_that_may_follow_each_other(
    member: str, asked_at: float, told_at: float, confirmed_at: float | None, world: SimulatedWorld
) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acquire(member, 2, asked_at, told_at)
    group.acknowledge("x", AcknowledgeType.ACCEPT, 2.5, confirmed_at)
    assert [] == finish(ShareOneHolder(), world)


def test_the_other_member_acknowledged_the_record_as_well(world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acquire("y", 2, 2.1, 2.2)
    group.acknowledge("y", AcknowledgeType.RELEASE, 2.3, None)
    group.acknowledge("x", AcknowledgeType.ACCEPT, 2.5, 2.8)
    assert [] == finish(ShareOneHolder(), world)


@pytest.mark.parametrize("how", [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE])
def test_a_member_acquires_what_another_one_holds(how: AcknowledgeType, world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acquire("y", 2, 2.1, 2.2)
    group.acknowledge("x", how, 2.5, 2.8)
    assert [
        f"one holder of a record: events-0 offset 5: x held it from 2.000 to 2.500 ({how.name} was confirmed), and"
        f" {[Acquisition('y', 2, 2.1, 2.2)]} acquired it"
    ] == finish(ShareOneHolder(), world)
