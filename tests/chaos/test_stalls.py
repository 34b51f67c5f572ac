"""Stalls of the machine are seen, and only these."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.chaos.stalls import LOOK_SECONDS, Stalls

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


def test_a_process_that_was_stopped_knows_how_long() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(STOPPED_SECONDS)
        os.kill(process.pid, signal.SIGCONT)
        told, _ = process.communicate("\n", timeout=60)
    assert float(told) >= STOPPED_SECONDS - 2 * LOOK_SECONDS


def test_only_what_lies_between_the_moments_counts() -> None:
    stalls = Stalls()
    for before, now in ((0.0, 0.06), (1.0, 3.0), (5.0, 6.0)):
        stalls.add(before, now)
    assert pytest.approx(2.0 + 1.0 - 2 * LOOK_SECONDS) == stalls.seconds(0, 10)
    assert pytest.approx(1.0 + 0.5 - LOOK_SECONDS) == stalls.seconds(2, 5.5)
    assert 0 == stalls.seconds(3, 5)
