"""A share group is done with a record because it was accepted, rejected, or delivered as often as the limit allows."""

import pytest

from ottla.client.share.values import AcknowledgeType
from ottla.model.ids import TopicPartition
from ottla.sim.checkers.share_nothing_lost import LATE_SECONDS, ShareNothingLost
from ottla.sim.shares.history import Acquisition
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import P0, finish
from tests.unit.sim.checkers.share_histories import LIMIT, ShareGroup

EVERYTHING = {P0: [(5, b"a")], TopicPartition("others", 0): [(0, b"b")]}


@pytest.mark.parametrize("how", [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT])
def test_a_record_that_a_member_finished(how: AcknowledgeType, world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acknowledge("x", how, 3.0, None)
    assert [] == finish(ShareNothingLost(), world, everything=EVERYTHING)


def test_a_record_that_was_delivered_as_often_as_it_may_be(world: SimulatedWorld) -> None:
    ShareGroup(world).acquire("x", LIMIT, 1.0, 2.0)
    assert [] == finish(ShareNothingLost(), world, everything=EVERYTHING)


@pytest.mark.parametrize(
    ("fetch_at", "lost"), [(10.0, False), (10 - LATE_SECONDS, False), (9.9 - LATE_SECONDS, True), (12.1, True)]
)
def test_a_fetch_without_an_answer_may_have_been_a_delivery(fetch_at: float, lost: bool, world: SimulatedWorld) -> None:
    """The record was last acquired by a fetch at 10 s, and the group was done with it at 12 s."""
    group = ShareGroup(world)
    group.acquire("x", LIMIT - 1, 10.0, 11.0)
    group.lose_fetch(fetch_at)
    group.show_start(5, 11.5)
    group.show_start(6, 12.0)
    assert lost == bool(finish(ShareNothingLost(), world, everything=EVERYTHING))


@pytest.mark.parametrize("how", [AcknowledgeType.RELEASE, AcknowledgeType.RENEW])
def test_a_record_that_no_member_finished(how: AcknowledgeType, world: SimulatedWorld) -> None:
    group = ShareGroup(world)
    group.acquire("x", 1, 1.0, 2.0)
    group.acknowledge("x", how, 3.0, 4.0)
    assert [
        "no record lost to a share group: events-0 offset 5: b'a' was delivered 1 times, and neither accepted nor"
        f" rejected: {[Acquisition('x', 1, 1.0, 2.0)]}"
    ] == finish(ShareNothingLost(), world, everything=EVERYTHING)


def test_a_record_that_no_member_got(world: SimulatedWorld) -> None:
    ShareGroup(world)
    assert [
        "no record lost to a share group: events-0 offset 5: b'a' was delivered 0 times, and neither accepted nor"
        " rejected: []"
    ] == finish(ShareNothingLost(), world, everything=EVERYTHING)
