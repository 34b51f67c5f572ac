"""`make demo`, smaller: killed in the middle, and every order is counted once."""

import json
import sys
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1200)  # the demo gives up when nothing changes, not when a slow machine takes long
def test_every_order_is_counted_once() -> None:
    command = [sys.executable, "-m", "examples.demo", "--orders", "4000", "--seconds", "12", "--json"]
    done = run(command, folder=ROOT, seconds=1100)
    assert "" == done.stderr
    summary = json.loads(done.stdout)
    assert (4000, 1, True) == (summary["orders"], summary["kills"], summary["proved"])
    assert 10 == len(summary["claims"])
    assert all(claim["expected"] == claim["found"] for claim in summary["claims"])
