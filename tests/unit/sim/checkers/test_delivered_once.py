"""A queue delivers a record once, and none that was withdrawn."""

from typing import Any

import pytest

from ottla.model.ids import TopicPartition
from ottla.model.queue_names import dead_letter_topic
from ottla.sim.checkers.delivered_once import MARKER_SECONDS, DeliveredOnce, WithdrawnStayAway
from ottla.sim.queue_history import TRANSFERS
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import ORDERS_0, ORDERS_1, arrival, finish, owe

HALF = {"sink": TRANSFERS, "outcome": "aborted", "is_half": True}


def test_each_name_arrives_once(world: SimulatedWorld) -> None:
    assert [] == finish(DeliveredOnce(), world, arrivals=[arrival(b"a", 0), arrival(b"b", 1)])


def test_a_name_arrives_again(world: SimulatedWorld) -> None:
    arrivals = [arrival(b"a", 0), arrival(b"b", 1), arrival(b"a", 7, ORDERS_1)]
    assert ["nothing is delivered twice: a is at orders-0 0, and again at orders-1 7"] == finish(
        DeliveredOnce(), world, arrivals=arrivals
    )


@pytest.mark.parametrize(
    ("facts", "place"),
    [
        ({"outcome": "aborted"}, None),
        ({"delay_ms": 5000, "cancelled_at": 4.0}, None),
        ({"delay_ms": 5000, "cancelled_at": 5.0}, ORDERS_0),  # a broker may hold it for due when that is acknowledged
        ({"delay_ms": 5000}, ORDERS_0),
        ({"delay_ms": 9000, "cancelled_at": 4.0, "is_cancel_transactional": True}, ORDERS_0),  # healed at 4 s
        (HALF, TopicPartition(dead_letter_topic(TRANSFERS), 0)),
    ],
)
def test_what_was_withdrawn_is_absent_or_was_withdrawn_late(
    facts: dict[str, Any], place: TopicPartition | None, world: SimulatedWorld
) -> None:
    world.healed_at = 4.0
    owe(world, b"a", **facts)
    arrivals = [] if place is None else [arrival(b"a", 3, place)]
    assert [] == finish(WithdrawnStayAway(), world, arrivals=arrivals)


@pytest.mark.parametrize(
    ("facts", "place", "violation"),
    [
        ({"outcome": "aborted"}, ORDERS_0, "a was rolled back, and is at orders-0 3"),
        (HALF, TopicPartition(TRANSFERS, 1), "a was rolled back, and is at transfers-1 3"),
        ({"delay_ms": 5000, "cancelled_at": 4.9}, ORDERS_0, "a was cancelled in time, and is at orders-0 3"),
        (
            {"delay_ms": 60_000, "cancelled_at": 4.0, "is_cancel_transactional": True},
            ORDERS_0,
            "a was cancelled in time, and is at orders-0 3",
        ),
    ],
)
def test_what_was_withdrawn_arrives(
    facts: dict[str, Any], place: TopicPartition, violation: str, world: SimulatedWorld
) -> None:
    world.healed_at = 4.0
    assert world.healed_at + MARKER_SECONDS == 9.0
    owe(world, b"a", **facts)
    assert [f"what was withdrawn is not delivered: {violation}"] == finish(
        WithdrawnStayAway(), world, arrivals=[arrival(b"a", 3, place)]
    )
