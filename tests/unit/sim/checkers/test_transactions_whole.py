"""A transaction is read completely or not at all, in order, and never if it was aborted."""

import pytest

from ottla.sim.checkers.transactions_whole import TransactionsWhole
from ottla.sim.history import Transaction
from ottla.sim.simulated_world import SimulatedWorld
from tests.unit.sim.checkers.histories import P0, P1, finish

RECORDS = [(P0, b"pay/1/0"), (P1, b"pay/1/1"), (P0, b"pay/1/2")]
WHOLE = {P0: [(0, b"pay/1/0"), (1, b"pay/1/2")], P1: [(0, b"pay/1/1")]}
Committed = dict[object, list[tuple[int, bytes]]]


def begin(world: SimulatedWorld, outcome: str) -> None:
    world.history.transactions["pay/1"] = Transaction(name="pay/1", records=RECORDS, outcome=outcome)


@pytest.mark.parametrize(
    ("outcome", "committed"), [("committed", WHOLE), ("aborted", {}), ("unknown", WHOLE), ("unknown", {})]
)
def test_whole_transactions(outcome: str, committed: Committed, world: SimulatedWorld) -> None:
    begin(world, outcome)
    if committed:
        world.history.on_read(P0, 0, b"pay/1/0", "reader", committed=True)
    assert [] == finish(TransactionsWhole(), world, committed=committed)


@pytest.mark.parametrize(
    ("outcome", "committed", "violation"),
    [
        ("committed", {}, "pay/1 is committed; of its 3 records 0 can be read"),
        ("committed", {P0: WHOLE[P0]}, "pay/1 is committed; of its 3 records 2 can be read"),
        ("aborted", {P1: WHOLE[P1]}, "pay/1 is aborted; of its 3 records 1 can be read"),
        ("unknown", {P1: WHOLE[P1]}, "pay/1 is unknown; of its 3 records 1 can be read"),
        ("committed", {**WHOLE, P0: [(0, b"pay/1/2"), (1, b"pay/1/0")]}, "pay/1 is out of order"),
        (
            "committed",
            {**WHOLE, P1: [(0, b"pay/1/1"), (5, b"pay/1/1")]},
            "b'pay/1/1' is committed twice, again at events-1 5",
        ),
    ],
)
def test_transactions_in_part(outcome: str, committed: Committed, violation: str, world: SimulatedWorld) -> None:
    begin(world, outcome)
    assert [f"transactions are whole: {violation}"] == finish(TransactionsWhole(), world, committed=committed)


def test_a_reader_was_shown_what_is_not_committed(world: SimulatedWorld) -> None:
    begin(world, "unknown")
    world.history.on_read(P0, 0, b"pay/1/0", "reader", committed=False)
    world.history.on_read(P1, 0, b"pay/1/1", "reader", committed=True)
    assert ["transactions are whole: pay/1 was shown as committed to a reader, and is not"] == finish(
        TransactionsWhole(), world
    )
