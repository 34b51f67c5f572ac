"""`make demo`, smaller: killed in the middle, and every order is counted once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1200)  # the demo gives up when nothing changes, not when a slow machine takes long
def test_every_order_is_counted_once() -> None:
    command = [sys.executable, "-m", "examples.demo", "--orders", "4000", "--seconds", "12", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1100, check=False)
    assert (0, "") == (done.returncode, done.stderr), done
    summary = json.loads(done.stdout)
    assert (4000, 1, True) == (summary["orders"], summary["kills"], summary["proved"])
    assert 10 == len(summary["claims"])
    assert all(claim["expected"] == claim["found"] for claim in summary["claims"])
