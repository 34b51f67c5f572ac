"""Records that are due in the same millisecond are delivered in the order in which they were parked."""

from typing import Any

import pytest

from ottla.sim.checkers.ties_in_order import TiesInOrder
from ottla.sim.queue_history import Arrival
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import ORDERS_1, PARKED_0, arrival, finish, owe


def delivered(name: bytes, parked_at: int, due_ms: int | str = 7, **place: Any) -> Arrival:
    return arrival(name, **place, origin=f"{PARKED_0.topic}/{PARKED_0.partition}/{parked_at}", due_ms=str(due_ms))


@pytest.mark.parametrize(
    "arrivals",
    [
        [delivered(b"a", 3), delivered(b"b", 4)],
        [delivered(b"b", 4, due_ms=6), delivered(b"a", 3)],
        [delivered(b"b", 4), delivered(b"a", 3, partition=ORDERS_1)],
        [delivered(b"b", 4, due_ms=""), delivered(b"a", 3, due_ms="")],
        [delivered(b"b", 4), delivered(b"released", 3), delivered(b"in a transaction", 2), delivered(b"unknown", 1)],
    ],
)
def test_ties_in_order(arrivals: list[Arrival], world: SimulatedWorld) -> None:
    for name in (b"a", b"b"):
        owe(world, name, parked_in=PARKED_0)
    owe(world, b"released", parked_in=PARKED_0, released_at=1.0)
    owe(world, b"in a transaction", parked_in=PARKED_0, transaction="t")
    assert [] == finish(TiesInOrder(), world, arrivals=arrivals)


@pytest.mark.parametrize(("earlier", "parked_at"), [(b"b", 4), (b"a", 3)])
def test_ties_out_of_order(earlier: bytes, parked_at: int, world: SimulatedWorld) -> None:
    for name in (b"a", b"b"):
        owe(world, name, parked_in=PARKED_0)
    assert [
        f"ties keep their order: orders-0: a, parked at 3, comes after {earlier.decode()}, parked at {parked_at}"
        " and due at the same time"
    ] == finish(TiesInOrder(), world, arrivals=[delivered(earlier, parked_at), delivered(b"a", 3)])


def test_a_header_that_names_another_origin(world: SimulatedWorld) -> None:
    owe(world, b"a", parked_in=PARKED_0)
    assert ["ties keep their order: a was parked in orders.delayed-0; its header says 'orders.delayed/1'"] == finish(
        TiesInOrder(), world, arrivals=[arrival(b"a", origin="orders.delayed/1/3", due_ms="7")]
    )
