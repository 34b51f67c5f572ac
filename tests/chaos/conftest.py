"""A run that is told to end still takes everything away: namespaces and processes outlive whoever made them."""

import signal
from types import FrameType

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """SIGTERM, as a time limit sends it, unwinds as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(f"signal {number}")

    signal.signal(signal.SIGTERM, interrupt)
