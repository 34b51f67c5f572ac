"""A simulated world whose brokers were never started: histories and disks are what the tests make them."""

from collections.abc import Iterator

import pytest

from ottla.sim.loop import VirtualLoop
from ottla.sim.simulated_world import SimulatedWorld


@pytest.fixture
def world() -> Iterator[SimulatedWorld]:
    loop = VirtualLoop()
    yield SimulatedWorld(loop, 1)
    loop.close()
