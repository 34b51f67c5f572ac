"""The demo's orders and its proof: what must come out, and that the proof sees when it does not."""

import json
from collections import Counter
from types import SimpleNamespace

from examples.order_proof import Line, windows_of
from examples.order_stream import Expected, country_of, orders


def test_orders_are_always_the_same_and_some_are_wrong() -> None:
    first, second = list(orders(2000)), list(orders(2000))
    assert first == second
    expected = Expected()
    for order in first:
        expected.add(order)
    assert 2000 == expected.orders == expected.wrong + expected.windows.total()
    assert 20 < expected.wrong < 80
    assert 1300 < expected.evolved < 1400
    assert 0 < expected.named < expected.wrong
    assert 10 == len({minute for minute, _ in expected.windows})
    assert "unknown" == country_of(59) != country_of(0)


def test_windows_are_summed_and_double_ones_counted() -> None:
    rows = [("12:00", "AT", 2, 0.3), ("12:00", "AT", 2, 0.3), ("12:01", "DE", 1, 1.1)]
    records = [
        SimpleNamespace(value=json.dumps({"minute": f"2024-05-01T{m}:00.000Z", "country": c, "orders": n, "amount": a}))
        for m, c, n, a in rows
    ]
    found, cents, twice = windows_of(records)
    assert Counter({("2024-05-01T12:00:00", "AT"): 4, ("2024-05-01T12:01:00", "DE"): 1}) == found
    assert (60, 110, 1) == (*cents.values(), twice)


def test_claims_hold_or_not() -> None:
    assert [True, False] == [Line(claim="x", expected=1, found=found).holds for found in (1, 2)]
