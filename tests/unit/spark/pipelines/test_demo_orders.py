"""The demo's orders and its proof: what must come out, and that the proof sees when it does not."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

from examples.order_proof import Line, committed_files, windows_of
from examples.order_stream import Expected, country_of, orders


def test_orders_are_always_the_same_and_some_are_wrong() -> None:
    first, second = list(orders(2000)), list(orders(2000))
    assert first == second
    expected = Expected()
    for order in first:
        expected.add(order)
    assert 2000 == expected.orders == expected.wrong + expected.windows.total()
    assert 20 < expected.wrong < 80
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


def test_only_committed_files_count(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, files in {"0": ["a"], "1.compact": ["a", "b c"], "2": ["d"]}.items():
        entries = [
            json.dumps({"path": f"file://{tmp_path}/{file.replace(' ', '%20')}", "action": "add"}) for file in files
        ]
        (log / name).write_text("\n".join(["v1", *entries]))
    (log / ".2.crc").write_text("")
    (tmp_path / "orphan").write_text("")
    assert [tmp_path / "a", tmp_path / "b c", tmp_path / "d"] == committed_files(tmp_path)


def test_claims_hold_or_not() -> None:
    assert [True, False] == [Line(claim="x", expected=1, found=found).holds for found in (1, 2)]
