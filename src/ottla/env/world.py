"""The ports together: everything that a broker or a client needs from outside the process."""

from collections.abc import Callable
from dataclasses import dataclass

from ottla.env.ports import Clock, Disk, Helper, Network, Random


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The same code runs on the real machine or in a simulation, depending on the `World` it gets."""

    clock: Clock
    disk: Disk
    network: Network
    random: Random
    start_helper: Callable[[], Helper]
    """Creates the helper for CPU-bound work; called when it is first needed."""


def real_world() -> World:
    """The real implementations."""
    from ottla.env.helper_process import HelperProcess
    from ottla.env.real_clock import RealClock
    from ottla.env.real_disk import RealDisk
    from ottla.env.real_network import RealNetwork
    from ottla.env.real_random import RealRandom

    return World(
        clock=RealClock(), disk=RealDisk(), network=RealNetwork(), random=RealRandom(), start_helper=HelperProcess
    )
