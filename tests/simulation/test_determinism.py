"""The same seed gives the same run, byte for byte, in another process with another hash seed."""

import os
import subprocess
import sys

import pytest

from ottla.sim.report import simulate


def trace_of(seed: int, hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "ottla.sim", "--seed", str(seed), "--trace"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("seed", [3, 7, 12])
def test_one_seed_is_one_life(seed: int) -> None:
    first = trace_of(seed, "1")
    assert "fault: " in first
    assert first == trace_of(seed, "2")


def test_what_was_lived_before_in_the_same_process_does_not_matter() -> None:
    """Seed 8 stops a broker with many connections, whose order was once that of their addresses in memory."""
    simulate(7)
    assert trace_of(8, "1").splitlines()[:-1] == simulate(8).trace


def test_another_seed_is_another_life() -> None:
    assert trace_of(1, "1") != trace_of(5, "1")
