"""Stalls of the machine are seen, and only these."""

import sys
import time
from pathlib import Path

import pytest

from tests.chaos.stalls import LOOK_SECONDS, Stalls
from tests.processes import Program

PROGRAM = """
import sys, time
from tests.chaos.stalls import Stalls
with Stalls() as stalls:
    start = time.monotonic()
    print("ready", flush=True)
    sys.stdin.readline()
print(stalls.seconds(start, time.monotonic()), flush=True)
"""
STOPPED_SECONDS = 1.0


def test_a_process_that_was_stopped_knows_how_long(tmp_path: Path) -> None:
    with Program([sys.executable, "-c", PROGRAM], tmp_path / "stopped", has_input=True) as program:
        assert "ready" == program.next_line()
        program.pause()
        time.sleep(STOPPED_SECONDS)  # what it must notice
        program.resume()
        program.write("")
        stalled = float(program.next_line())
    assert stalled >= STOPPED_SECONDS - 2 * LOOK_SECONDS


def test_only_what_lies_between_the_moments_counts() -> None:
    stalls = Stalls()
    for before, now in ((0.0, 0.06), (1.0, 3.0), (5.0, 6.0)):
        stalls.add(before, now)
    assert pytest.approx(2.0 + 1.0 - 2 * LOOK_SECONDS) == stalls.seconds(0, 10)
    assert pytest.approx(1.0 + 0.5 - LOOK_SECONDS) == stalls.seconds(2, 5.5)
    assert 0 == stalls.seconds(3, 5)
